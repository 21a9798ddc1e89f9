/** New runs: a file is uploaded, a run made for it, and its analysis started as a job that goes on by itself. */
import { client, reasonOf, uploader, type Model } from '../api/client';
import { t } from '../app/messages.svelte';
import { keepStored, stored } from '../app/stored';
import type { ZoneFields } from '../zones/geometry';
import { kept } from '../zones/zones.svelte';

const PLACE = 'sightline.analysis';
/** The most that the server analyses of a source. */
const FRAMES_MAX = 500_000;

/** Options that a person chose for analyses, kept in this browser. */
export interface Choice {
  /** The model to ask; `null`: the first that is ready; empty: none. */
  model: string | null;
  prompt: string;
  /** Frames of a description. */
  every: number;
}

export function choice(): Choice {
  return stored<Choice>(PLACE, { model: null, prompt: '', every: 100 });
}

export function remember(chosen: Choice): void {
  keepStored(PLACE, chosen);
}

/** Models that can be asked now. */
export async function readyModels(): Promise<Model[]> {
  return (await client.listModels()).models.filter((model) => model.availability === 'ready');
}

/** A file on its way to the server. */
export interface Sending {
  id: number;
  name: string;
  bytes: number;
  sent: number;
  /** Milliseconds that are left at this rate; `null` until there is one. */
  left: number | null;
  /** Problem of the upload or the analysis. */
  problem: string | null;
  abort: AbortController;
}

class Additions {
  sending = $state<Sending[]>([]);
  #count = 0;
  #before: Promise<unknown> = Promise.resolve();

  /**
   * Uploads a file, after those that were given before it, and starts its analysis; resolves to the run, or `null` where that
   * failed or was called off. A browser has few connections to a server: all at once, files would leave the page none.
   */
  upload(file: File, chosen: Choice): Promise<string | null> {
    const id = ++this.#count;
    const abort = new AbortController();
    this.sending.unshift({ id, name: file.name, bytes: file.size, sent: 0, left: null, problem: null, abort });
    const turn = this.#before.then(() => this.#send(id, file, chosen, abort));
    this.#before = turn;
    return turn;
  }

  async #send(id: number, file: File, chosen: Choice, abort: AbortController): Promise<string | null> {
    const mine = (): Sending | undefined => this.sending.find((other) => other.id === id);
    const began = performance.now();
    try {
      const { file_path } = await uploader.uploadFile(file, ({ loaded }) => {
        const sending = mine();
        if (!sending) return;
        sending.sent = Math.min(loaded, file.size);
        const passed = performance.now() - began;
        sending.left = loaded > 0 && passed > 1000 ? (passed / loaded) * (file.size - loaded) : null;
      }, { signal: abort.signal });
      const run = await analyse(file_path, file.name, chosen);
      this.drop(id);
      return run;
    } catch (error) {
      const sending = mine();
      if (abort.signal.aborted) this.drop(id);
      else if (sending) sending.problem = reasonOf(error);
      return null;
    }
  }

  /** Calls an upload off, or takes away one that failed. */
  drop(id: number): void {
    this.sending.find((sending) => sending.id === id)?.abort.abort();
    this.sending = this.sending.filter((sending) => sending.id !== id);
  }
}

export const additions = new Additions();

addEventListener('beforeunload', (event) => { if (additions.sending.some((sending) => sending.problem === null)) event.preventDefault(); });

/** Makes a run for a source and starts its analysis, which watches `zones`; gives the run's id. A run whose source was refused is not left behind. */
export async function analyse(source: string, label: string | null, { model, prompt, every }: Choice, zones: ZoneFields = kept.fields): Promise<string> {
  const { models } = await client.listModels();
  const ready = models.filter((other) => other.availability === 'ready');
  const asked = model === '' ? undefined : (ready.find((other) => other.id === model) ?? ready[0]);
  const { run_id } = await client.createRun(label ? { label: cut(label) } : {});
  try {
    await client.startReason(run_id, {
      source_uri: source,
      model: (asked ?? models[0])?.id ?? 'qwen3-vl-8b',
      max_frames: FRAMES_MAX,
      include_frame_metadata: false,
      ...zones,
      ...(asked ? { semantic_prompt: prompt.trim() || t('add.default_prompt'), chunk_size: every } : {}),
    });
  } catch (error) {
    await client.deleteRun(run_id).catch(() => undefined);
    throw error;
  }
  return run_id;
}

/** A label of at most 128 bytes without control characters. */
function cut(text: string): string {
  let label = text.replace(/[\u0000-\u001f\u007f-\u009f]/g, ' ').trim();
  while (new TextEncoder().encode(label).length > 128) label = label.slice(0, -1);
  return label;
}
