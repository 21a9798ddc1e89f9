/** Requests of the console that the client library has no method for. */
import { HttpError } from 'sightline-client';
import { base } from '../app/router.svelte';
import { connection, observedFetch } from './connection.svelte';

export { HttpError as ApiError };

export interface Asked {
  method?: string;
  query?: Record<string, string | number | boolean | undefined>;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** Statuses besides 2xx that are no failure. */
  accepts?: number[];
}

/** The URL of `path` (`v1/runs`) with `query`. */
export function apiUrl(path: string, query: Asked['query'] = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined) search.set(name, String(value));
  const text = search.toString();
  return base + path + (text === '' ? '' : `?${text}`);
}

/** Asks for `path`; throws an `HttpError` where the answer is no success. */
export async function ask(path: string, { method = 'GET', query, body, headers = {}, signal, accepts = [] }: Asked = {}): Promise<Response> {
  const sent: Record<string, string> = { accept: 'application/json', 'x-requested-with': 'sightline-console', ...headers };
  if (connection.key !== null) sent['x-api-key'] = connection.key;
  if (body !== undefined) sent['content-type'] = 'application/json';
  const response = await observedFetch(apiUrl(path, query), {
    method,
    headers: sent,
    body: body === undefined ? null : JSON.stringify(body),
    signal: signal ?? null,
  });
  if (!response.ok && !accepts.includes(response.status)) throw new HttpError(`${method} ${path}`, response, await response.text().catch(() => ''));
  return response;
}

/** Asks for `path` and reads JSON. */
export async function askJson<T>(path: string, asked: Asked = {}): Promise<T> {
  return (await (await ask(path, asked)).json()) as T;
}
