import { expect, test } from 'vitest';
import { build, parse } from '../../src/app/address';

const run = `run-${'a'.repeat(32)}`;

test.each([
  ['', { page: 'runs' }],
  ['runs', { page: 'runs' }],
  ['runs/', { page: 'runs' }],
  [`runs/${run}`, { page: 'run', run }],
  ['live', { page: 'live', run: null }],
  [`live/${run}`, { page: 'live', run }],
  ['search', { page: 'search' }],
  ['machine', { page: 'machine' }],
  ['settings', { page: 'settings' }],
  ['settings/x', { page: 'lost' }],
  ['runs/a/b', { page: 'lost' }],
  ['runs/%E0%A4%A', { page: 'lost' }],
  ['live/run-0635d70', { page: 'lost' }],
])('path %j', (path, route) => {
  expect(parse(path)).toEqual(route);
});

test('an address says all of a query, and it comes back', () => {
  const made = build('/sight/', `/runs/${run}`, { t: 0, q: 'a&b ü', clock: true, m: null, from: '', off: false });
  expect(made).toBe(`/sight/runs/${run}?t=0&q=a%26b+%C3%BC&clock=1`);
  expect(Object.fromEntries(new URL(made, 'http://x').searchParams)).toEqual({ t: '0', q: 'a&b ü', clock: '1' });
});
