/** State of the server in the top bar: the number of live runs, and any trouble with the machine. */
import { client } from '../api/client';
import { connection } from '../api/connection.svelte';
import { every } from '../api/every';
import { isLive } from '../runs/words';

const EVERY_MS = 10_000;
/** The machine is asked every so many times. */
const MACHINE_EVERY = 6;

const state = $state({ live: 0, trouble: false });

export const activity = {
  get live(): number { return state.live; },
  get trouble(): boolean { return state.trouble; },
};

/** Looks now, after each return of the server, and while the page is in view. Call it while a component is made. */
export function watchActivity(): void {
  let turn = 0;
  async function look(): Promise<void> {
    const machine = turn++ % MACHINE_EVERY === 0;
    try {
      state.live = (await client.listRuns({ status: 'processing', limit: 1000 })).filter(isLive).length;
      if (!machine) return;
      const [ready, models] = await Promise.all([client.ready(), client.listModels()]);
      state.trouble = ready.status !== 'ready' || models.providers.some((provider) => !provider.reachable);
    } catch {
      // The strip and the gate say what is wrong.
    }
  }
  $effect(() => {
    void connection.epoch;
    turn = 0;
    if (!connection.refused) void look();
    return every(EVERY_MS, look);
  });
}
