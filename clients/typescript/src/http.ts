import { HttpError, NetworkError, ParseError, RetryExhaustedError } from "./errors.js";
import type { CallOptions, ClientOptions, KeyedOptions, Page } from "./types.js";

/** Longest back-off between two attempts. */
const BACKOFF_MAX_MS = 10_000;
/** Longest `Retry-After` that is waited for. */
const RETRY_AFTER_MAX_MS = 60_000;
const TIMEOUT_MS = 60_000;
const TRANSIENT = [408, 429, 502, 503, 504];

/** A request before it is sent. */
export interface Request {
  method: string;
  path: string;
  query?: object | undefined;
  json?: unknown;
  body?: string | undefined;
  headers?: Record<string, string | undefined> | undefined;
  /** Changes nothing, so that it may be repeated; of GET this is known. */
  safe?: boolean;
  /** Sent once although it is safe: the caller sees to repetition. */
  once?: boolean;
  /** Carries an idempotency key, so that it may be repeated. */
  keyed?: boolean;
  /** Answers when its work is done: without a timeout unless one is given. */
  works?: boolean;
  /** Time that the server was asked to wait for. */
  waitMs?: number | null | undefined;
  /** Statuses besides 2xx that are no failure. */
  accepts?: number[];
  /** Sends it with a body of its own. */
  send?: Send;
}

/** Sends one request, as `fetch` does. */
export type Send = (url: string, init: RequestInit) => Promise<Response>;

/** The text of an answer as it comes. */
export interface TextStream {
  response: Response;
  chunks: AsyncGenerator<string, void, undefined>;
}

/** Sends requests: addresses, headers, timeouts, retries, failures. */
export class Http {
  readonly #base: string;
  readonly #options: ClientOptions;

  constructor(baseUrl: string, options: ClientOptions) {
    this.#base = checkedBase(baseUrl);
    this.#options = options;
  }

  get maxRetries(): number {
    return this.#options.maxRetries ?? 3;
  }

  /** The `fetch` that was given. */
  get ownFetch(): typeof fetch | undefined {
    return this.#options.fetch;
  }

  url(path: string, query: object = {}): string {
    const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
    const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
    return `${this.#base}${path}${text && `?${text}`}`;
  }

  async headers(): Promise<Record<string, string>> {
    const { apiKey, headers } = this.#options;
    const key = typeof apiKey === "function" ? await apiKey() : apiKey;
    return { ...headers, ...(key ? { "x-api-key": key } : {}) };
  }

  async json<T>(request: Request, options?: KeyedOptions): Promise<T> {
    return this.send(request, options, async (response, what) => readJson<T>(response, what));
  }

  /** As `json`, with the cursor that the `Link` header names. */
  async page<T extends object>(request: Request, options?: CallOptions): Promise<Page<T>> {
    return this.send(request, options, async (response, what) => {
      const body = await readJson<T>(response, what);
      const next = /[?&]cursor=([^&>]+)[^>]*>; rel="next"/.exec(response.headers.get("link") ?? "")?.[1];
      if (next) Object.defineProperty(body, "nextCursor", { value: decodeURIComponent(next) });
      return body;
    });
  }

  /** The answer itself, whose body is still to be read. */
  async raw(request: Request, options?: CallOptions): Promise<Response> {
    return this.send(request, options, undefined);
  }

  /** Opens an answer that is read piece by piece; a silence of `idleMs` while a piece is waited for is a failure. */
  async open(request: Request, options: CallOptions = {}, idleMs = options.timeoutMs ?? TIMEOUT_MS): Promise<TextStream> {
    const { signal, done, abort } = linked(options.signal);
    try {
      const response = await this.raw(request, { ...options, signal });
      return { response, chunks: chunksOf(response, name(request, this.url(request.path)), options.signal, idleMs, abort, done) };
    } catch (error) {
      done();
      throw error;
    }
  }

  /** Time before the attempt after `failures` of them: random below the growing back-off, never before the server said. */
  backoff(failures: number, error?: unknown): number {
    const base = this.#options.retryBaseDelayMs ?? 250;
    const after = error instanceof HttpError ? (error.retryAfterMs ?? 0) : 0;
    return after + Math.random() * Math.min(BACKOFF_MAX_MS, base * 2 ** (failures - 1));
  }

  async send<T>(
    request: Request,
    options: KeyedOptions = {},
    read: ((response: Response, what: string) => Promise<T>) | undefined,
  ): Promise<T> {
    const key: Record<string, string> = request.keyed ? { "idempotency-key": options.idempotencyKey ?? randomKey() } : {};
    const isRepeatable = request.keyed || request.safe || request.method === "GET";
    const again = isRepeatable && !request.once ? this.maxRetries : 0;
    for (let attempt = 1; ; attempt++) {
      options.signal?.throwIfAborted();
      try {
        return await this.#attempt(request, options, key, read);
      } catch (error) {
        if (!isTransient(error) || (error instanceof HttpError && (error.retryAfterMs ?? 0) > RETRY_AFTER_MAX_MS)) throw error;
        if (attempt > again) throw attempt > 1 ? new RetryExhaustedError(attempt, error) : error;
        await sleep(this.backoff(attempt, error), options.signal);
      }
    }
  }

