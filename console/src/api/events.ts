/** Events as they come, read by `fetch`: `EventSource` cannot send the key. */
import { connection, heard } from './connection.svelte';
import { ApiError, ask } from './http';

export interface TimelineEvent {
  seq: number;
  pts_ms: number;
  kind: string;
  payload: Record<string, unknown>;
  /** Of a stream over all runs. */
  run_id?: string;
}

/** Longest silence: the server sends a comment after 15 s of it. */
const SILENCE_MS = 40_000;
const WAIT_MS = 2000;

/**
 * Calls `take` with the events of `path` (`v1/runs/{id}/events/stream`) after `after`, batched per chunk received, and comes
 * back by itself where it left off. Ends when the server says that there is no more, with an `ApiError`, or by `signal`.
 */
export async function follow(path: string, after: number, signal: AbortSignal, take: (events: TimelineEvent[]) => void): Promise<void> {
  let last = after;
  while (!signal.aborted) {
    const silent = new AbortController();
    const either = AbortSignal.any([signal, silent.signal]);
    let timer = setTimeout(() => silent.abort(), SILENCE_MS);
    try {
      const response = await ask(path, { headers: { accept: 'text/event-stream', 'last-event-id': String(last) }, signal: either });
      if (response.status === 204 || !response.body) return;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        heard();
        clearTimeout(timer);
        timer = setTimeout(() => silent.abort(), SILENCE_MS);
        const blocks = (rest + value).split('\n\n');
        rest = blocks.pop() ?? '';
        const events = blocks.flatMap(parse);
        if (events.length === 0) continue;
        last = events[events.length - 1]?.seq ?? last;
        take(events);
      }
    } catch (error) {
      if (error instanceof ApiError && error.status < 500 && error.status !== 429) throw error;
    } finally {
      clearTimeout(timer);
    }
    await pause(connection.online ? WAIT_MS : WAIT_MS * 2, signal);
  }
}

/** The event of one block of the stream; none of a comment. */
export function parse(block: string): TimelineEvent[] {
  const data = block.split('\n').filter((line) => line.startsWith('data:')).map((line) => line.slice(5).trimStart());
  return data.length === 0 ? [] : [JSON.parse(data.join('\n')) as TimelineEvent];
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}
