/** Zones that are drawn over a run's picture, and those that this browser keeps for new runs. */

import { t } from '../app/messages.svelte';
import { keepStored, stored } from '../app/stored';
import { fieldsOf, holds, inserted, LEAST_CORNERS, MOST_ZONES, nearestEdge, pointOf, withCorner, type Point, type Zone, type ZoneFields } from './geometry';

const PLACE = 'sightline.zones';
/** A click so near to an edge adds a corner to it. */
const EDGE_PX = 12;

/** Zones for what is analysed and published from this browser. */
class Kept {
  zones = $state.raw<readonly Zone[]>([]);
  only = $state(false);
  used = $state(true);

  constructor() {
    const { zones, only, used } = stored<Pick<Kept, 'zones' | 'only' | 'used'>>(PLACE, { zones: [], only: false, used: true });
    [this.zones, this.only, this.used] = [zones, only, used];
  }

  keep(zones: readonly Zone[], only: boolean, used = true): void {
    [this.zones, this.only, this.used] = [zones, only, used];
    keepStored(PLACE, { zones, only, used });
  }

  get fields(): ZoneFields {
    return this.used ? fieldsOf(this.zones, this.only) : {};
  }
}

export const kept = new Kept();

/** Zones while they are drawn. */
export class Draft {
  zones = $state.raw<readonly Zone[]>([]);
  only = $state(false);
  /** The zone that is worked on; -1 for none. */
  at = $state(-1);
  /** Clicks add corners to it. */
  open = $state(false);
  /** The corner that is to have the focus. */
  corner = $state(-1);
  /** What the server refused, by the zone; -1 for all else. */
  problems = $state.raw<ReadonlyMap<number, string>>(new Map());

  readonly zone: Zone | undefined = $derived(this.zones[this.at]);
  readonly fields: ZoneFields = $derived(fieldsOf(this.zones, this.only));

  begin(): void {
    if (this.zones.length >= MOST_ZONES) return;
    const names = new Set(this.zones.map((zone) => zone.name));
    let n = this.zones.length + 1;
    while (names.has(t('zones.name', { n }))) n++;
    this.zones = [...this.zones, { name: t('zones.name', { n }), polygon: [] }];
    this.select(this.zones.length - 1);
    this.open = true;
  }

  select(at: number): void {
    if (at === this.at) return;
    this.at = at;
    this.corner = -1;
    this.open = at >= 0 && this.zones[at]!.polygon.length < LEAST_CORNERS;
  }

  rename(at: number, name: string): void {
    this.change(at, { ...this.zones[at]!, name });
  }

  private change(at: number, zone: Zone): void {
    this.zones = this.zones.map((other, i) => (i === at ? zone : other));
    this.problems = new Map();
  }

  private shape(polygon: readonly Point[]): void {
    this.change(this.at, { ...this.zone!, polygon });
  }

  /** A click on the picture, whose size is `size` px. */
  press(point: Point, size: Point): void {
    if (this.zones.length === 0) this.begin();
    const polygon = this.zone?.polygon ?? [];
    if (this.open) return this.shape(inserted(polygon, polygon.length, point));
    const { at, distance } = nearestEdge(polygon, point, size);
    if (polygon.length > 0 && distance <= EDGE_PX) return this.shape(inserted(polygon, at, point));
    const hit = this.zones.findLastIndex((zone) => holds(zone.polygon, point));
    this.select(hit);
  }

  /** Adds a corner behind corner `at`, half way to the next one, and gives it the focus. */
  add(at: number): void {
    if (!this.zone) this.begin();
    const polygon = this.zone?.polygon ?? [];
    const [a, b] = [polygon[at], polygon[(at + 1) % polygon.length]];
    const apart = a && b && a !== b ? pointOf((a[0] + b[0]) / 2, (a[1] + b[1]) / 2) : a ? pointOf(a[0] + 0.1, a[1]) : pointOf(0.5, 0.5);
    this.shape(inserted(polygon, at + 1, apart));
    this.corner = Math.min(at + 1, this.zone!.polygon.length - 1);
  }

  move(at: number, point: Point): void {
    this.shape(withCorner(this.zone!.polygon, at, point));
  }

  remove(at: number): void {
    const polygon = this.zone!.polygon.filter((_, i) => i !== at);
    if (polygon.length === 0) return this.drop(this.at);
    this.shape(polygon);
    if (polygon.length < LEAST_CORNERS) this.open = true;
    this.corner = Math.min(at, polygon.length - 1);
  }

  /** Ends the drawing of a zone that has its corners. */
  close(): void {
    if ((this.zone?.polygon.length ?? 0) >= LEAST_CORNERS) this.open = false;
  }

  /** Ends it, and takes a zone away that has too few. */
  leave(): void {
    if (this.open && this.zone!.polygon.length < LEAST_CORNERS) this.drop(this.at);
    this.open = false;
    this.corner = -1;
  }

  drop(at: number): void {
    this.zones = this.zones.filter((_, i) => i !== at);
    this.problems = new Map();
    [this.at, this.open, this.corner] = [-1, false, -1];
  }
}
