/** Signals as points with minimum, maximum and mean, and coarser levels of them that keep every peak. */

import { firstWhere } from './order';

export const SIGNALS = ['scene', 'luma', 'flicker', 'ghosting', 'noise', 'activity'] as const;
export type SignalName = (typeof SIGNALS)[number];

interface Curve {
  min: Float32Array;
  max: Float32Array;
  mean: Float32Array;
}

/** Consecutive points; each is a frame or a bucket of frames. */
export interface Series {
  length: number;
  /** Presentation time of the first and of the last frame of each point. */
  start: Float64Array;
  end: Float64Array;
  firstFrame: Float64Array;
  frames: Uint32Array;
  kept: Uint32Array;
  /** Bits of the reasons that occur in it, by their place in `REASONS`. */
  reasons: Uint16Array;
  /** Largest step of luma against the frame before it, where each point is a frame. */
  step: Float32Array;
  curves: Record<SignalName, Curve>;
}

export const FANOUT = 4;

export function emptySeries(length: number): Series {
  const curve = (): Curve => ({
    min: new Float32Array(length),
    max: new Float32Array(length),
    mean: new Float32Array(length),
  });
  return {
    length,
    start: new Float64Array(length),
    end: new Float64Array(length),
    firstFrame: new Float64Array(length),
    frames: new Uint32Array(length),
    kept: new Uint32Array(length),
    reasons: new Uint16Array(length),
    step: new Float32Array(length),
    curves: Object.fromEntries(SIGNALS.map((name) => [name, curve()])) as Series['curves'],
  };
}

function coarser(fine: Series): Series {
  const made = emptySeries(Math.ceil(fine.length / FANOUT));
  for (let i = 0; i < made.length; i++) {
    const first = i * FANOUT;
    const last = Math.min(first + FANOUT, fine.length) - 1;
    made.start[i] = fine.start[first]!;
    made.end[i] = fine.end[last]!;
    made.firstFrame[i] = fine.firstFrame[first]!;
    for (let j = first; j <= last; j++) {
      made.frames[i]! += fine.frames[j]!;
      made.kept[i]! += fine.kept[j]!;
      made.reasons[i]! |= fine.reasons[j]!;
      made.step[i] = Math.max(made.step[i]!, fine.step[j]!);
    }
    for (const name of SIGNALS) merge(fine.curves[name], fine.frames, made.curves[name], i, first, last);
  }
  return made;
}

function merge(from: Curve, weights: Uint32Array, to: Curve, at: number, first: number, last: number) {
  let [min, max, sum, weight] = [Infinity, -Infinity, 0, 0];
  for (let j = first; j <= last; j++) {
    if (Number.isNaN(from.mean[j])) continue;
    min = Math.min(min, from.min[j]!);
    max = Math.max(max, from.max[j]!);
    sum += from.mean[j]! * weights[j]!;
    weight += weights[j]!;
  }
  to.min[at] = weight ? min : NaN;
  to.max[at] = weight ? max : NaN;
  to.mean[at] = weight ? sum / weight : NaN;
}

/** The points and ever coarser levels of them, down to a single one. */
export function pyramid(points: Series): Series[] {
  const levels = [points];
  while (levels[levels.length - 1]!.length > FANOUT) levels.push(coarser(levels[levels.length - 1]!));
  return levels;
}

/** Index of the first point that ends at `t` or later. */
export function indexAt(series: Series, t: number): number {
  return firstWhere(series.length, (i) => series.end[i]! >= t);
}

/** The coarsest level that has a point for each pixel of a view, or the finest there is. */
export function levelFor(levels: Series[], from: number, to: number, px: number): Series {
  for (let n = levels.length - 1; n > 0; n--) {
    const level = levels[n]!;
    if (indexAt(level, to) - indexAt(level, from) >= px) return level;
  }
  return levels[0]!;
}

/** Highest value of a curve within a view, NaN where there is none. */
export function highest(levels: Series[], name: SignalName, from: number, to: number): number {
  const series = levelFor(levels, from, to, 400);
  let peak = NaN;
  for (let i = indexAt(series, from); i < series.length && series.start[i]! <= to; i++) {
    const value = series.curves[name].max[i]!;
    if (!(peak >= value)) peak = Number.isNaN(value) ? peak : value;
  }
  return peak;
}

/** Spans without a picture that are longer than the pictures around them explain. */
export function gaps(series: Series, frameMs: number, least = 2000): { from: number; to: number }[] {
  const found: { from: number; to: number }[] = [];
  const long = Math.max(least, frameMs * 12);
  for (let i = 0; i < series.length; i++) {
    const inside = series.end[i]! - series.start[i]! - (series.frames[i]! - 1) * frameMs;
    if (series.frames[i]! > 1 && inside > long && inside > 0.5 * (series.end[i]! - series.start[i]!))
      found.push({ from: series.start[i]!, to: series.end[i]! });
    if (i + 1 < series.length && series.start[i + 1]! - series.end[i]! > long)
      found.push({ from: series.end[i]!, to: series.start[i + 1]! });
  }
  return found;
}
