import { describe, expect, test } from 'vitest';
import { clusters, type Mark } from '../../../src/timeline/clusters';
import { episodeEnd, joined, peakOf, type Episode } from '../../../src/timeline/episodes';
import { IntervalIndex } from '../../../src/timeline/intervals';
import { loopsOf } from '../../../src/timeline/loops';
import { emptySeries, FANOUT, gaps, highest, indexAt, levelFor, pyramid } from '../../../src/timeline/pyramid';
import { frameAt, frameLength, heightOf, readSignals, REASONS, timeOfFrame } from '../../../src/timeline/signals';
import { nearest, snapped } from '../../../src/timeline/snap';
import { Lru, tilesOf } from '../../../src/timeline/tiles';

function random(seed: number) {
  return () => (seed = (seed * 1664525 + 1013904223) % 4294967296) / 4294967296;
}

function flat(length: number, frameMs = 33) {
  const series = emptySeries(length);
  for (let i = 0; i < length; i++) {
    series.start[i] = series.end[i] = i * frameMs;
    series.firstFrame[i] = i;
    series.frames[i] = 1;
  }
  return series;
}

describe('the pyramid', () => {
  const peaks = [0, 1, 4097, 77_777, 324_000 - 1];
  const series = flat(324_000);
  for (const at of peaks) for (const edge of ['min', 'max', 'mean'] as const) series.curves.scene[edge][at] = 0.9;
  const levels = pyramid(series);

  test('keeps every peak of one frame at every level', () => {
    for (const level of levels)
      for (const at of peaks) {
        const t = at * 33;
        const i = indexAt(level, t);
        expect(level.curves.scene.max[i]).toBeCloseTo(0.9);
      }
  });
  test('weighs means by frames and counts all of them', () => {
    for (const level of levels) {
      expect(level.frames.reduce((a, b) => a + b, 0)).toBe(324_000);
      const sum = level.curves.scene.mean.reduce((s, mean, i) => s + mean * level.frames[i]!, 0);
      expect(sum).toBeCloseTo(0.9 * peaks.length, 2);
    }
  });
  test('a level has a point for each pixel, and not four times as many as are needed', () => {
    const level = levelFor(levels, 0, 324_000 * 33, 1200);
    expect(level.length).toBeGreaterThanOrEqual(1200);
    expect(level.length).toBeLessThan(1200 * FANOUT * 1.01);
    expect(levelFor(levels, 1000, 1200, 1200)).toBe(series);
  });
  test('the highest value of a view is of that view', () => {
    expect(highest(levels, 'scene', 4000 * 33, 4200 * 33)).toBeCloseTo(0.9);
    expect(highest(levels, 'scene', 5000 * 33, 5200 * 33)).toBe(0);
  });
});

test('a gap is a span without pictures, between points and within one', () => {
  const series = flat(300, 100);
  for (let i = 150; i < 300; i++) series.start[i] = series.end[i] = i * 100 + 14_000;
  expect(gaps(series, 100)).toEqual([{ from: 14_900, to: 29_000 }]);
  const bucket = emptySeries(1);
  bucket.end[0] = 20_000;
  bucket.frames[0] = 50;
  expect(gaps(bucket, 100)).toEqual([{ from: 0, to: 20_000 }]);
  expect(gaps(flat(300, 100), 100)).toEqual([]);
});

describe('the interval index', () => {
  const next = random(7);
  const items = Array.from({ length: 2000 }, (_, id) => {
    const start = Math.floor(next() * 1e6);
    return { id, start, end: start + Math.floor(next() ** 6 * 2e5) };
  });
  const index = new IntervalIndex(items, (item) => item.start, (item) => item.end);
  test('finds what a scan finds', () => {
    for (let n = 0; n < 200; n++) {
      const from = next() * 1e6;
      const to = from + next() * 3e4;
      const scanned = items.filter((item) => item.end >= from && item.start <= to).map((item) => item.id);
      expect(index.meeting(from, to).map((item) => item.id).sort()).toEqual(scanned.sort());
    }
  });
  test('knows what comes next and what came before', () => {
    const sorted = index.items;
    expect(index.after(-1)).toBe(sorted[0]);
    expect(index.before(sorted[0]!.start)).toBeUndefined();
    const later = sorted.find((item) => item.start > sorted[900]!.start);
    expect(index.after(sorted[900]!.start)).toBe(later);
  });
});

