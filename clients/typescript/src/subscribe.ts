import { createParser } from "eventsource-parser";
import { HttpError, NetworkError, ParseError, RetryExhaustedError } from "./errors.js";
import type { RunEvent } from "./events.js";
import { type Http, isTransient, sleep } from "./http.js";
import type { Query } from "./types.js";

/** Longest silence of a stream, whose server says something every 15 s. */
const SILENCE_MAX_MS = 45_000;
const OUTAGE_MAX_MS = 300_000;

/** Filter of the events, and the position to start from. */
export interface SubscribeOptions extends Query<"followEvents"> {
  /** Ends the subscription, which then throws the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Longest time without a connection after which the subscription fails. Default 300,000. */
  maxOutageMs?: number | undefined;
  /** Told when a connection stands, and when it is lost and why. */
  onConnection?: ((state: "open" | "lost", error?: unknown) => void) | undefined;
}

/** Events of one run, or of all where `runId` is undefined, as they happen; connects again after the last of them. */
export async function* subscribe(
  http: Http,
  runId: string | undefined,
  { signal, maxOutageMs = OUTAGE_MAX_MS, onConnection, ...query }: SubscribeOptions,
): AsyncGenerator<RunEvent, void, undefined> {
  const path = runId === undefined ? "/v1/events/stream" : `/v1/runs/${encodeURIComponent(runId)}/events/stream`;
  let lastId: string | undefined;
  let heardAt: number | undefined;
  for (let failures = 0; ; ) {
    let lost: unknown;
    try {
      const headers = { accept: "text/event-stream", "last-event-id": lastId };
      const request = { method: "GET", path, query, headers, once: true };
      const stream = await http.open(request, { signal }, SILENCE_MAX_MS);
      if (stream.response.status === 204) return;
      if (!stream.response.headers.get("content-type")?.startsWith("text/event-stream")) {
        throw new ParseError(`GET ${http.url(path)}: the answer is no event stream: check the base URL`);
      }
      onConnection?.("open");
      const pending: { id?: string | undefined; data: string }[] = [];
      const parser = createParser({ onEvent: (message) => pending.push(message) });
      for await (const text of stream.chunks) {
        failures = 0;
        heardAt = Date.now();
        parser.feed(text);
        for (const message of pending.splice(0)) {
          const event = parsed(message.data, http.url(path));
          lastId = message.id ?? lastId;
          yield runId === undefined ? event : { ...event, run_id: runId };
        }
      }
    } catch (error) {
      if (!isTransient(error)) throw error;
      lost = error;
    }
    failures += 1;
    onConnection?.("lost", lost);
    const isOver = heardAt === undefined ? failures > http.maxRetries : Date.now() - heardAt > maxOutageMs;
    if (isOver) throw failures > 1 ? new RetryExhaustedError(failures, asFailure(lost, http.url(path))) : lost;
    // An end without a failure is the server's way to end a run's stream, or its shutdown: asking at once tells.
    if (lost || failures > 1) await sleep(http.backoff(failures, lost), signal);
  }
}

function asFailure(error: unknown, url: string): HttpError | NetworkError {
  if (error instanceof HttpError || error instanceof NetworkError) return error;
  return new NetworkError(`GET ${url}: the stream ends without an event`);
}

function parsed(data: string, url: string): RunEvent {
  try {
    return JSON.parse(data);
  } catch (cause) {
    throw new ParseError(`GET ${url}: an event is not JSON`, { cause });
  }
}
