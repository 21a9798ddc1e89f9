/** Connection to the server: its reachability and the acceptance of the key, as every request finds them. */
import { build, type Query } from '../app/address';
import { base } from '../app/router.svelte';

const PLACE = 'sightline.key';
const WAITS_S = [1, 2, 4, 8, 10];
/** A server that is tried and has not answered by then has not. */
const ANSWER_MS = 5000;

/** Does `act` with the tab's storage and returns its result; `null` where the browser forbids it: the key then goes with the page. */
function tab<T>(act: (storage: Storage) => T): T | null {
  try {
    return act(sessionStorage);
  } catch {
    return null;
  }
}

const state = $state({
  key: tab((storage) => storage.getItem(PLACE)),
  /** The key that there is, or that there is none, was refused. */
  refused: false,
  /** Seconds until the server is tried again; `null` while it answers. */
  retryIn: null as number | null,
  /** Counts the returns of the server and changes of the key: what depends on it loads anew. */
  epoch: 0,
});

export const connection = {
  get key(): string | null { return state.key; },
  get refused(): boolean { return state.refused; },
  get online(): boolean { return state.retryIn === null; },
  get retryIn(): number | null { return state.retryIn; },
  get epoch(): number { return state.epoch; },
};

/** The URL of `path` (`v1/runs`) with `query`, without a host. */
export function apiUrl(path: string, query: Query = {}): string {
  return build(base, path, query);
}

/** The key, for requests that the client library does not send. */
export function keyHeader(): Record<string, string> {
  return state.key === null ? {} : { 'x-api-key': state.key };
}

/** Deletes what is at `path` while the page goes away: all that a page then may send. */
export function deleteLeaving(path: string): void {
  fetch(apiUrl(path), { method: 'DELETE', headers: keyHeader(), keepalive: true }).catch(() => undefined);
}

/** Key that the address brings after `#key=`, for the gate to offer; the address is cleared of it at once. */
export const brought = new URLSearchParams(location.hash.slice(1)).get('key') ?? '';
if (brought !== '') history.replaceState(history.state, '', location.pathname + location.search);

/** Takes a key for this tab, until it is closed. */
export function enterKey(key: string): void {
  tab((storage) => storage.setItem(PLACE, key));
  state.key = key;
  state.refused = false;
  state.epoch += 1;
}

export function forgetKey(): void {
  tab((storage) => storage.removeItem(PLACE));
  state.key = null;
  state.refused = true;
  state.epoch += 1;
}

/** Clocks that differ by less are taken as one: a date of HTTP has whole seconds. */
const CLOCK_MS = 2000;
/** Milliseconds that the server's clock is ahead of this one. */
let ahead = 0;

/** The time on the server's clock, for ages of what it dates. */
export const serverNow = (): number => Date.now() + ahead;

function readClock(response: Response, asked: number): void {
  // What the browser has kept tells of an earlier time.
  if (response.headers.get('cache-control') !== 'no-store') return;
  const [told, now] = [Date.parse(response.headers.get('date') ?? ''), Date.now()];
  if (!Number.isNaN(told)) ahead = told < asked - CLOCK_MS ? told - asked : told > now + CLOCK_MS ? told - now : 0;
}

/** `fetch`, of which the page learns whether the server answers and takes the key, and what time it is there. */
export async function observedFetch(input: RequestInfo | URL, init?: RequestInit): Promise<Response> {
  const { key } = state;
  const asked = Date.now();
  try {
    const response = await fetch(input, init);
    readClock(response, asked);
    // Answers of a proxy whose server does not answer it.
    if (response.status === 502 || response.status === 504) void lost();
    else heard();
    if (response.status === 401 && key === state.key) state.refused = true;
    return response;
  } catch (error) {
    if (!(error instanceof DOMException && error.name === 'AbortError')) void lost();
    throw error;
  }
}

/** Notes that something of the server has arrived: an answer, an event, a heartbeat. */
export function heard(): void {
  if (state.retryIn === null) return;
  trying = null;
  state.retryIn = null;
  hurry();
  state.epoch += 1;
}

/** The loop that tries, by its name: another one may have begun while it waited for an answer. */
let trying: symbol | null = null;
let hurry: () => void = () => {};

/** Tries until the server answers: after 1, 2, 4, 8 and then every 10 seconds, or when asked to hurry. */
async function lost(): Promise<void> {
  if (trying) return;
  const mine = (trying = Symbol());
  for (let attempt = 0; trying === mine; attempt += 1) {
    await counted(WAITS_S[Math.min(attempt, WAITS_S.length - 1)] ?? 10);
    try {
      if ((await fetch(`${base}v1/health`, { cache: 'no-store', signal: AbortSignal.timeout(ANSWER_MS) })).ok) heard();
    } catch {
      // Still away.
    }
  }
}

/** Waits so many seconds, of which the page shows what is left. */
function counted(seconds: number): Promise<void> {
  return new Promise((resolve) => {
    state.retryIn = seconds;
    const timer = setInterval(() => {
      if ((state.retryIn ?? 0) <= 1) hurry();
      else state.retryIn = (state.retryIn ?? 0) - 1;
    }, 1000);
    hurry = () => {
      clearInterval(timer);
      resolve();
    };
  });
}

/** Tries the server at once. */
export function tryNow(): void {
  hurry();
}
