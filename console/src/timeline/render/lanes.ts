/** Marker lanes: bars by their status, cuts, artifacts, clusters with their counts, density at a distance. */

import { score } from '../../app/format';
import { clusters, type Cluster } from '../clusters';
import { endOf, type Marker, type MarkerLane, type Row } from '../lanes';
import { levelOf, span, tOf, xOf } from '../scale';
import type { Scene } from './scene';
import { rounded } from './shapes';
import { fitText } from './text';
import type { Theme } from './theme';

export interface Hatches {
  art: CanvasPattern;
  seen: CanvasPattern;
  gap: CanvasPattern;
}

const COLOUR = { seen: 'seen', cut: 'cut', art: 'art', plain: 'curve' } as const;
/** Room for labels that begin left of what is painted. */
const REACH_PX = 260;

export function paintLane(
  c: CanvasRenderingContext2D, row: Row, scene: Scene, theme: Theme, hatches: Hatches, width: number, x0: number, x1: number,
): void {
  const lane = row.lane!;
  if (!scene.compare) return paintHalf(c, lane, row.y, row.height, scene, theme, hatches, width, x0, x1);
  const half = row.height / 2;
  const other = scene.compare.lanes.find((one) => one.type === lane.type);
  const shown = scene.lanes.find((one) => one.type === lane.type);
  if (shown) paintHalf(c, shown, row.y, half, scene, theme, hatches, width, x0, x1);
  if (other) paintHalf(c, other, row.y + half, half, scene, theme, hatches, width, x0, x1);
  c.fillStyle = theme.line;
  c.fillRect(x0, row.y + half - 0.5, x1 - x0, 1);
}

function paintHalf(
  c: CanvasRenderingContext2D, lane: MarkerLane, y: number, height: number, scene: Scene, theme: Theme, hatches: Hatches,
  width: number, x0: number, x1: number,
): void {
  const { view, limits } = scene;
  const [from, to] = [tOf(view, width, x0 - REACH_PX), tOf(view, width, x1 + 12)];
  let markers = lane.index.meeting(from, to);
  if (scene.compare?.only) markers = markers.filter((marker) => scene.compare!.told.differs.has(marker.marker_id));
  if (levelOf(span(view) / width) === 'density' && lane.kind !== 'cut') {
    const spans = markers.map((marker) => ({ x0: xOf(view, width, marker.start_pts_ms), x1: xOf(view, width, endOf(marker, limits.frameMs)) }));
    return density(c, spans, y, height, theme[COLOUR[lane.kind]], x0, x1);
  }
  const marks = markers.map((marker) => {
    const left = xOf(view, width, marker.start_pts_ms);
    const right = Math.max(xOf(view, width, endOf(marker, limits.frameMs)), left + (lane.kind === 'cut' ? 0 : 3));
    return { x0: left, x1: right, rank: 1, alone: lane.kind === 'cut' };
  });
  const made = clusters(marks, lane.kind === 'cut' ? 4 : 2);
  made.forEach((cluster, i) => {
    const next = made[i + 1]?.x0 ?? width + 40;
    if (cluster.count > 1) return counted(c, cluster, y, height, theme[COLOUR[lane.kind]], theme);
    paintMarker(c, markers[cluster.first]!, cluster, lane, next, y, height, scene, theme, hatches, width);
  });
}

function paintMarker(
  c: CanvasRenderingContext2D, marker: Marker, at: Cluster, lane: MarkerLane, next: number, y: number, height: number,
  scene: Scene, theme: Theme, hatches: Hatches, width: number,
): void {
  const selected = scene.selected?.marker === marker.marker_id;
  const dim = scene.compare !== null && !scene.compare.told.differs.has(marker.marker_id);
  c.globalAlpha = dim ? 0.4 : 1;
  const colour = theme[COLOUR[lane.kind]];
  if (lane.kind === 'cut') {
    diamond(c, at.x0, y, height, colour);
    if (selected || (next - at.x0 > 64 && height > 15))
      label(c, score(marker.confidence), at.x0 + 10, y, height, next - at.x0 - 14, colour, 600, theme);
  } else {
    bar(c, marker, at, y, height, colour, lane, scene, hatches, width);
    const text = lane.kind === 'art' ? artifactText(marker, scene) : labelOf(marker, scene);
    const left = Math.max(at.x0, 0);
    const inset = lane.kind === 'art' ? at.x1 - left + 6 : marker.status === 'finalized' ? 11 : 8;
    const room = Math.min(next, width) - left - inset - 4;
    if (text && height > 15 && room > 30 && at.x1 > 0)
      label(c, text, left + inset, y, height, room, lane.kind === 'art' ? colour : theme.ink, 520, theme);
  }
  c.globalAlpha = 1;
  if (selected && lane.kind !== 'cut') outline(c, at, y, height, theme.ink);
}

