/** The gate's decisions over recorded frames, as `gate::Gate` makes them: tries thresholds at once. */

import type { Series } from './pyramid';
import type { Reason, Thresholds } from './signals';

export interface Decision {
  reason: Reason;
  kept: boolean;
}

/** A decision by other limits, with the time of its frame. */
export interface Tried extends Decision {
  pts: number;
}

/** Hash distance that stands for a scene score of 1, where a frame has none. */
const HASH_BITS_OF_ONE = 36;

export function bitsBetween(a: bigint, b: bigint): number {
  let [rest, bits] = [a ^ b, 0];
  for (; rest > 0n; rest &= rest - 1n) bits++;
  return bits;
}

/**
 * Decides each frame of `points`, of which each is one frame. The first decision holds where it is
 * the run's first frame, else it only tells the second what lay before it.
 */
export function decide(points: Series, hashes: BigUint64Array, limits: Thresholds, firstFrame: number): Decision[] {
  const { scene, luma, flicker, ghosting, noise } = points.curves;
  const artifacts = [
    ['flicker_suspected', flicker.mean, limits.flicker],
    ['ghosting_suspected', ghosting.mean, limits.ghosting],
    ['noise_variance_spike', noise.mean, limits.noise],
  ] as const;
  return Array.from({ length: points.length }, (_, i): Decision => {
    const frame = points.firstFrame[i];
    if (frame === firstFrame) return { reason: 'initial_frame', kept: true };
    let score = scene.mean[i]!;
    if (Number.isNaN(score))
      score = i ? Math.min(1, bitsBetween(hashes[i - 1]!, hashes[i]!) / HASH_BITS_OF_ONE) : 0;
    if (near(score, limits.scene_cut)) return { reason: 'scene_cut', kept: true };
    if (limits.keepalive_frames && (frame! - firstFrame) % limits.keepalive_frames === 0)
      return { reason: 'periodic_keepalive', kept: true };
    if (i && near(Math.abs(luma.mean[i]! - luma.mean[i - 1]!), limits.luma_shift))
      return { reason: 'exposure_shift', kept: true };
    for (const [reason, values, limit] of artifacts)
      if (near(values[i]!, limit)) return { reason, kept: !(i && near(values[i - 1]!, limit)) };
    return { reason: 'no_trigger', kept: false };
  });
}

/** At or above; scores have six decimals, which 32-bit floats blur. */
const near = (value: number, limit: number): boolean => value >= limit - 5e-7;
