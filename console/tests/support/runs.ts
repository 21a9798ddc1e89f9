/** Runs for tests, made over the API as any client makes them. */
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import type { Server } from './server';
import { MODEL } from './model';

/** Asks the server as `name` and reads JSON. */
export async function api<T = Record<string, unknown>>(server: Server, method: string, path: string, body?: unknown, name?: string): Promise<T> {
  const key = (name ? server.keys[name] : Object.values(server.keys)[0]) ?? '';
  const form = body instanceof FormData;
  const response = await fetch(`${server.url}/v1/${path}`, {
    method,
    headers: { 'x-api-key': key, ...(body === undefined || form ? {} : { 'content-type': 'application/json' }) },
    body: body === undefined ? null : form ? body : JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return (text === '' ? {} : JSON.parse(text)) as T;
}

export interface MakeRun {
  /** Path of the clip. */
  file: string;
  /** Name of the run. */
  label?: string;
  /** Owner of the run: a name of `startServer({ names })`. */
  as?: string;
  /** Ask the model about chunks of so many frames: the server needs one. */
  chunk?: number;
  prompt?: string;
  /** Called what, where it is not the file's name. */
  fileName?: string;
  /** End the run; it rests otherwise. */
  finish?: boolean;
}

/** Uploads a clip, decodes and analyses it, describes it where `chunk` is given, and gives the run's id. */
export async function makeRun(server: Server, { file, label, as, chunk, prompt, fileName, finish = true }: MakeRun): Promise<string> {
  const form = new FormData();
  form.set('file', new Blob([readFileSync(file)]), fileName ?? basename(file));
  const { file_path } = await api<{ file_path: string }>(server, 'POST', 'upload', form, as);
  const { run_id } = await api<{ run_id: string }>(server, 'POST', 'runs', label === undefined ? {} : { label }, as);
  const source = { source_uri: file_path, max_frames: 20_000 };
  if (chunk === undefined) {
    await api(server, 'POST', `runs/${run_id}/ingest`, source, as);
    await api(server, 'POST', `runs/${run_id}/analyze`, { model: MODEL }, as);
    if (finish) await api(server, 'POST', `runs/${run_id}/finish`, undefined, as);
  } else {
    await api(server, 'POST', `runs/${run_id}/reason`, {
      ...source, model: MODEL, chunk_size: chunk, semantic_prompt: prompt ?? 'Say what can be seen.', include_frame_metadata: false,
    }, as);
  }
  return run_id;
}
