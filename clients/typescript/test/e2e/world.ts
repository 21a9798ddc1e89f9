/** Environment of an end-to-end test, in Node.js and in a page alike. */
import type { ClientOptions, SightlineClient } from "../../src/index.js";

/** Addresses and keys of the servers. */
export interface Places {
  /** A server with models and a database; `prefix` is a proxy before it, `old` one that lacks routes, `cutting` one that cuts. */
  main: string;
  prefix: string;
  old: string;
  cutting: string;
  /** A server that takes three requests a second. */
  limited: string;
  /** A server that asks one model at a time. */
  narrow: string;
  /** A server without keys. */
  open: string;
  /** A server that is killed. */
  mortal: string;
  /** A server with a run of many events, and how many. */
  crowded: string;
  crowd: number;
  /** The key of each of them. */
  key: string;
}

export interface World extends Places {
  client(place?: keyof Places, options?: ClientOptions): SightlineClient;
  clip(): Promise<Blob>;
  /** An SDP offer of video. */
  offer(): Promise<string>;
  /** Does something to the servers: `kill`, `start`, `hold`, `release`, `cut`. */
  control(what: string, ...details: number[]): Promise<void>;
}

/** Bytes of `length` of the heap that a test has used, where the platform tells. */
export function heapBytes(): number {
  const page = performance as { memory?: { usedJSHeapSize: number } };
  return page.memory?.usedJSHeapSize ?? process.memoryUsage().heapUsed;
}

export function equal(found: unknown, expected: unknown, what = ""): void {
  const [a, b] = [found, expected].map((value) => JSON.stringify(value));
  if (a !== b) throw new Error(`${what} is ${a}, expected ${b}`);
}

export function holds(condition: unknown, what: string): asserts condition {
  if (!condition) throw new Error(`it does not hold that ${what}`);
}

/** Returns the failure of a call, as a text. */
export async function said(promise: Promise<unknown>): Promise<string> {
  return promise.then((value) => `success: ${JSON.stringify(value)}`, String);
}

/** An event of `kind`, as soon as it comes. */
export async function first<T extends { kind: unknown }>(events: AsyncIterable<T>, kind: string): Promise<T> {
  for await (const event of events) if (event.kind === kind) return event;
  throw new Error(`no ${kind} came`);
}
