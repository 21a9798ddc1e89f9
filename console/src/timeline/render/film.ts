/** The film strip: stills on a grid in media time with a tick for each kept frame, or frame by frame; loops above it. */

import { clusters, type Cluster } from '../clusters';
import type { Row } from '../lanes';
import { bitsBetween } from '../loops';
import { indexAt } from '../pyramid';
import { levelOf, span, tOf, xOf, type View } from '../scale';
import { REASONS, type Reason } from '../signals';
import { slots, type Still } from '../stills';
import type { Frames, Scene } from './scene';
import { rounded } from './shapes';
import type { Theme } from './theme';

const TICKS = 18;
const GAP = 3;
const RATIO = 16 / 9;
/** Bits of a hash that differ between unrelated pictures: the full height of a cell. */
const FULL_BITS = 36;

export function paintFilm(c: CanvasRenderingContext2D, row: Row, scene: Scene, theme: Theme, width: number, x0: number, x1: number): void {
  const high = row.height - TICKS;
  const top = row.y + 4;
  const single = isSingle(scene.view, width, scene.limits.frameMs);
  const frames = single ? scene.frames(tOf(scene.view, width, x0), tOf(scene.view, width, x1)) : [];
  for (const some of frames) paintFrames(c, some, top, high, scene, theme, width, x0, x1);
  if (!frames.length) {
    paintSlots(c, top, high, scene, theme, width, x0, x1);
    paintTicks(c, top + high + 3, scene, theme, width, x0, x1);
  }
  paintLoops(c, row.y, scene, theme, width);
}

/** A frame narrower than this shows nothing of its picture. */
const CELL = 12;

/** The strip shows frame by frame; wider views have stills. */
export function isSingle(view: View, width: number, frameMs: number): boolean {
  const perPx = span(view) / width;
  return levelOf(perPx) === 'frames' && frameMs >= CELL * perPx;
}

/** Time that a slot of the strip covers. */
export function slotLength(view: View, width: number, high: number): number {
  return ((high * RATIO + GAP) / width) * span(view);
}

function paintSlots(c: CanvasRenderingContext2D, top: number, high: number, scene: Scene, theme: Theme, width: number, x0: number, x1: number): void {
  const { view, limits } = scene;
  const length = slotLength(view, width, high);
  const wide = high * RATIO;
  for (const slot of slots(scene.stills, tOf(view, width, x0), tOf(view, width, x1), length, limits.end)) {
    const x = xOf(view, width, slot.from);
    const cut = Math.min(wide, xOf(view, width, limits.end) - x);
    if (cut < 2) continue;
    const bitmap = slot.still && scene.bitmap(slot.still.image_sha256);
    c.globalAlpha = slot.earlier ? 0.38 : 1;
    tile(c, bitmap, x, top, cut, high, wide, theme);
    c.globalAlpha = 1;
    if (!slot.earlier && slot.still && slot.still.frame_index === scene.selected?.frame) ring(c, x, top, cut, high, theme.ink);
  }
}

function tile(
  c: CanvasRenderingContext2D, bitmap: ImageBitmap | undefined, x: number, y: number, wide: number, high: number, full: number, theme: Theme,
): void {
  c.save();
  c.beginPath();
  c.roundRect(x, y, wide, high, 4);
  if (!bitmap) {
    c.fillStyle = theme.raise;
    c.fill();
  } else {
    c.clip();
    const scale = Math.max(full / bitmap.width, high / bitmap.height);
    const [w, h] = [bitmap.width * scale, bitmap.height * scale];
    c.drawImage(bitmap, x + (full - w) / 2, y + (high - h) / 2, w, h);
  }
  c.restore();
}

function ring(c: CanvasRenderingContext2D, x: number, y: number, wide: number, high: number, colour: string): void {
  c.strokeStyle = colour;
  c.lineWidth = 2;
  c.stroke(rounded(x - 1, y - 1, wide + 2, high + 2, 5));
}

const EXPOSURE = REASONS.indexOf('exposure_shift');
const MOVES = REASONS.indexOf('activity_settled');

const rankOf = (still: Still): number =>
  still.reason ? REASONS.indexOf(still.reason as Reason) : REASONS.indexOf(still.event_type === 'scene_cut' ? 'scene_cut' : still.event_type === 'artifact_suspected' ? 'flicker_suspected' : 'periodic_keepalive');

const colourOf = (rank: number, theme: Theme): string => {
  const reason: Reason = REASONS[rank]!;
  return reason === 'scene_cut' ? theme.cut : rank >= EXPOSURE ? theme.art : rank >= MOVES ? theme.ink : theme.ink3;
};

function paintTicks(c: CanvasRenderingContext2D, y: number, scene: Scene, theme: Theme, width: number, x0: number, x1: number): void {
  const from = tOf(scene.view, width, x0 - 8);
  const stills = scene.stills.meeting(from, tOf(scene.view, width, x1 + 8));
  if (scene.tried) paintTried(c, y, scene, theme, width);
  const marks = stills.filter((still) => scene.tried?.get(still.frame_index)?.kept !== false).map((still) => {
    const x = xOf(scene.view, width, still.pts_ms);
    const rank = Math.max(rankOf(still), scene.reasonOf(still.frame_index));
    return { x0: x - 1, x1: x + 1, rank, alone: rank === REASONS.length - 1 };
  });
  for (const at of clusters(marks, 2)) {
    const colour = colourOf(at.rank, theme);
    if (at.count > 2) pulses(c, at, y, colour, theme);
    else
      for (let i = at.first; i <= at.last; i++) {
        const strong = marks[i]!.rank >= MOVES;
        c.fillStyle = colourOf(marks[i]!.rank, theme);
        c.globalAlpha = strong ? 1 : 0.75;
        c.fillRect(marks[i]!.x0, y, strong ? 2.5 : 1.6, strong ? 7 : 4.5);
      }
    c.globalAlpha = 1;
  }
}

