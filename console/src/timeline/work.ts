/** The worker of the timeline, as calls that answer. */

import { startWorker } from '../app/trusted';
import type { Series } from './pyramid';
import type { Window } from './signals';
import url from './timeline.worker?worker&url';

export type Task = { id: number; kind: 'signals' | 'still'; bytes: ArrayBuffer };
export type Levels = Omit<Window, 'points'> & { levels: Series[] };
export type Told = { id: number; window?: Levels; bitmap?: ImageBitmap; error?: string };

export class Work {
  private readonly worker = startWorker(url);
  private readonly waiting = new Map<number, { done: (told: Told) => void; failed: (error: Error) => void }>();
  private next = 0;

  constructor() {
    this.worker.onmessage = ({ data }: MessageEvent<Told>) => {
      const call = this.waiting.get(data.id);
      this.waiting.delete(data.id);
      if (data.error === undefined) call?.done(data);
      else call?.failed(new Error(data.error));
    };
  }

  private call(kind: Task['kind'], bytes: ArrayBuffer): Promise<Told> {
    const id = this.next++;
    return new Promise((done, failed) => {
      this.waiting.set(id, { done, failed });
      this.worker.postMessage({ id, kind, bytes } satisfies Task, [bytes]);
    });
  }

  async signals(bytes: ArrayBuffer): Promise<Levels> {
    return (await this.call('signals', bytes)).window!;
  }

  async still(bytes: ArrayBuffer): Promise<ImageBitmap> {
    return (await this.call('still', bytes)).bitmap!;
  }

  end(): void {
    this.worker.terminate();
    this.waiting.clear();
  }
}
