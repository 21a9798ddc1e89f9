/** Polling. */
import { connection } from './connection.svelte';

/** Does `act` every `ms` while the page is in view and a server answers that takes the key, never twice at once; gives what ends it. */
export function every(ms: number, act: () => Promise<unknown>): () => void {
  let busy = false;
  const timer = setInterval(async () => {
    if (busy || document.hidden || !connection.online || connection.refused) return;
    busy = true;
    await act().finally(() => (busy = false));
  }, ms);
  return () => clearInterval(timer);
}
