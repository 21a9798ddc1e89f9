/** The caller's runs, the newest first: loaded whole, then kept up to date by asking for the newest and for those under way. */
import { client, type Run } from '../api/client';
import { connection } from '../api/connection.svelte';
import { isLive } from './words';

const PAGE = 200;
/** Past these the list says that it is cut. */
export const RUNS_MAX = 5000;
const BUSY_MS = 2000;
const QUIET_MS = 15_000;

export class RunList {
  runs = $state.raw<Run[]>([]);
  /** Nothing is loaded yet. */
  first = $state(true);
  /** There are more than are loaded. */
  cut = $state(false);
  error = $state.raw<unknown>();
  /** Time of the server's last answer with the list, epoch milliseconds. */
  at = $state(0);
  #hidden = new Set<string>();
  /** Key whose runs they are. */
  #key: string | null | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #abort = new AbortController();

  /** Loads all, and goes on until `stop`. Runs of another key are forgotten, also while no key is accepted. */
  async start(): Promise<void> {
    this.stop();
    if (this.#key !== connection.key) {
      [this.#key, this.runs, this.first] = [connection.key, [], true];
      this.#hidden.clear();
    }
    if (connection.refused) return;
    const { signal } = (this.#abort = new AbortController());
    document.addEventListener('visibilitychange', () => { if (!document.hidden && !this.first) void this.refresh(); }, { signal });
    try {
      let cursor: string | undefined;
      const all: Run[] = [];
      do {
        const page: Run[] & { nextCursor?: string } = await client.listRuns({ limit: PAGE, include: 'summary', cursor }, { signal });
        all.push(...page);
        cursor = page.nextCursor;
        this.#heard();
        if (this.first || all.length > this.runs.length) this.#show([...all]);
      } while (cursor !== undefined && all.length < RUNS_MAX);
      this.#show(all);
      this.cut = cursor !== undefined;
    } catch (error) {
      if (signal.aborted) return;
      this.#failed(error);
    }
    this.#again(signal);
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#abort.abort();
  }

  /** Looks at once for what is new. */
  async refresh(signal: AbortSignal = this.#abort.signal): Promise<void> {
    clearTimeout(this.#timer);
    try {
      const newest: Run[] & { nextCursor?: string } = await client.listRuns({ limit: PAGE, include: 'summary' }, { signal });
      const known = new Map(newest.map((run) => [run.run_id, run]));
      const last = newest[newest.length - 1]?.created_at ?? '';
      const older = newest.nextCursor === undefined ? [] : this.runs.filter((run) => run.created_at <= last && !known.has(run.run_id));
      if (older.some((run) => run.active_job || isLive(run))) {
        for (const run of await client.listRuns({ status: 'processing', limit: PAGE, include: 'summary' }, { signal })) known.set(run.run_id, run);
      }
      this.#show([...newest, ...older.map((run) => known.get(run.run_id) ?? run)]);
      this.#heard();
    } catch (error) {
      if (signal.aborted) return;
      this.#failed(error);
    }
    this.#again(signal);
  }

  /** Takes a run out of the list before the server has. */
  hide(id: string): void {
    this.#hidden.add(id);
    this.#show(this.runs);
  }

  /** Puts it back. */
  unhide(run: Run): void {
    this.#hidden.delete(run.run_id);
    this.put(run);
    void this.refresh();
  }

  /** Puts a run at its place in the list before the server is asked. */
  put(run: Run): void {
    const others = this.runs.filter((other) => other.run_id !== run.run_id);
    this.#show([...others, run].sort((a, b) => b.created_at.localeCompare(a.created_at)));
  }

  #show(runs: Run[]): void {
    this.runs = runs.filter((run) => !this.#hidden.has(run.run_id));
    this.first = false;
  }

  #heard(): void {
    this.at = Date.now();
    this.error = undefined;
  }

  #failed(error: unknown): void {
    if (connection.online && !connection.refused) this.error = error;
  }

  #again(signal: AbortSignal): void {
    if (signal.aborted) return;
    clearTimeout(this.#timer);
    const busy = this.runs.some((run) => run.active_job || isLive(run));
    this.#timer = setTimeout(() => {
      if (document.hidden || !connection.online || connection.refused) this.#again(signal);
      else void this.refresh(signal);
    }, busy ? BUSY_MS : QUIET_MS);
  }
}
