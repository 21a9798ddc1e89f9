/** Zones of the picture as polygons; all places are fractions of its sides from the upper left corner. */

import type { Schemas } from 'sightline-client';

export type Point = readonly [x: number, y: number];

export interface Zone {
  name: string;
  polygon: readonly Point[];
}

/** Fields of a request that name zones. */
export interface ZoneFields {
  zones?: Schemas.Zone[];
  activity_zones_only?: boolean;
}

export const MOST_ZONES = 16;
export const LEAST_CORNERS = 3;
export const MOST_CORNERS = 32;
const DECIMALS = 1e4;

const fraction = (value: number): number => Math.round(Math.min(1, Math.max(0, value)) * DECIMALS) / DECIMALS;
export const pointOf = (x: number, y: number): Point => [fraction(x), fraction(y)];

/** A polygon whose corner `at` is elsewhere. */
export const withCorner = (polygon: readonly Point[], at: number, [x, y]: Point): Point[] => polygon.map((corner, i) => (i === at ? pointOf(x, y) : corner));

/** A polygon with one corner more, before the one that was `at`; as it is where it has its most. */
export const inserted = (polygon: readonly Point[], at: number, [x, y]: Point): readonly Point[] =>
  polygon.length < MOST_CORNERS ? [...polygon.slice(0, at), pointOf(x, y), ...polygon.slice(at)] : polygon;

const edges = (polygon: readonly Point[]): [Point, Point][] => polygon.map((corner, i) => [corner, polygon[(i + 1) % polygon.length]!]);

/** A point lies in a polygon by its even and odd crossings. */
export const holds = (polygon: readonly Point[], [x, y]: Point): boolean =>
  edges(polygon).filter(([[ax, ay], [bx, by]]) => ay > y !== by > y && x < ax + ((y - ay) / (by - ay)) * (bx - ax)).length % 2 === 1;

/** The edge nearest to a point, by the corner that it leads to, with its distance; `[w, h]` is the size that distances are told in. */
export function nearestEdge(polygon: readonly Point[], [x, y]: Point, [w, h]: Point): { at: number; distance: number } {
  const distances = edges(polygon).map(([[ax, ay], [bx, by]]) => {
    const [dx, dy] = [(bx - ax) * w, (by - ay) * h];
    const [px, py] = [(x - ax) * w, (y - ay) * h];
    const along = Math.min(1, Math.max(0, (px * dx + py * dy) / (dx * dx + dy * dy || 1)));
    return Math.hypot(px - along * dx, py - along * dy);
  });
  const distance = Math.min(...distances);
  return { at: distances.indexOf(distance) + 1, distance };
}

const side = ([ax, ay]: Point, [bx, by]: Point, [px, py]: Point): number => Math.sign((bx - ax) * (py - ay) - (by - ay) * (px - ax));
const cross = ([a, b]: [Point, Point], [c, d]: [Point, Point]): boolean => side(a, b, c) !== side(a, b, d) && side(c, d, a) !== side(c, d, b);

/** A box and a polygon have a part of the picture in common. */
export function meets({ x, y, width, height }: Schemas.Region, polygon: readonly Point[]): boolean {
  if (polygon.length < LEAST_CORNERS) return false;
  const [xs, ys] = [polygon.map((corner) => corner[0]), polygon.map((corner) => corner[1])];
  if (Math.max(...xs) < x || Math.min(...xs) > x + width || Math.max(...ys) < y || Math.min(...ys) > y + height) return false;
  const box: Point[] = [[x, y], [x + width, y], [x + width, y + height], [x, y + height]];
  return polygon.some((corner) => holds(box, corner)) || box.some((corner) => holds(polygon, corner))
    || edges(box).some((a) => edges(polygon).some((b) => cross(a, b)));
}

/** Boxes of frames by the first frame of the episode that they are in, each once. */
export function byEpisode(episodes: readonly Schemas.Episode[], frames: readonly { frame: number; box: Schemas.Region }[]): Map<number, Schemas.Region[]> {
  let at = 0;
  return new Map(episodes.map(({ start_frame, end_frame }) => {
    const found = new Map<string, Schemas.Region>();
    while (at < frames.length && frames[at]!.frame < start_frame) at++;
    for (; at < frames.length && frames[at]!.frame <= (end_frame ?? Infinity); at++) {
      const { box } = frames[at]!;
      found.set(`${box.x} ${box.y} ${box.width} ${box.height}`, box);
    }
    return [start_frame, [...found.values()]];
  }));
}

/** The fields of a request, without zones that have too few corners yet. */
export function fieldsOf(zones: readonly Zone[], only: boolean): ZoneFields {
  const whole = zones.filter((zone) => zone.polygon.length >= LEAST_CORNERS);
  if (whole.length === 0) return {};
  return { zones: whole.map(({ name, polygon }) => ({ name, polygon: polygon.map((corner) => [...corner]) })), ...(only ? { activity_zones_only: true } : {}) };
}

/** What a server refused of the fields of a request: by the zone's place in it, all else under -1. */
export function problemsOf(details: readonly Schemas.ErrorDetail[]): ReadonlyMap<number, string> {
  const found = new Map<number, string>();
  for (const { field, message } of details) {
    const [, at, part] = /^zones\[(\d+)\](?:\.(\w+))?/.exec(field) ?? [];
    const zone = at === undefined ? -1 : Number(at);
    if (!found.has(zone)) found.set(zone, `${at === undefined ? field : (part ?? 'zone')} ${message}`);
  }
  return found;
}