  async #attempt<T>(
    request: Request,
    options: KeyedOptions,
    key: Record<string, string>,
    read: ((response: Response, what: string) => Promise<T>) | undefined,
  ): Promise<T> {
    const url = this.url(request.path, request.query);
    const what = name(request, url);
    const given = options.timeoutMs ?? this.#options.timeoutMs ?? (request.works ? undefined : TIMEOUT_MS);
    const timeoutMs = given === undefined ? undefined : given + (request.waitMs ?? 0);
    const { signal, done, abort } = linked(options.signal);
    let isLate = false;
    const timer = timeoutMs === undefined ? undefined : setTimeout(() => abort((isLate = true)), timeoutMs);
    try {
      const headers = { ...(await this.headers()), ...key, ...defined(request.headers) };
      if (request.json !== undefined) headers["content-type"] = "application/json";
      // Where keys are off, a server takes no POST that a form of another site could have sent.
      if (request.method === "POST") headers["x-requested-with"] = "sightline-client";
      const body = request.json === undefined ? request.body : JSON.stringify(request.json);
      const send: Send = request.send ?? this.#options.fetch ?? globalThis.fetch;
      const response = await send(url, { method: request.method, headers, signal, ...(body === undefined ? {} : { body }) });
      if (!response.ok && !request.accepts?.includes(response.status)) {
        throw new HttpError(what, response, await response.text());
      }
      // The body of an answer that is not read here stays tied to the caller's signal.
      if (!read) return response as T;
      const result = await read(response, what);
      done();
      return result;
    } catch (error) {
      done();
      throw failure(error, what, options.signal, isLate ? `no answer within ${timeoutMs} ms` : undefined);
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Returns true where the same request may succeed later. */
export function isTransient(error: unknown): error is HttpError | NetworkError {
  return error instanceof NetworkError || (error instanceof HttpError && TRANSIENT.includes(error.status));
}

/** The error that a caller is told of. */
export function failure(error: unknown, what: string, signal: AbortSignal | undefined, because?: string): unknown {
  if (signal?.aborted) return signal.reason;
  if (error instanceof HttpError || error instanceof ParseError) return error;
  return new NetworkError(`${what}: ${because ?? reason(error)}`, { cause: error });
}

/** Waits, unless `signal` is aborted first. */
export async function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const stop = () => (clearTimeout(timer), reject(signal?.reason));
    const timer = setTimeout(() => (signal?.removeEventListener("abort", stop), resolve()), ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** A signal that is aborted with `parent` until `done`, or by `abort`. */
export function linked(parent: AbortSignal | undefined) {
  const controller = new AbortController();
  const abort = (reason?: unknown) => controller.abort(parent?.aborted ? parent.reason : reason);
  const follow = () => abort();
  if (parent?.aborted) abort();
  parent?.addEventListener("abort", follow, { once: true });
  return { signal: controller.signal, abort, done: () => parent?.removeEventListener("abort", follow) };
}

/** A key that no other request has. */
export function randomKey(): string {
  const part = () => Math.random().toString(36).slice(2);
  return globalThis.crypto?.randomUUID?.() ?? `${Date.now().toString(36)}-${part()}${part()}`;
}

/** Returns the name of a request in an error message; the query may hold a ticket and is left out. */
function name(request: Request, url: string): string {
  return `${request.method} ${url.split("?")[0]}`;
}

function defined(headers: Record<string, string | undefined> = {}): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== undefined)) as Record<string, string>;
}

async function readJson<T>(response: Response, what: string): Promise<T> {
  const text = await response.text();
  try {
    return JSON.parse(text) as T;
  } catch (cause) {
    throw notJson(response, what, cause);
  }
}

/** Makes the error of an answer that is no JSON. */
export function notJson(response: Response, what: string, cause?: unknown): ParseError {
  const type = response.headers.get("content-type") ?? "nothing";
  return new ParseError(`${what}: the answer is not JSON but ${type}: check the base URL`, { cause });
}

async function* chunksOf(
  response: Response,
  what: string,
  signal: AbortSignal | undefined,
  idleMs: number,
  abort: (reason?: unknown) => void,
  done: () => void,
): AsyncGenerator<string, void, undefined> {
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  let isIdle = false;
  try {
    while (reader) {
      const timer = setTimeout(() => abort((isIdle = true)), idleMs);
      const { value, done: ended } = await reader.read().finally(() => clearTimeout(timer));
      if (ended) return;
      yield decoder.decode(value, { stream: true });
    }
  } catch (error) {
    throw failure(error, what, signal, isIdle ? `nothing came for ${idleMs} ms` : undefined);
  } finally {
    done();
    abort();
  }
}

function reason(error: unknown): string {
  const { message, cause } = error as { message?: string; cause?: { code?: string; message?: string } };
  if (cause) return cause.message || cause.code || String(message);
  const isPage = typeof location === "object" && typeof document === "object";
  const hint = ": is the server up, the base URL right, and this page's origin in SERVICE_CORS_ALLOWED_ORIGINS?";
  return `${message ?? error}${isPage ? hint : ""}`;
}

/** The base URL without its end, which may be `/` or `/v1/`; in a page it may be a path. */
function checkedBase(baseUrl: string): string {
  if (!/^https?:\/\//.test(baseUrl) && !(/^(\/|$)/.test(baseUrl) && typeof location === "object")) {
    throw new TypeError(`the base URL is ${JSON.stringify(baseUrl)}: it must begin with http:// or https://`);
  }
  return baseUrl.replace(/\/+$/, "").replace(/\/v1$/, "");
}
