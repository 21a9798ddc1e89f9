/** Hits of a search in the order and groups that the page shows them in. */
import type { Run, Schemas } from '../api/client';

export type Hit = Schemas.SearchHit;

export interface Group {
  /** Of a run: its id; of a day: its key. */
  key: string;
  hits: Hit[];
}

/** Pieces of `text`, those that `query` is found in marked. */
export function marked(text: string, query: string): { text: string; hit: boolean }[] {
  const needle = query.trim();
  if (needle === '') return [{ text, hit: false }];
  const pattern = new RegExp(`(${needle.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')})`, 'giu');
  return text.split(pattern).map((piece, at) => ({ text: piece, hit: at % 2 === 1 })).filter((piece) => piece.text !== '');
}

/** Hits by their run, runs as they are given, each in the order of its media time. */
export function byRun(hits: readonly Hit[], runs: readonly Pick<Run, 'run_id'>[]): Group[] {
  const groups = new Map<string, Hit[]>();
  for (const hit of hits) groups.set(hit.run_id, [...(groups.get(hit.run_id) ?? []), hit]);
  const place = new Map(runs.map((run, at) => [run.run_id, at]));
  return [...groups]
    .map(([key, found]) => ({ key, hits: found.sort((a, b) => (a.pts_ms ?? 0) - (b.pts_ms ?? 0) || a.seq - b.seq) }))
    .sort((a, b) => (place.get(a.key) ?? runs.length) - (place.get(b.key) ?? runs.length));
}

/** Returns the wall time of a hit: by its stream's start where that is known, else by its run's beginning; `-Infinity` of an unknown run. */
export function wallOf(hit: Hit, run: Pick<Run, 'created_at' | 'wall_start_ms'> | undefined): number {
  if (!run) return -Infinity;
  const start = Object.values(run.wall_start_ms).find((at) => at !== null);
  return (start ?? Date.parse(run.created_at)) + (hit.pts_ms ?? 0);
}

/** Hits by the day that `dayOf` gives, the newest first; last, under an empty key, those of unknown runs. */
export function byTime(hits: readonly Hit[], at: (hit: Hit) => number, dayOf: (at: number) => string): Group[] {
  const groups: Group[] = [];
  for (const hit of [...hits].sort((a, b) => at(b) - at(a))) {
    const key = at(hit) === -Infinity ? '' : dayOf(at(hit));
    const last = groups[groups.length - 1];
    if (last?.key === key) last.hits.push(hit);
    else groups.push({ key, hits: [hit] });
  }
  return groups;
}
