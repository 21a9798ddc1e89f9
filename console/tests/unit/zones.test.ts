import { describe, expect, test } from 'vitest';
import { byEpisode, fieldsOf, holds, inserted, meets, MOST_CORNERS, nearestEdge, pointOf, problemsOf, withCorner, type Point } from '../../src/zones/geometry';

const square: Point[] = [[0.2, 0.2], [0.6, 0.2], [0.6, 0.6], [0.2, 0.6]];
/** A U: its notch lies outside of it. */
const cup: Point[] = [[0.1, 0.1], [0.3, 0.1], [0.3, 0.7], [0.6, 0.7], [0.6, 0.1], [0.8, 0.1], [0.8, 0.9], [0.1, 0.9]];

describe('polygons', () => {
  test('hold what lies in them, also where they are hollow', () => {
    expect([holds(square, [0.3, 0.3]), holds(square, [0.7, 0.3]), holds([], [0.5, 0.5])]).toEqual([true, false, false]);
    expect([holds(cup, [0.2, 0.2]), holds(cup, [0.45, 0.3]), holds(cup, [0.45, 0.8])]).toEqual([true, false, true]);
  });
  test('take a corner at the nearest edge', () => {
    expect(nearestEdge(square, [0.4, 0.21], [640, 360])).toEqual({ at: 1, distance: expect.closeTo(3.6) });
    expect(nearestEdge(square, [0.2, 0.4], [640, 360])).toEqual({ at: 4, distance: 0 });
    expect(inserted(square, 1, [0.4, 0.2])).toEqual([[0.2, 0.2], [0.4, 0.2], [0.6, 0.2], [0.6, 0.6], [0.2, 0.6]]);
  });
  test('have no corner outside of the picture, and no more than 32', () => {
    expect(withCorner(square, 2, [1.4, -0.1])[2]).toEqual([1, 0]);
    expect(pointOf(1 / 3, 2 / 3)).toEqual([0.3333, 0.6667]);
    const many = Array.from({ length: MOST_CORNERS }, (): Point => [0.5, 0.5]);
    expect(inserted(many, 0, [0.1, 0.1])).toBe(many);
  });
});

test.each([
  ['beside it', { x: 0.7, y: 0.1, width: 0.2, height: 0.2 }, square, false],
  ['over a corner', { x: 0.5, y: 0.5, width: 0.3, height: 0.3 }, square, true],
  ['within it', { x: 0.3, y: 0.3, width: 0.1, height: 0.1 }, square, true],
  ['around it', { x: 0, y: 0, width: 1, height: 1 }, square, true],
  ['through it, all corners outside', { x: 0, y: 0.35, width: 1, height: 0.1 }, square, true],
  ['in the notch of a hollow one', { x: 0.35, y: 0.2, width: 0.2, height: 0.3 }, cup, false],
  ['anywhere, of one that has two corners', { x: 0, y: 0, width: 1, height: 1 }, square.slice(0, 2), false],
])('a box %s', (_, box, polygon, met) => expect(meets(box, polygon)).toBe(met));

test('boxes of frames belong to the episode that they are in', () => {
  const box = (x: number) => ({ x, y: 0, width: 0.1, height: 0.1 });
  const episode = (start_frame: number, end_frame: number | null) => ({ start_frame, end_frame }) as Parameters<typeof byEpisode>[0][number];
  const frames = [1, 5, 6, 7, 12, 20, 21].map((frame) => ({ frame, box: box(frame < 7 ? 0.1 : frame / 100) }));
  const found = byEpisode([episode(5, 7), episode(20, null)], frames);
  expect(found.get(5)).toEqual([box(0.1), box(0.07)]);
  expect(found.get(20)).toEqual([box(0.2), box(0.21)]);
});

test('a request names the zones that have their corners', () => {
  const door = { name: 'door', polygon: square };
  expect(fieldsOf([{ name: 'begun', polygon: square.slice(0, 2) }], true)).toEqual({});
  expect(fieldsOf([door, { name: 'begun', polygon: [] }], false)).toEqual({ zones: [{ name: 'door', polygon: square }] });
  expect(fieldsOf([door], true)).toMatchObject({ activity_zones_only: true });
});

test('what a server refuses stands at its zone', () => {
  const problems = problemsOf([
    { field: 'zones[1].polygon', message: 'is too small' }, { field: 'zones[1].name', message: 'is long' },
    { field: 'zones[0]', message: 'must be an object' }, { field: 'source_uri', message: 'is not there' },
  ]);
  expect([...problems]).toEqual([[1, 'polygon is too small'], [0, 'zone must be an object'], [-1, 'source_uri is not there']]);
});
