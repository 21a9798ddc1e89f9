/** Stills of the runs that were found in: listed once a run, a few runs at a time. */
import { SvelteMap } from 'svelte/reactivity';
import { client, type Schemas } from '../api/client';
import { nearestOf } from '../timeline/order';

const AT_ONCE = 3;
const RUNS_MAX = 200;
const PAGE = 1000;
/** Of a run; hits behind them are shown with the last one. */
const STILLS_MAX = 20_000;

export class Stills {
  #lists = new SvelteMap<string, readonly Schemas.Keyframe[]>();
  #asked = new Set<string>();
  #waiting: string[] = [];
  #under = 0;
  #abort = new AbortController();

  /** Has the stills of `run` listed. */
  want(run: string): void {
    if (this.#asked.has(run) || this.#asked.size >= RUNS_MAX) return;
    this.#asked.add(run);
    this.#waiting.push(run);
    this.#next();
  }

  /** Lists no more: the page is left. */
  end(): void {
    this.#waiting = [];
    this.#abort.abort();
  }

  /** The stills of a run, as far as they are known. */
  of(run: string): readonly Schemas.Keyframe[] {
    return this.#lists.get(run) ?? [];
  }

  /** The still nearest to a moment, and so many around it. */
  around(run: string, pts: number, count: number): readonly Schemas.Keyframe[] {
    const all = this.of(run);
    const from = Math.max(0, Math.min(this.#nearest(all, pts) - Math.floor(count / 2), all.length - count));
    return all.slice(from, from + count);
  }

  at(run: string, pts: number | null): Schemas.Keyframe | undefined {
    const all = this.of(run);
    return all[this.#nearest(all, pts ?? 0)];
  }

  #nearest(all: readonly Schemas.Keyframe[], pts: number): number {
    return nearestOf(all.length, (i) => all[i]!.pts_ms, pts);
  }

  #next(): void {
    if (this.#under >= AT_ONCE) return;
    const run = this.#waiting.shift();
    if (run === undefined) return;
    this.#under += 1;
    this.#load(run).catch(() => this.#asked.delete(run)).finally(() => {
      this.#under -= 1;
      this.#next();
    });
  }

  async #load(run: string): Promise<void> {
    const all: Schemas.Keyframe[] = [];
    let cursor: string | undefined;
    do {
      const page: Schemas.RunKeyframes & { nextCursor?: string } = await client.getKeyframes(run, { limit: PAGE, cursor }, { signal: this.#abort.signal });
      all.push(...page.keyframes);
      cursor = page.nextCursor;
      this.#lists.set(run, all.toSorted((a, b) => a.pts_ms - b.pts_ms));
    } while (cursor !== undefined && all.length < STILLS_MAX);
  }
}
