/** Rows of the timeline: which lanes there are, what lies in each, how high they are. */

import type { Schemas } from 'sightline-client';
import { IntervalIndex } from './intervals';
import { SIGNALS, type SignalName } from './pyramid';
import { limitOf, type Thresholds } from './signals';

export type Marker = Omit<Schemas.Marker, 'run_id'>;

export type Kind = 'seen' | 'cut' | 'art' | 'plain';

/** Types that say only how often a frame is kept, and what lies between. */
export const QUIET_TYPES = ['keyframe_keep', 'context_observation'];
const GATE_TYPES = ['scene_cut', 'artifact_suspected', ...QUIET_TYPES];

export const kindOf = (type: string): Kind =>
  type === 'scene_cut' ? 'cut' : type === 'artifact_suspected' ? 'art' : QUIET_TYPES.includes(type) ? 'plain' : 'seen';

export interface MarkerLane {
  type: string;
  kind: Kind;
  /** By their start; without the provisional markers that a finalized one of them replaces. */
  markers: readonly Marker[];
  index: IntervalIndex<Marker>;
  /** The provisional marker that a finalized one replaced, by the id of the finalized one. */
  replaced: ReadonlyMap<string, Marker>;
}

/** End of a marker on the axis: the frame it ends with lasts until the next one. */
export const endOf = (marker: Marker, frameMs: number): number => marker.end_pts_ms + frameMs;

/** A lane for each type: what models saw, most confident first, then cuts, artifacts, the rest. */
export function markerLanes(markers: readonly Marker[], frameMs: number): MarkerLane[] {
  const byId = new Map(markers.map((marker) => [marker.marker_id, marker]));
  const byType = new Map<string, Marker[]>();
  const gone = new Set<string>();
  const replaced = new Map<string, Marker>();
  for (const marker of markers) {
    const before = marker.supersedes_marker_id ? byId.get(marker.supersedes_marker_id) : undefined;
    if (!before) continue;
    replaced.set(marker.marker_id, before);
    gone.add(before.marker_id);
  }
  for (const marker of markers) {
    if (gone.has(marker.marker_id)) continue;
    const list = byType.get(marker.event_type);
    if (list) list.push(marker);
    else byType.set(marker.event_type, [marker]);
  }
  const rank = (type: string) => GATE_TYPES.indexOf(type);
  const sure = (list: Marker[]) => list.reduce((sum, marker) => sum + marker.confidence, 0) / list.length;
  return [...byType]
    .sort(([a, la], [b, lb]) => rank(a) - rank(b) || sure(lb) - sure(la) || lb.length - la.length || (a < b ? -1 : 1))
    .map(([type, list]) => {
      const index = new IntervalIndex(list, (m) => m.start_pts_ms, (m) => endOf(m, frameMs));
      return { type, kind: kindOf(type), markers: index.items, index, replaced };
    });
}

/** One lane of all that models saw, for a narrow page. */
export function joinedLanes(lanes: readonly MarkerLane[], frameMs: number): MarkerLane[] {
  const seen = lanes.filter((lane) => lane.kind === 'seen');
  if (seen.length < 2) return [...lanes];
  const index = new IntervalIndex(seen.flatMap((lane) => lane.markers), (m) => m.start_pts_ms, (m) => endOf(m, frameMs));
  const replaced = new Map(seen.flatMap((lane) => [...lane.replaced]));
  return [{ type: seen.map((lane) => lane.type).join(' '), kind: 'seen', markers: index.items, index, replaced }, ...lanes.filter((lane) => lane.kind !== 'seen')];
}

export interface Row {
  id: string;
  kind: 'overview' | 'ruler' | 'film' | 'words' | 'activity' | 'markers' | 'signal';
  y: number;
  height: number;
  lane?: MarkerLane;
  signal?: SignalName;
  /** Highest value in view of a folded signal. */
  quiet?: number;
}

interface LayoutOptions {
  lanes: readonly MarkerLane[];
  signals: readonly SignalName[];
  /** Folded signals with their highest value in view. */
  folded: ReadonlyMap<SignalName, number>;
  words: boolean;
  stills: boolean;
  activity: boolean;
  compact: boolean;
  /** Two halves for two analyses. */
  compare: boolean;
}

const HEIGHTS = {
  overview: 35, ruler: 23, film: 49, ticks: 18, words: 43, activity: 44, lane: 22, compared: 38, signal: 30, folded: 18,
} as const;
/** Still and ticks of the phone. */
const COMPACT = { overview: 33, film: 44 };

export interface Layout {
  rows: Row[];
  /** Height of the rows above those that scroll, and of all together. */
  fixed: number;
  height: number;
}

export function layout(options: LayoutOptions): Layout {
  const rows: Row[] = [];
  let y = 0;
  const add = (row: Omit<Row, 'y'>) => {
    rows.push({ ...row, y });
    y += row.height;
  };
  add({ id: 'overview', kind: 'overview', height: options.compact ? COMPACT.overview : HEIGHTS.overview });
  add({ id: 'ruler', kind: 'ruler', height: HEIGHTS.ruler });
  if (options.stills)
    add({ id: 'film', kind: 'film', height: (options.compact ? COMPACT.film : HEIGHTS.film) + HEIGHTS.ticks });
  const fixed = y;
  if (options.words) add({ id: 'words', kind: 'words', height: HEIGHTS.words });
  if (options.activity) {
    const quiet = options.folded.get('activity');
    add({ id: 'activity', kind: 'activity', height: quiet === undefined ? HEIGHTS.activity : HEIGHTS.folded, signal: 'activity', quiet });
  }
  const laneHeight = options.compare ? HEIGHTS.compared : HEIGHTS.lane;
  if (options.lanes.length) y += 4;
  for (const lane of options.lanes) add({ id: `lane:${lane.type}`, kind: 'markers', height: laneHeight, lane });
  if (options.lanes.length) y += 3;
  if (options.signals.length) y += 3;
  for (const signal of options.signals) {
    const quiet = options.folded.get(signal);
    const height = quiet === undefined ? HEIGHTS.signal : HEIGHTS.folded;
    add({ id: `signal:${signal}`, kind: 'signal', height, signal, quiet });
  }
  return { rows, fixed, height: y + 2 };
}

/** Curves that hold nothing over half their limit, with their highest value. Luma never folds. */
export function foldedBy(peak: (name: SignalName) => number, limits: Thresholds): Map<SignalName, number> {
  const folded = new Map<SignalName, number>();
  for (const name of SIGNALS) {
    const limit = limitOf(name, limits);
    if (limit === null) continue;
    const highest = peak(name);
    if (!(highest > limit / 2)) folded.set(name, Number.isFinite(highest) ? highest : 0);
  }
  return folded;
}