/** Dashed without fill, filled with one bar, filled with two bars and a hatched line where the first one was. */
function bar(
  c: CanvasRenderingContext2D, marker: Marker, at: Cluster, y: number, height: number, colour: string, lane: MarkerLane,
  scene: Scene, hatches: Hatches, width: number,
): void {
  const wide = Math.max(3, at.x1 - at.x0 - 1);
  const [top, high] = [y + 2.5, height - 5];
  if (marker.status === 'provisional') {
    c.strokeStyle = colour;
    c.lineWidth = 1.2;
    c.setLineDash([3, 2.5]);
    c.stroke(rounded(at.x0 + 0.6, top, Math.max(2, wide - 1), high, 3));
    c.setLineDash([]);
    return;
  }
  const artifact = lane.kind === 'art';
  const before = c.globalAlpha;
  c.globalAlpha = before * (artifact ? 1 : 0.22);
  c.fillStyle = artifact ? hatches.art : colour;
  const shape = rounded(at.x0, top - 0.5, wide, high + 1, 3);
  c.fill(shape);
  c.globalAlpha = before;
  c.strokeStyle = c.fillStyle = colour;
  if (artifact) {
    c.lineWidth = 1;
    c.stroke(shape);
  } else c.fill(rounded(at.x0, top - 0.5, Math.min(3, wide), high + 1, 1.5));
  if (marker.status !== 'finalized') return;
  c.fillRect(at.x0 + 4.5, top - 0.5, 2, high + 1);
  const replaced = lane.replaced.get(marker.marker_id);
  if (!replaced) return;
  const left = Math.max(xOf(scene.view, width, replaced.start_pts_ms), at.x0 + 8);
  const right = xOf(scene.view, width, endOf(replaced, scene.limits.frameMs));
  c.fillStyle = hatches.seen;
  if (right > left) c.fillRect(left, y + height - 5.5, right - left, 3.5);
}

function diamond(c: CanvasRenderingContext2D, x: number, y: number, height: number, colour: string): void {
  const half = Math.min(8.5, height / 2 - 1);
  const middle = y + height / 2;
  c.fillStyle = colour;
  c.beginPath();
  c.moveTo(x, middle - half);
  c.lineTo(x + half * 0.68, middle);
  c.lineTo(x, middle + half);
  c.lineTo(x - half * 0.68, middle);
  c.fill();
}

export function outline(c: CanvasRenderingContext2D, at: { x0: number; x1: number }, y: number, height: number, colour: string): void {
  c.strokeStyle = colour;
  c.lineWidth = 1.5;
  c.stroke(rounded(at.x0 - 0.5, y + 1.5, Math.max(4, at.x1 - at.x0), height - 3, 4));
}

/** A cluster: one bar with the number of marks in it. */
export function counted(c: CanvasRenderingContext2D, at: Cluster, y: number, height: number, colour: string, theme: Theme): void {
  c.fillStyle = colour;
  c.globalAlpha = 0.55;
  c.fill(rounded(at.x0 - 0.5, y + 4, Math.max(3, at.x1 - at.x0), height - 8, 2));
  c.globalAlpha = 1;
  if (height > 15 && at.x1 - at.x0 > 24)
    label(c, `×${at.count}`, at.x0 + 4, y, height, at.x1 - at.x0 - 6, theme.ink, 620, theme);
}

export function label(
  c: CanvasRenderingContext2D, text: string, x: number, y: number, height: number, room: number, colour: string, weight: number, theme: Theme,
): void {
  c.font = `${weight} 11px ${theme.font}`;
  const fitted = fitText(c, text, room);
  if (!fitted) return;
  c.fillStyle = colour;
  c.textBaseline = 'middle';
  c.fillText(fitted, x, y + height / 2 + 0.5);
}

/** Returns the label of a model's marker: that of the words that begin with it. */
function labelOf(marker: Marker, scene: Scene): string {
  const word = scene.words.meeting(marker.start_pts_ms, marker.start_pts_ms + 1).at(-1);
  return word && word.type === marker.event_type && word.label ? word.label.replaceAll('_', ' ') : '';
}

/** The signal that an artifact was found by: the one that is highest against its limit. */
function artifactText(marker: Marker, scene: Scene): string {
  const limits = scene.limitsOfGate;
  if (!limits) return '';
  let best = { name: '', share: 0 };
  for (const name of ['flicker', 'ghosting', 'noise'] as const) {
    const share = scene.peak(name, marker.start_pts_ms, marker.end_pts_ms) / limits[name];
    if (share > best.share) best = { name, share };
  }
  return best.name ? scene.text.signal(best.name as 'flicker') : '';
}

/** Columns as high as they are covered. */
export function density(
  c: CanvasRenderingContext2D, spans: readonly { x0: number; x1: number }[], y: number, height: number, colour: string, x0: number, x1: number,
): void {
  const column = 4;
  const first = Math.floor(x0 / column);
  const cover = new Float32Array(Math.ceil((x1 - first * column) / column) + 1);
  for (const { x0: a, x1: b } of spans) {
    for (let n = Math.max(0, Math.floor(a / column) - first); n <= Math.floor(b / column) - first && n < cover.length; n++) {
      const left = (n + first) * column;
      cover[n]! += Math.max(0.06, (Math.min(b, left + column) - Math.max(a, left)) / column);
    }
  }
  c.fillStyle = colour;
  c.globalAlpha = 0.75;
  cover.forEach((value, n) => {
    if (value === 0) return;
    const high = Math.max(2, Math.min(1, value) * (height - 6));
    c.fillRect((n + first) * column, y + height - 3 - high, column - 1, high);
  });
  c.globalAlpha = 1;
}
