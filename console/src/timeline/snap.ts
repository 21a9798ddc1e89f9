/** Sticks the head to what is worth hitting. */

import { nearestOf } from './order';
import { span, type View } from './scale';

const REACH_PX = 6;

/** The value of a sorted list that is nearest to `t`. */
export function nearest(sorted: ArrayLike<number>, t: number): number | undefined {
  return sorted[nearestOf(sorted.length, (i) => sorted[i]!, t)];
}

interface SnapTargets {
  /** Sorted edges of markers, kept frames and cuts. */
  marks: ArrayLike<number>;
  /** Sorted times of the frames in view, where single frames are shown. */
  frames?: ArrayLike<number>;
}

/** The moment meant by `t`: a frame where frames are shown, else a mark within reach, else itself. */
export function snapped(t: number, view: View, width: number, targets: SnapTargets, on = true): number {
  const mark = on ? nearest(targets.marks, t) : undefined;
  const reach = (span(view) / width) * REACH_PX;
  const near = mark !== undefined && Math.abs(mark - t) <= reach ? mark : t;
  return targets.frames?.length ? nearest(targets.frames, near)! : near;
}
