import { afterEach, expect, test, vi } from 'vitest';

const connection = vi.hoisted(() => ({ online: true, refused: false }));
vi.mock('../../src/api/connection.svelte', () => ({ connection }));
const page = { hidden: false };
vi.stubGlobal('document', page);
const { every } = await import('../../src/api/every');

afterEach(() => void vi.useRealTimers());

test('what is asked again waits for its answer, for the page, for the server and for the key', async () => {
  vi.useFakeTimers();
  let asked = 0;
  let answer = (): void => {};
  const end = every(100, () => new Promise<void>((resolve) => { asked += 1; answer = resolve; }));
  const after = async (ms: number): Promise<number> => { await vi.advanceTimersByTimeAsync(ms); return asked; };
  expect(await after(1000), 'without an answer').toBe(1);
  answer();
  expect(await after(100), 'after it').toBe(2);
  answer();
  for (const [what, state] of [['hidden', page], ['refused', connection]] as const) {
    Object.assign(state, { [what]: true });
    expect(await after(500), what).toBe(2);
    Object.assign(state, { [what]: false });
  }
  connection.online = false;
  expect(await after(500), 'offline').toBe(2);
  connection.online = true;
  expect(await after(100), 'back').toBe(3);
  answer();
  end();
  expect(await after(500), 'ended').toBe(3);
});