describe('clusters', () => {
  const mark = (x0: number, over: Partial<Mark> = {}): Mark => ({ x0, x1: x0 + 2, rank: 1, ...over });
  test('a pulsing light of 50 stills is one bar with its count and its strongest reason', () => {
    const marks = Array.from({ length: 50 }, (_, i) => mark(100 + i * 3, { rank: i === 20 ? 5 : 3 }));
    expect(clusters(marks, 4)).toEqual([{ x0: 100, x1: 249, first: 0, last: 49, count: 50, rank: 5 }]);
  });
  test('a cut is never swallowed', () => {
    const made = clusters([mark(0), mark(3), mark(5, { alone: true, rank: 7 }), mark(8), mark(10)], 4);
    expect(made.map((cluster) => cluster.count)).toEqual([2, 1, 2]);
  });
  test('wide bars that touch keep their edges', () => {
    const made = clusters([{ x0: 0, x1: 50, rank: 1 }, { x0: 50, x1: 90, rank: 1 }], 2);
    expect(made).toHaveLength(2);
  });
});

describe('snap', () => {
  const view = { from: 0, to: 1000 };
  const marks = [100, 500, 505];
  test.each([
    [94.5, true, 100], [93, true, 93], [502, true, 500], [503, true, 505], [94.5, false, 94.5],
  ])('%s with snap %s goes to %s', (t, on, to) => expect(snapped(t, view, 1000, { marks }, on)).toBe(to));
  test('where frames are shown it always lands on one', () => {
    const frames = [0, 33, 67, 100];
    expect(snapped(60, view, 1000, { marks: [], frames }, false)).toBe(67);
  });
  test.each([[0, 100], [99, 100], [149, 100], [150, 100], [151, 200], [350, 300], [9999, 300]])('the nearest to %i is %i', (t, value) => expect(nearest([100, 200, 300], t)).toBe(value));
  test('the nearest of nothing is nothing', () => expect(nearest([], 1)).toBeUndefined());
});

describe('signals', () => {
  const row = (n: number, over = {}) => ({
    frame_index: n, source_frame_index: n, pts_ms: n * 40, perceptual_hash: '7f7f7fffc2000000', luma_mean: 0.5,
    flicker_score: 0, ghosting_score: 0, noise_variance_score: 0, scene_score: 0, kept: false, reason: 'no_trigger', ...over,
  });
  const limits = { keepalive_frames: 30, scene_cut: 0.5, luma_shift: 0.15, flicker: 0.55, ghosting: 0.55, noise: 0.55 };
  const answer = (signals: object[]) =>
    ({ stream_id: 'main', frames: signals.length, thresholds: limits, signals: signals as never, buckets: null });

  test("frames and moments are each other's inverse, in frames and in buckets", () => {
    const { points } = readSignals(answer(Array.from({ length: 50 }, (_, n) => row(n))));
    expect(frameLength(points)).toBe(40);
    for (const series of pyramid(points).slice(0, 2))
      for (const frame of [0, 7, 31, 49]) expect(frameAt(series, timeOfFrame(series, frame))).toBe(frame);
  });

  test('what moves is read in frames and in buckets, and its curve keeps a hundredth of the picture in sight', () => {
    expect(readSignals(answer([row(0), row(1, { activity_score: 0.03 })])).points.curves.activity.mean[1]).toBeCloseTo(0.03);
    expect(readSignals(answer([row(0)])).points.curves.activity.mean[0]).toBeNaN();
    const bucket = { first_frame: 0, start_pts_ms: 0, end_pts_ms: 40, frames: 2, kept_frames: 1, reasons: { activity_peak: 1 }, activity_score: { min: 0, max: 0.2, mean: 0.1 } };
    const { points } = readSignals({ ...answer([]), signals: null, buckets: [bucket] });
    expect(points.curves.activity.max[0]).toBeCloseTo(0.2);
    expect(REASONS[31 - Math.clz32(points.reasons[0]!)]).toBe('activity_peak');
    expect([0, 0.01, 1, 2].map((value) => Number(heightOf('activity', value).toFixed(2)))).toEqual([0, 0.22, 1, 1]);
    expect(heightOf('scene', 0.01)).toBe(0.01);
  });
});

