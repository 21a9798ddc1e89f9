/** Work off the main thread: answers of signals into typed arrays with their pyramid, JPEG into pictures of strip size. */

import { pyramid, SIGNALS, type Series } from './pyramid';
import { readSignals } from './signals';
import type { Task, Told } from './work';

const scope = self as unknown as { onmessage: (event: MessageEvent<Task>) => void; postMessage(told: Told, transfer: Transferable[]): void };

scope.onmessage = async ({ data: task }) => {
  try {
    if (task.kind === 'signals') {
      const answer = JSON.parse(new TextDecoder().decode(task.bytes)) as Parameters<typeof readSignals>[0];
      const { points, ...read } = readSignals(answer);
      const levels = pyramid(points);
      const buffers = levels.flatMap(buffersOf);
      if (read.hashes) buffers.push(read.hashes.buffer);
      scope.postMessage({ id: task.id, window: { ...read, levels } }, buffers);
    } else {
      const blob = new Blob([task.bytes], { type: 'image/jpeg' });
      const bitmap = await createImageBitmap(blob);
      scope.postMessage({ id: task.id, bitmap }, [bitmap]);
    }
  } catch (error) {
    scope.postMessage({ id: task.id, error: String(error) }, []);
  }
};

function buffersOf(series: Series): ArrayBufferLike[] & Transferable[] {
  const own = [series.start, series.end, series.firstFrame, series.frames, series.kept, series.reasons, series.step];
  const curves = SIGNALS.flatMap((name) => [series.curves[name].min, series.curves[name].max, series.curves[name].mean]);
  return [...own, ...curves].map((array) => array.buffer) as ArrayBufferLike[] & Transferable[];
}
