/** Requests whose answers are read as bytes, which the client library parses. */
import { HttpError } from 'sightline-client';
import { apiUrl, keyHeader, observedFetch } from './connection.svelte';

interface Asked {
  query?: Record<string, string | number | undefined>;
  /** JSON of a POST; without one it is a GET. */
  body?: unknown;
  signal: AbortSignal;
}

/** Asks for JSON at `path`; throws an `HttpError` where the answer is no success. */
export async function ask(path: string, { query = {}, body, signal }: Asked): Promise<Response> {
  const method = body === undefined ? 'GET' : 'POST';
  const headers = { accept: 'application/json', ...keyHeader(), ...(body === undefined ? {} : { 'content-type': 'application/json' }) };
  const response = await observedFetch(apiUrl(path, query), { method, headers, body: body === undefined ? null : JSON.stringify(body), signal });
  if (!response.ok) throw new HttpError(`${method} ${path}`, response, await response.text().catch(() => ''));
  return response;
}