describe('episodes of activity', () => {
  const episode = (start: number, end: number | null, over: Partial<Episode> = {}): Episode => ({
    stream_id: 'main', start_frame: start, end_frame: end, start_pts_ms: start * 40, end_pts_ms: end === null ? null : end * 40,
    peak_score: 0.1, peak_frame: start, region: null, zones: [], ...over,
  });

  test('one that ends takes the place of the one that lasted, and is not opened again', () => {
    const open = joined([episode(0, 9)], [episode(50, null)]);
    expect(open.map((one) => one.end_frame)).toEqual([9, null]);
    const over = joined(open, [episode(50, 80, { peak_score: 0.3 }), episode(20, 30)]);
    expect(over.map((one) => [one.start_frame, one.end_frame])).toEqual([[0, 9], [20, 30], [50, 80]]);
    expect(joined(over, [episode(50, null)])[2]).toMatchObject({ end_frame: 80, peak_score: 0.3 });
  });
  test('one that lasts goes to the edge, one that is over to the end of its last frame', () => {
    expect(episodeEnd(episode(10, 20), 40, 9000)).toBe(840);
    expect(episodeEnd(episode(10, null), 40, 9000)).toBe(9000);
    expect(episodeEnd(episode(10, null), 40, 0)).toBe(440);
  });
  test('its peak lies between its ends', () => {
    expect(peakOf(episode(10, 20, { peak_frame: 15 }))).toBe(600);
    expect(peakOf(episode(10, null, { peak_frame: 12 }))).toBe(400);
    expect(peakOf(episode(10, 10, { peak_frame: 10 }))).toBe(400);
  });
});

test('a loop is a span with the times its pictures were shown', () => {
  const [a, b, c, d] = [0xffffffffn, 0xffff0000ffffn, 0xff00ff00ff00ffn, 0xf0f0f0f0f0f0f0fn];
  expect(loopsOf([a, b, a, b, a, b, c, d])).toEqual([{ first: 0, last: 5, repeats: 3 }]);
  expect(loopsOf([a, a, a, a])).toEqual([]);
});

describe('tiles', () => {
  test('cover the view and one beside it, nearest first', () => {
    const tiles = tilesOf(10_000, 16_000, 0, 60_000);
    expect(tiles.every((tile) => tile.to - tile.from === 8192)).toBe(true);
    expect(Math.min(...tiles.map((tile) => tile.from))).toBeLessThanOrEqual(4000);
    expect(Math.max(...tiles.map((tile) => tile.to))).toBeGreaterThanOrEqual(22_000);
    expect(tiles[0]!.from <= 13_000 && tiles[0]!.to >= 13_000).toBe(true);
  });
  test('the store drops what was used longest ago, and says so', () => {
    const gone: number[] = [];
    const store = new Lru<number>(10, (value) => gone.push(value));
    store.set('a', 1, 4);
    store.set('b', 2, 4);
    store.get('a');
    store.set('c', 3, 4);
    expect(gone).toEqual([2]);
    expect([store.has('a'), store.has('b'), store.size]).toEqual([true, false, 8]);
  });
});
