import type { ErrorDetail, ErrorResponse as Envelope } from "./schema.js";

/** Base of every error of this client. What a caller's `AbortSignal` ends throws that signal's reason instead. */
export class SightlineError extends Error {
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** An answer with a status that is no success. */
export class HttpError extends SightlineError {
  /** Status of the answer. */
  readonly status: number;
  /** Kind of failure, such as `not_found`; undefined where the answer has no envelope. */
  readonly code: string | undefined;
  /** Id of the request, as in the server's log. */
  readonly requestId: string | undefined;
  /** The server's own words. */
  readonly reason: string;
  /** Fields that were refused. */
  readonly details: readonly ErrorDetail[];
  /** Wait that the server asked for. */
  readonly retryAfterMs: number | undefined;

  constructor(what: string, response: Response, body: string) {
    const { error } = parsed(body) ?? {};
    const requestId = error?.request_id ?? response.headers.get("x-request-id") ?? undefined;
    const reason = error?.message ?? unexplained(response, body, requestId);
    const advice = response.status === 401 ? "; `apiKey` must be one of the server's SERVICE_API_KEYS, without the name before the colon" : "";
    const text = `${error ? `${error.code}: ` : ""}${reason}${advice}`;
    super(`${what}: ${response.status} ${text}${requestId ? ` (${requestId})` : ""}`);
    this.reason = reason;
    this.status = response.status;
    this.code = error?.code;
    this.requestId = requestId;
    this.details = error?.details ?? [];
    this.retryAfterMs = retryAfter(response.headers.get("retry-after"));
  }
}

/** No answer: the server cannot be reached, the connection broke, or the timeout passed. */
export class NetworkError extends SightlineError {}

/** The last failure of a request that was tried as often as allowed; `cause` is that failure. */
export class RetryExhaustedError extends SightlineError {
  /** Number of attempts. */
  readonly attempts: number;
  declare readonly cause: HttpError | NetworkError;

  constructor(attempts: number, cause: HttpError | NetworkError) {
    super(`${cause.message}, after ${attempts} attempts`, { cause });
    this.attempts = attempts;
  }
}

/** A file that was not taken; `cause` says why. */
export class UploadError extends SightlineError {}

/** An answer that is not what the API says. */
export class ParseError extends SightlineError {}

function parsed(body: string): Envelope | undefined {
  try {
    const value: Envelope = JSON.parse(body);
    return typeof value?.error?.code === "string" ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Says what an answer without an envelope means. */
function unexplained(response: Response, body: string, requestId: string | undefined): string {
  const text = body.trim();
  if (text && response.headers.get("content-type")?.startsWith("text/plain")) return text.slice(0, 500);
  if (response.status !== 404 && response.status !== 405) return response.statusText;
  return requestId
    ? "this server has no such route: it is older than this client, or the base URL has a wrong path"
    : "no Sightline server answers here: check the base URL, and the path prefix where a proxy has one";
}

/** Reads `Retry-After`, seconds or a date, as milliseconds from now. */
function retryAfter(value: string | null): number | undefined {
  if (!value) return undefined;
  const ms = /^\d+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - Date.now();
  return Number.isNaN(ms) ? undefined : Math.max(0, ms);
}
