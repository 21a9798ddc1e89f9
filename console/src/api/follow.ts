/** Events of a run as they come, those of a moment at once. */
import type { RunEvent } from 'sightline-client';
import { client } from './client';
import { heard } from './connection.svelte';

/** Kinds of events that hold what a model said. */
export const DESCRIBED: ReadonlySet<string> = new Set(['vlm', 'vlm_tiered', 'clip_vlm', 'clip_vlm_tiered']);
/** Events that come within this time are taken together. */
const TOGETHER_MS = 50;

/**
 * Calls `take` with the events of `runId` after `after`, and comes back by itself where it left off, however long the server
 * is away. Ends when the server says that there is no more.
 */
export async function follow(runId: string, after: number, signal: AbortSignal, take: (events: RunEvent[]) => void): Promise<void> {
  let pending: RunEvent[] = [];
  let timer: ReturnType<typeof setTimeout> | undefined;
  const flush = (): void => {
    timer = undefined;
    const events = pending;
    pending = [];
    if (events.length > 0 && !signal.aborted) take(events);
  };
  const onConnection = (state: 'open' | 'lost'): void => { if (state === 'open') heard(); };
  try {
    for await (const event of client.subscribeEvents({ runId, after, signal, maxOutageMs: Infinity, onConnection })) {
      pending.push(event);
      timer ??= setTimeout(flush, TOGETHER_MS);
    }
  } finally {
    clearTimeout(timer);
    flush();
  }
}
