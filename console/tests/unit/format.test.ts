import { expect, test, vi } from 'vitest';

const settings = vi.hoisted(() => ({ locale: 'en-US', zone: 'Europe/Berlin' }));
// Settings and words know the browser, which there is none of here.
vi.mock('../../src/app/settings.svelte', () => ({ settings }));
vi.mock('../../src/app/messages.svelte', () => ({
  number: (value: number, options?: Intl.NumberFormatOptions) => new Intl.NumberFormat('en', options).format(value),
  t: (key: string, given: Record<string, string> = {}) => [key, ...Object.values(given)].join(' '),
}));
const { bytes, dayKey, dayName, moment, percent, share, span } = await import('../../src/app/format');

test.each([
  [0, '0 s'], [9840, '9.8 s'], [9999, '10 s'], [59_400, '59 s'], [59_600, '1 min'], [119_700, '2 min'], [338_000, '5 min 38 s'], [599_700, '10 min'],
  [650_000, '10 min'], [3_599_600, '1 h 00 min'], [11_280_000, '3 h 08 min'], [172_799_000, '47 h 59 min'], [1_062_000_000, '12 d 7 h'],
])('a span of %i ms reads %s', (ms, text) => expect(span(ms)).toBe(text));

test.each([[0, '0 B'], [999, '999 B'], [1500, '2 kB'], [4.1e10, '41 GB'], [2.5e15, '2,500 TB']])('%d bytes read %s', (value, text) => expect(bytes(value)).toBe(text));

test('shares of a picture keep what is small in sight, and what is done is not rounded up', () => {
  expect([0.0035, 0.025, 0.12, 1].map(share)).toEqual(['0.35 %', '2.5 %', '12 %', '100 %']);
  expect(percent(0.999)).toBe('99 %');
});

test('days are those of the zone, also where the clocks change', () => {
  expect(dayKey('2026-11-23T23:30:00Z')).toBe('2026-11-24');
  // 25 October 2026 has 25 hours, so 24 hours before its last one is that day still.
  const late = Date.parse('2026-10-25T22:30:00Z');
  expect([dayName('2026-10-25T10:00:00Z', late), dayName('2026-10-24T10:00:00Z', late)]).toEqual(['time.today', 'time.yesterday']);
  // 29 March 2026 has 23, so 24 hours before the first one after it is the day before.
  const early = Date.parse('2026-03-29T22:30:00Z');
  expect([dayName('2026-03-29T10:00:00Z', early), dayName('2026-03-28T10:00:00Z', early)]).toEqual(['time.yesterday', 'Saturday, March 28']);
});

test('a moment says its day, and its year where that is another one', () => {
  const now = Date.parse('2026-11-24T12:00:00Z');
  expect(moment('2026-11-24T08:05:00Z', now)).toBe('time.today_at 09:05');
  expect(moment('2026-11-23T08:05:00Z', now)).toBe('time.yesterday_at 09:05');
  expect(moment('2026-11-20T08:05:00Z', now)).toBe('time.date_at Nov 20 09:05');
  expect(moment('2025-11-20T08:05:00Z', now)).toBe('time.date_at Nov 20, 2025 09:05');
  settings.locale = 'en-GB';
  expect(moment('2025-11-20T08:05:00Z', now)).toBe('time.date_at 20 Nov 2025 09:05');
  settings.zone = 'Pacific/Auckland';
  expect(moment('2026-11-24T08:05:00Z', now)).toBe('time.yesterday_at 21:05');
});
