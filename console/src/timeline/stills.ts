/** Choice of the still for a slot of the film strip. */

import type { Schemas } from 'sightline-client';
import type { IntervalIndex } from './intervals';

export type Still = Pick<Schemas.Keyframe, 'frame_index' | 'pts_ms' | 'event_type' | 'description' | 'image_sha256'> & Partial<Pick<Schemas.Keyframe, 'reason'>>;

interface Slot {
  from: number;
  to: number;
  /** The most telling still in it; where it has none, the last one before it. */
  still?: Still;
  /** The still is of before the slot. */
  earlier: boolean;
}

/** A cut tells most, then an artifact, then what was described, then what moves, then the rest. */
const weight = (still: Still): number =>
  still.event_type === 'scene_cut' ? 3 : still.event_type === 'artifact_suspected' ? 2 : still.description ? 1 : still.reason?.startsWith('activity') ? 0.5 : 0;

export function telling(stills: readonly Still[]): Still | undefined {
  return stills.reduce<Still | undefined>(
    (best, still) => (best === undefined || weight(still) > weight(best) ? still : best),
    undefined,
  );
}

/** Slots of `length` ms that lie on a grid in media time, so that they move with the view. */
export function slots(index: IntervalIndex<Still>, from: number, to: number, length: number, end: number): Slot[] {
  const made: Slot[] = [];
  for (let n = Math.floor(from / length); n * length < Math.min(to, end); n++) {
    const slot = { from: n * length, to: (n + 1) * length };
    if (slot.to <= 0) continue;
    const inside = telling(index.meeting(slot.from, slot.to - 1e-6));
    made.push({ ...slot, still: inside ?? index.at(slot.from), earlier: inside === undefined });
  }
  return made;
}
