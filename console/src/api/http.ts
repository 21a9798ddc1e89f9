/** Requests of the console that the client library has no method for. */
import { base } from '../app/router.svelte';
import { connection, observedFetch } from './connection.svelte';

/** An answer that is no success. */
export class ApiError extends Error {
  readonly status: number;
  readonly requestId: string | null;
  /** Seconds after which to ask again, where the server says so. */
  readonly retryAfter: number | null;

  constructor(response: Response, message: string, requestId: string | null) {
    super(message);
    this.name = 'ApiError';
    this.status = response.status;
    this.requestId = requestId;
    const after = Number(response.headers.get('retry-after'));
    this.retryAfter = after > 0 ? after : null;
  }
}

export interface Asked {
  method?: string;
  query?: Record<string, string | number | boolean | undefined>;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** The URL of `path` (`v1/runs`) with `query`. */
export function apiUrl(path: string, query: Asked['query'] = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined) search.set(name, String(value));
  const text = search.toString();
  return base + path + (text === '' ? '' : `?${text}`);
}

/** Asks for `path`; throws an `ApiError` where the answer is no success. */
export async function ask(path: string, { method = 'GET', query, body, headers = {}, signal }: Asked = {}): Promise<Response> {
  const sent: Record<string, string> = { accept: 'application/json', ...headers };
  if (connection.key !== null) sent['x-api-key'] = connection.key;
  if (body !== undefined) sent['content-type'] = 'application/json';
  const response = await observedFetch(apiUrl(path, query), {
    method,
    headers: sent,
    body: body === undefined ? null : JSON.stringify(body),
    signal: signal ?? null,
  });
  if (!response.ok) throw await failure(response);
  return response;
}

/** Asks for `path` and reads JSON. */
export async function askJson<T>(path: string, asked: Asked = {}): Promise<T> {
  return (await (await ask(path, asked)).json()) as T;
}

/** What a response that is no success says. */
export async function failure(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => '');
  let message = text.slice(0, 400);
  let requestId = response.headers.get('x-request-id');
  try {
    const { error } = JSON.parse(text) as { error: { message: string; request_id: string } };
    message = error.message;
    requestId = error.request_id;
  } catch {
    // Plain text.
  }
  return new ApiError(response, message, requestId);
}
