import { describe, expect, test } from 'vitest';
import { readPlace, writePlace } from '../../../src/timeline/address';
import { compared } from '../../../src/timeline/compare';
import { IntervalIndex } from '../../../src/timeline/intervals';
import { foldedBy, layout, markerLanes, type Marker } from '../../../src/timeline/lanes';
import { emptySeries, highest, pyramid, SIGNALS } from '../../../src/timeline/pyramid';
import { slots, telling, type Still } from '../../../src/timeline/stills';

let made = 0;
const marker = (event_type: string, start: number, end: number, over: Partial<Marker> = {}): Marker => ({
  marker_id: `mk-${String(made++).padStart(16, '0')}`, stream_id: 'main', event_type, status: 'exact',
  start_frame: start, end_frame: end, start_pts_ms: start * 100, end_pts_ms: end * 100, confidence: 0.9,
  supersedes_marker_id: null, ...over,
});

describe('marker lanes', () => {
  test('what models saw comes first, most confident on top, then cuts and artifacts', () => {
    const lanes = markerLanes(
      [marker('context_observation', 0, 9), marker('scene_cut', 10, 10), marker('vehicle', 11, 20, { confidence: 0.6 }),
        marker('person_at_table', 21, 30), marker('artifact_suspected', 31, 33)], 100);
    expect(lanes.map((lane) => lane.type)).toEqual(
      ['person_at_table', 'vehicle', 'scene_cut', 'artifact_suspected', 'context_observation']);
  });
  test('a provisional marker stands under the finalized one that replaced it, not beside it', () => {
    const before = marker('vehicle', 0, 5, { status: 'provisional' });
    const after = marker('vehicle', 0, 9, { status: 'finalized', supersedes_marker_id: before.marker_id });
    const [lane] = markerLanes([before, after], 100);
    expect(lane!.markers).toEqual([after]);
    expect(lane!.replaced.get(after.marker_id)).toBe(before);
  });
});

describe('the layout', () => {
  const options = { lanes: markerLanes([marker('scene_cut', 1, 1)], 100), signals: SIGNALS.filter((name) => name !== 'activity'), words: true, stills: true, activity: true, compact: false, compare: false };
  test('rows follow each other and never overlap', () => {
    const { rows, height, fixed } = layout({ ...options, folded: new Map([['ghosting', 0.1]]) });
    rows.slice(1).forEach((row, i) => expect(row.y).toBeGreaterThanOrEqual(rows[i]!.y + rows[i]!.height));
    expect(height).toBeGreaterThan(rows.at(-1)!.y);
    expect(rows.find((row) => row.y === fixed)?.kind).toBe('words');
    expect(rows.find((row) => row.signal === 'ghosting')).toMatchObject({ height: 18, quiet: 0.1 });
    expect(rows.find((row) => row.kind === 'activity')).toMatchObject({ y: fixed + 43, height: 44 });
    expect(layout({ ...options, folded: new Map([['activity', 0.002]]) }).rows.find((row) => row.kind === 'activity')).toMatchObject({ height: 18, quiet: 0.002 });
  });
  test('a curve folds where nothing is over half its limit; luma never does', () => {
    const points = emptySeries(8);
    points.frames.fill(1);
    points.start.forEach((_, i) => (points.start[i] = points.end[i] = i * 100));
    points.curves.noise.max[5] = 0.28;
    points.curves.flicker.max[5] = 0.27;
    const limits = { keepalive_frames: 30, scene_cut: 0.5, luma_shift: 0.15, flicker: 0.55, ghosting: 0.55, noise: 0.55 };
    const levels = pyramid(points);
    const folded = foldedBy((name) => highest(levels, name, 0, 700), limits);
    expect([...folded.keys()]).toEqual(['scene', 'flicker', 'ghosting']);
    expect(folded.get('flicker')).toBeCloseTo(0.27);
    expect(foldedBy((name) => highest(levels, name, 0, 300), limits).has('noise')).toBe(true);
  });
});

describe('stills', () => {
  const still = (frame: number, event_type = 'keyframe_keep', description = ''): Still =>
    ({ frame_index: frame, pts_ms: frame * 100, event_type, description, image_sha256: String(frame) });
  test('a cut tells more than an artifact, that more than words, those more than the first', () => {
    const all = [still(0), still(1, 'keyframe_keep', 'a van'), still(2, 'artifact_suspected'), still(3, 'scene_cut')];
    for (let n = 4; n > 0; n--) expect(telling(all.slice(0, n))).toBe(all[n - 1]);
    expect(telling([])).toBeUndefined();
  });
  test('slots lie on a grid in media time and show the last still where they have none', () => {
    const index = new IntervalIndex([still(0), still(30), still(62, 'scene_cut')], (s) => s.pts_ms, (s) => s.pts_ms);
    const made = slots(index, 2500, 9000, 2000, 9000);
    expect(made.map((slot) => slot.from)).toEqual([2000, 4000, 6000, 8000]);
    expect(made.map((slot) => [slot.still?.frame_index, slot.earlier])).toEqual([[30, false], [30, true], [62, false], [62, true]]);
  });
});

test('two analyses are told apart by what they found', () => {
  const same = marker('scene_cut', 1, 1);
  const before = [same, marker('vehicle', 5, 9)];
  const after = [{ ...same, marker_id: 'mk-f' }, marker('vehicle', 5, 10), marker('scene_cut', 40, 40)];
  const { added, gone, same: equal, differs } = compared(before, after);
  expect([added.length, gone.length, equal, differs.size]).toEqual([2, 1, 1, 3]);
});

describe('the address', () => {
  test.each([
    {},
    { t: 62_000, from: 18_000, to: 114_000.125, m: 'mk-574c87499965c682', a: 'an-881a794c2816f185', clock: true },
    { e: 52, t: 3000 },
    { f: 620, lanes: ['keyframe_keep', 'a b&c'], stream: 'main/ü', q: 'red car' },
  ])('survives the round trip: %o', (place) => {
    const query = Object.entries(writePlace(place)).filter((entry): entry is [string, string] => entry[1] !== null);
    expect(readPlace(new URLSearchParams(query).toString())).toEqual(place);
  });
  test.each(['?t=abc', '?from=5', '?from=9&to=5', '?m=mk-1', '?f=1.5', '?a=%3Cscript%3E', '?lanes='])(
    '%s means nothing', (search) => expect(readPlace(search)).toEqual({}));
});
