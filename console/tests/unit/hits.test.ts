import { expect, test } from 'vitest';
import { byRun, byTime, marked, wallOf, type Hit } from '../../src/search/hits';

const hit = (seq: number, run_id: string, pts_ms: number | null): Hit => ({ seq, run_id, pts_ms, kind: 'vlm', description: '', snippet: '' });

test.each([
  ['A red car and a RED CAR.', 'red car', ['A ', '[red car]', ' and a ', '[RED CAR]', '.']],
  ['a+b (c)', 'a+b (', ['[a+b (]', 'c)']],
  ['<b>car</b>', '<b>', ['[<b>]', 'car</b>']],
  ['nothing', 'car', ['nothing']],
  ['nothing', '  ', ['nothing']],
  ['ÄPFEL', 'äpfel', ['[ÄPFEL]']],
])('marks in %j what is asked for, %j', (text, query, pieces) => {
  expect(marked(text, query).map((piece) => (piece.hit ? `[${piece.text}]` : piece.text))).toEqual(pieces);
});

test('hits are grouped by run in the order of the runs, unknown ones last, by media time', () => {
  const groups = byRun([hit(1, 'a', 900), hit(2, 'b', 5), hit(3, 'a', 100), hit(4, 'x', 0), hit(5, 'a', null)], [{ run_id: 'b' }, { run_id: 'a' }]);
  expect(groups.map(({ key, hits }) => [key, hits.map(({ seq }) => seq)])).toEqual([['b', [2]], ['a', [5, 3, 1]], ['x', [4]]]);
});

test('hits are grouped by day, the newest first', () => {
  const run = { created_at: '2026-11-24T10:00:00Z', wall_start_ms: { main: 0 } };
  const at = (one: Hit): number => wallOf(one, one.run_id === 'a' ? run : undefined);
  const groups = byTime([hit(4, 'x', 99), hit(1, 'a', 10), hit(2, 'a', 31), hit(3, 'a', 12)], at, (ms) => new Date(Math.floor(ms / 10)).toISOString().slice(-4, -1));
  expect(groups.map(({ key, hits }) => [key, hits.map(({ seq }) => seq)])).toEqual([['003', [2]], ['001', [3, 1]], ['', [4]]]);
});

test('wall time is the stream\'s start, else the run\'s beginning', () => {
  const run = { created_at: '2026-11-24T10:00:00Z', wall_start_ms: {} as Record<string, number | null> };
  expect(wallOf(hit(1, 'a', 1500), run)).toBe(Date.parse('2026-11-24T10:00:01.500Z'));
  expect(wallOf(hit(1, 'a', 1500), { ...run, wall_start_ms: { main: 1000 } })).toBe(2500);
});
