import { afterEach, expect, test, vi } from 'vitest';

const client = vi.hoisted(() => ({ listRuns: (_: object, __: { signal: AbortSignal }): Promise<object[]> => Promise.resolve([]) }));
vi.mock('../../src/api/client', () => ({ client }));
vi.mock('../../src/api/connection.svelte', () => ({ connection: { online: true, refused: false } }));
vi.mock('../../src/runs/words', () => ({ isLive: () => false }));
vi.stubGlobal('document', { hidden: false, addEventListener: () => {} });
const { RunList } = await import('../../src/runs/list.svelte');

afterEach(() => void vi.useRealTimers());

test('a list that is begun anew after two looks at once is asked for on and on', async () => {
  vi.useFakeTimers();
  let [asked, takes] = [0, 0];
  client.listRuns = async (_, { signal }) => {
    asked += 1;
    await new Promise((resolve) => setTimeout(resolve, takes));
    signal.throwIfAborted();
    return [];
  };
  const list = new RunList();
  void list.start();
  await vi.advanceTimersByTimeAsync(1);
  takes = 100;
  await vi.advanceTimersByTimeAsync(15_000);
  void list.refresh();
  await vi.advanceTimersByTimeAsync(200);
  expect(asked, 'the second look was beside one under way').toBe(3);
  list.stop();
  void list.start();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(asked).toBeGreaterThan(6);
  list.stop();
  const before = asked;
  await vi.advanceTimersByTimeAsync(60_000);
  expect(asked, 'stopped').toBe(before);
});
