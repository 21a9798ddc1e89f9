/** Something that is loaded from the server: what there is stays until the new is there. */
import { HttpError } from 'sightline-client';
import { causeOf } from './client';
import { connection } from './connection.svelte';
import { every } from './every';

/** Longer than this and the page shows the skeleton of what will be there. */
const SLOW_MS = 150;

export class Resource<T> {
  data = $state.raw<T>();
  error = $state.raw<unknown>();
  /** Nothing is there yet, and it takes its time. */
  slow = $state(false);
  loading = $state(false);
  /** Time at which `data` came, epoch milliseconds. */
  at = $state(0);

  #fetch: (signal: AbortSignal) => Promise<T>;
  #abort: AbortController | null = null;

  constructor(fetch: (signal: AbortSignal) => Promise<T>) {
    this.#fetch = fetch;
  }

  /** Loads anew; a load that is under way is given up. */
  async load(): Promise<void> {
    this.#abort?.abort();
    const abort = (this.#abort = new AbortController());
    const timer = setTimeout(() => (this.slow = this.data === undefined), SLOW_MS);
    this.loading = true;
    try {
      const data = await this.#fetch(abort.signal);
      if (abort.signal.aborted) return;
      this.data = data;
      this.at = Date.now();
      this.error = undefined;
    } catch (error) {
      if (abort.signal.aborted) return;
      // While the server is away the strip says so, and what there is stays.
      if (causeOf(error) instanceof HttpError || connection.online) this.error = error;
    } finally {
      clearTimeout(timer);
      if (this.#abort === abort) {
        this.slow = false;
        this.loading = false;
      }
    }
  }

  /** Gives up a load that is under way. */
  stop(): void {
    this.#abort?.abort();
  }
}

/** Loads now, after each return of the server and change of the key, and every `everyMs` while the page is in view. Call it while a component is made. */
export function keep<T>(resource: Resource<T>, everyMs: () => number | null = () => null): void {
  $effect(() => {
    void connection.epoch;
    if (!connection.refused) void resource.load();
    return () => resource.stop();
  });
  $effect(() => {
    const ms = everyMs();
    if (ms !== null) return every(ms, async () => { if (!resource.loading) await resource.load(); });
  });
}
