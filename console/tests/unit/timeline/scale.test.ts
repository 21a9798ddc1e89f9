import { describe, expect, test } from 'vitest';
import { isSingle } from '../../../src/timeline/render/film';
import { clockText, levelOf, readGoal, spanText, ticks, timeText, tOf, xOf, zoneOffset } from '../../../src/timeline/scale';

test("a position and its moment are each other's inverse", () => {
  for (const view of [{ from: 0, to: 1 }, { from: -500, to: 10_800_000 }, { from: 61_999.5, to: 62_200 }])
    for (const x of [0, 1, 333.3, 1200]) expect(xOf(view, 1200, tOf(view, 1200, x))).toBeCloseTo(x, 6);
});

test.each([
  [2001, 'density'], [2000, 'cluster'], [100.1, 'cluster'], [100, 'bars'], [6, 'bars'], [5.99, 'frames'],
])('at %s ms a pixel the level is %s', (msPerPx, level) => expect(levelOf(msPerPx)).toBe(level));

test('the strip goes frame by frame where a frame has room for its picture', () => {
  const shows = (ms: number, frameMs: number): boolean => isSingle({ from: 0, to: ms }, 1200, frameMs);
  expect([shows(6200, 33.3), shows(3000, 33.3), shows(7000, 200), shows(8000, 200)]).toEqual([false, true, true, false]);
});

describe('ticks', () => {
  test('labels never come nearer than their room, from hours to frames', () => {
    for (let length = 30; length < 4 * 864e5; length *= 1.37) {
      const view = { from: 12_345.6, to: 12_345.6 + length };
      const { step, major, minor } = ticks(view, 1200);
      expect((step / length) * 1200, `${length}`).toBeGreaterThanOrEqual(length > 15 ? 80 : 92);
      expect(major.length, `${length}`).toBeLessThanOrEqual(14);
      expect(major.every((t) => t >= view.from && t <= view.to && t % step === 0)).toBe(true);
      expect(minor.some((t) => t % step === 0)).toBe(false);
    }
  });
  test('on the clock they fall on whole hours of the zone', () => {
    const origin = Date.UTC(2026, 10, 23, 13, 2, 7) + zoneOffset(Date.UTC(2026, 10, 23), 'Asia/Kolkata');
    const { step, major } = ticks({ from: 0, to: 6 * 36e5 }, 1000, origin);
    expect(step).toBe(36e5);
    expect(clockText(major[0]! + origin)).toBe('19:00:00');
  });
});

test.each([
  [62_000, 0, '1:02'], [62_000, 3, '1:02.000'], [3_723_450, 1, '1:02:03.4'], [59_999, 0, '0:59'],
  [0, 3, '0:00.000'], [-1500, 1, '−0:01.5'], [36_000_000, 0, '10:00:00'],
])('%s ms with %s digits is %s', (ms, digits, text) => expect(timeText(ms, digits)).toBe(text));

test.each([[400, '400 ms'], [2500, '2.5 s'], [96_000, '96 s'], [720_000, '12 min'], [9e6, '2.5 h']])(
  'a span of %s ms reads %s', (ms, text) => expect(spanText(ms)).toBe(text));

describe('go to', () => {
  const midday = Date.UTC(2026, 10, 23, 14, 2, 7);
  const media = { end: 151_400, origin: midday, clock: false };
  test.each([
    ['1:02', media, { kind: 'time', ms: 62_000 }],
    ['1:02.5', media, { kind: 'time', ms: 62_500 }],
    ['62.5 s', media, { kind: 'time', ms: 62_500 }],
    ['#620', media, { kind: 'frame', frame: 620 }],
    ['frame 620', media, { kind: 'frame', frame: 620 }],
    ['14:03', media, { kind: 'time', ms: 53_000 }],
    ['14:03:09', { ...media, clock: true }, { kind: 'time', ms: 62_000 }],
    ['1:02', { ...media, origin: null }, { kind: 'time', ms: 62_000 }],
    ['1:62', media, null],
    ['25:00', { ...media, clock: true }, null],
    ['soon', media, null],
    ['', media, null],
  ] as const)('%s', (text, context, goal) => expect(readGoal(text, context)).toEqual(goal));
});