/** Draws the effect of other limits: frames that they would keep as well hollow, those they would drop struck out. */
function paintTried(c: CanvasRenderingContext2D, y: number, scene: Scene, theme: Theme, width: number): void {
  c.strokeStyle = theme.ink;
  c.lineWidth = 1;
  for (const [frame, { kept, pts }] of scene.tried!) {
    const x = xOf(scene.view, width, pts);
    if (x < -4 || x > width + 4) continue;
    const held = scene.stills.meeting(pts, pts).some((still) => still.frame_index === frame);
    if (kept && !held) c.strokeRect(x - 1.5, y - 0.5, 3, 8);
    else if (!kept && held) {
      c.beginPath();
      c.moveTo(x - 3, y);
      c.lineTo(x + 3, y + 7);
      c.moveTo(x + 3, y);
      c.lineTo(x - 3, y + 7);
      c.stroke();
    }
  }
}

/** Many kept frames in one bar with their number. */
function pulses(c: CanvasRenderingContext2D, at: Cluster, y: number, colour: string, theme: Theme): void {
  c.fillStyle = colour;
  c.fill(rounded(at.x0, y - 1, at.x1 - at.x0, 10, 2));
  if (at.x1 - at.x0 < 26) return;
  c.fillStyle = theme.panel;
  c.font = `700 8.5px ${theme.font}`;
  c.textAlign = 'center';
  c.textBaseline = 'middle';
  c.fillText(`×${at.count}`, (Math.max(at.x0, 0) + at.x1) / 2, y + 4.5);
  c.textAlign = 'start';
}

/** Single frames: a cell each with its number, the kept ones with their still, the step of the hash as height. */
function paintFrames(
  c: CanvasRenderingContext2D, { points, hashes }: Frames, top: number, high: number, scene: Scene, theme: Theme, width: number, x0: number, x1: number,
): void {
  const { view, limits } = scene;
  const [from, to] = [tOf(view, width, x0), tOf(view, width, x1)];
  c.textBaseline = 'middle';
  c.textAlign = 'center';
  for (let i = Math.max(0, indexAt(points, from) - 1); i < points.length && points.start[i]! <= to; i++) {
    const x = xOf(view, width, points.start[i]!);
    const next = i + 1 < points.length ? points.start[i + 1]! : points.start[i]! + limits.frameMs;
    const wide = xOf(view, width, Math.min(next, points.start[i]! + limits.frameMs * 3)) - x - 1;
    const frame = points.firstFrame[i]!;
    const tried = scene.tried?.get(frame);
    const kept = tried ? tried.kept : points.kept[i]! > 0;
    const still = kept ? scene.stills.meeting(points.start[i]!, points.start[i]!).find((one) => one.frame_index === frame) : undefined;
    const bitmap = (still && scene.bitmap(still.image_sha256)) ?? scene.grabbed(frame);
    c.globalAlpha = kept ? 1 : 0.5;
    tile(c, bitmap, x, top, Math.max(1, wide), high, Math.max(wide, high * RATIO), theme);
    c.globalAlpha = 1;
    if (frame === scene.selected?.frame) ring(c, x, top, wide, high, theme.ink);
    const bits = i > 0 ? Math.min(1, bitsBetween(hashes[i - 1]!, hashes[i]!) / FULL_BITS) : 0;
    c.fillStyle = colourOf(points.reasons[i]! ? 31 - Math.clz32(points.reasons[i]!) : 0, theme);
    c.globalAlpha = 0.9;
    if (bits > 0) c.fillRect(x, top + high - bits * high, Math.min(3, Math.max(1, wide)), bits * high);
    c.globalAlpha = 1;
    if (kept) c.fillRect(x, top + high + 3, Math.max(2, Math.min(wide, 14)), 3);
    if (wide > 30) {
      c.fillStyle = kept ? theme.ink : theme.ink3;
      c.font = `${kept ? 620 : 430} 10px ${theme.font}`;
      c.fillText(String(frame), x + wide / 2, top + high + 10);
    }
  }
  c.textAlign = 'start';
}

/** A bracket over the strip with the times that the pictures were shown. */
function paintLoops(c: CanvasRenderingContext2D, y: number, scene: Scene, theme: Theme, width: number): void {
  c.strokeStyle = c.fillStyle = theme.loop;
  c.lineWidth = 2;
  for (const loop of scene.loops) {
    const [a, b] = [xOf(scene.view, width, loop.from), Math.max(xOf(scene.view, width, loop.to), xOf(scene.view, width, loop.from) + 6)];
    if (b < 0 || a > width) continue;
    c.beginPath();
    c.moveTo(a + 1, y + 9);
    c.lineTo(a + 1, y + 2);
    c.lineTo(b - 1, y + 2);
    c.lineTo(b - 1, y + 9);
    c.stroke();
    const text = scene.text.times(loop.repeats);
    c.font = `620 10.5px ${theme.font}`;
    const lit = c.measureText(text).width + 10;
    if (b - a < lit) continue;
    const left = Math.max(a, 0) + 4;
    c.fill(rounded(left, y + 1, lit, 14, 4));
    c.fillStyle = theme.panel;
    c.textBaseline = 'middle';
    c.fillText(text, left + 5, y + 8.5);
    c.fillStyle = theme.loop;
  }
}
