/** Episodes of activity: what is known of each, where they lie on the axis, and what they touch. */

import type { Schemas } from 'sightline-client';
import { IntervalIndex } from './intervals';

export type Episode = Schemas.Episode;
export type Region = Schemas.Region;

/** Episodes with `added` among them, by their start; what has ended is not opened again. */
export function joined(episodes: readonly Episode[], added: readonly Episode[]): Episode[] {
  const byStart = new Map(episodes.map((episode) => [episode.start_frame, episode]));
  for (const episode of added) {
    const before = byStart.get(episode.start_frame);
    if (!before || before.end_frame === null || episode.end_frame !== null) byStart.set(episode.start_frame, episode);
  }
  return [...byStart.values()].sort((a, b) => a.start_frame - b.start_frame);
}

/** Finds episodes; one that lasts has no end. */
export const episodeIndex = (episodes: readonly Episode[]): IntervalIndex<Episode> =>
  new IntervalIndex(episodes, (one) => one.start_pts_ms, (one) => one.end_pts_ms ?? Infinity);

/** End of an episode on the axis; one that lasts goes to `edge`. */
export const episodeEnd = (episode: Episode, frameMs: number, edge: number): number =>
  episode.end_pts_ms === null ? Math.max(edge, episode.start_pts_ms + frameMs) : episode.end_pts_ms + frameMs;

/** The moment of its peak, as well as its ends tell. */
export function peakOf({ start_frame, end_frame, start_pts_ms, end_pts_ms, peak_frame }: Episode): number {
  const frames = (end_frame ?? start_frame) - start_frame;
  if (frames <= 0) return start_pts_ms;
  const share = Math.min(1, Math.max(0, (peak_frame - start_frame) / frames));
  return start_pts_ms + share * (end_pts_ms! - start_pts_ms);
}
