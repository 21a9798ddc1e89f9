/** Descriptions of models in a run, for the strips of the list: asked once a run in view, and again when there is more. */
import { SvelteMap } from 'svelte/reactivity';
import { client, type Run } from '../api/client';

/** Runs with more descriptions than these show none in the list. */
const WORDS_MAX = 400;
const AT_ONCE = 2;
const BUCKETS = 64;

const known = new SvelteMap<string, { count: number; buckets: number[] }>();
const waiting = new Map<string, Run>();
const underway = new Set<string>();

/** The buckets of `run` in which something was named, once they are known. */
export function seenIn(run: Run): number[] {
  return known.get(run.run_id)?.buckets ?? [];
}

/** Has them asked for. */
export function wantSeen(run: Run): void {
  const count = run.summary?.counts.descriptions ?? 0;
  if (count === 0 || count > WORDS_MAX || !run.summary?.length_ms || known.get(run.run_id)?.count === count || underway.has(run.run_id)) return;
  waiting.set(run.run_id, run);
  next();
}

function next(): void {
  const [run] = waiting.values();
  if (underway.size >= AT_ONCE || !run) return;
  waiting.delete(run.run_id);
  underway.add(run.run_id);
  const length = run.summary?.length_ms ?? 1;
  const count = run.summary?.counts.descriptions ?? 0;
  client.getInteractions(run.run_id, { limit: WORDS_MAX }).then(({ interactions }) => {
    const buckets = new Array<number>(BUCKETS).fill(0);
    for (const { start_pts_ms: start, end_pts_ms: end, object_label } of interactions) {
      if (start === null || !object_label) continue;
      const last = Math.min(BUCKETS - 1, Math.floor(((end ?? start) / length) * BUCKETS));
      for (let at = Math.floor((start / length) * BUCKETS); at <= last; at += 1) buckets[at] = (buckets[at] ?? 0) + 1;
    }
    known.set(run.run_id, { count, buckets });
  }, () => undefined).finally(() => {
    underway.delete(run.run_id);
    next();
  });
}
