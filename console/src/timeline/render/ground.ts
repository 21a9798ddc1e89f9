/** Ground under the data: overview with its window, ruler, bands over all lanes, lines between rows. */

import { endOf } from '../lanes';
import { episodeEnd } from '../episodes';
import { levelFor } from '../pyramid';
import { clockText, digitsOf, ticks, timeText, tOf, xOf, type View } from '../scale';
import { whole } from '../view';
import type { Hatches } from './lanes';
import type { Scene } from './scene';
import { rounded } from './shapes';
import { fitText } from './text';
import type { Theme } from './theme';

export function paintGround(c: CanvasRenderingContext2D, scene: Scene, theme: Theme, hatches: Hatches, width: number, height: number): void {
  const { rows, fixed } = scene.layout;
  const ruler = rows.find((row) => row.kind === 'ruler')!;
  const top = ruler.y + ruler.height;
  const x = (t: number) => xOf(scene.view, width, t);
  const { selected } = scene;
  if (selected) {
    c.fillStyle = theme.tint;
    c.fillRect(x(selected.from), top, Math.max(2, x(selected.to) - x(selected.from)), height - top);
  }
  outside(c, scene, theme, width, top, height);
  paintRuler(c, scene, theme, width, ruler.y, ruler.height);
  c.fillStyle = theme.line;
  const line = (y: number) => c.fillRect(0, Math.round(y), width, 1);
  line(ruler.y - 1);
  line(top - 1);
  if (fixed > top) line(fixed - 1);
  c.save();
  c.beginPath();
  c.rect(0, fixed, width, height - fixed);
  c.clip();
  const groups = rows.filter((row, i) => i > 0 && row.y >= fixed && row.kind !== rows[i - 1]!.kind && row.y > fixed);
  for (const row of groups) line(row.y - 4 - scene.scroll);
  c.restore();
  for (const band of scene.gaps) paintGap(c, band.text, x(band.from), x(band.to), top, height, width, theme, hatches);
}

/** Darkens what is before the start and behind the end of the run. */
function outside(c: CanvasRenderingContext2D, scene: Scene, theme: Theme, width: number, top: number, height: number): void {
  const [start, end] = [xOf(scene.view, width, scene.limits.start), xOf(scene.view, width, scene.limits.end)];
  c.fillStyle = theme.bg;
  c.globalAlpha = 0.55;
  if (start > 0) c.fillRect(0, top, start, height - top);
  if (end < width) c.fillRect(end, top, width - end, height - top);
  c.globalAlpha = 1;
}

function paintGap(
  c: CanvasRenderingContext2D, text: string, left: number, right: number, top: number, height: number, width: number, theme: Theme, hatches: Hatches,
): void {
  if (right < 0 || left > width) return;
  const wide = Math.max(2, right - left);
  c.fillStyle = hatches.gap;
  c.fillRect(left, top, wide, height - top);
  const from = Math.max(left, 0) + 8;
  c.font = `540 11px ${theme.font}`;
  const said = fitText(c, text, Math.min(right, width) - from - 12);
  if (said.length < 8) return;
  const lit = c.measureText(said).width + 10;
  c.fillStyle = theme.panel;
  c.fill(rounded(from - 5, top + 72, lit, 18, 4));
  c.fillStyle = theme.ink2;
  c.textBaseline = 'middle';
  c.fillText(said, from, top + 81.5);
}

function paintRuler(c: CanvasRenderingContext2D, scene: Scene, theme: Theme, width: number, y: number, height: number): void {
  const { step, major, minor } = ticks(scene.view, width, scene.clock ? scene.origin : 0, scene.clock ? 100 : 84);
  const bottom = y + height - 1;
  c.fillStyle = theme.edge;
  c.globalAlpha = 0.5;
  for (const t of minor) c.fillRect(Math.round(xOf(scene.view, width, t)), bottom - 5, 1, 5);
  c.globalAlpha = 0.95;
  for (const t of major) c.fillRect(Math.round(xOf(scene.view, width, t)), bottom - 9, 1, 9);
  c.globalAlpha = 1;
  c.fillStyle = theme.ink3;
  c.font = `430 11px ${theme.font}`;
  c.textBaseline = 'alphabetic';
  const digits = digitsOf(step);
  // The time of the head stands over the ruler while it does not run.
  const head = scene.playing ? -1e6 : xOf(scene.view, width, scene.head);
  for (const t of major) {
    if (t < scene.limits.start - 1e-6 && !scene.clock) continue;
    const text = scene.clock ? clockText(t + scene.origin, digits, step < 6e4) : timeText(t, digits);
    const at = xOf(scene.view, width, t) + 5;
    if (Math.abs(at + 16 - head) > 72) c.fillText(text, at, y + 14);
  }
}

/** The overview without its window: what does not change while the view moves. */
export function paintShape(c: CanvasRenderingContext2D, scene: Scene, theme: Theme, width: number, height: number): void {
  const all = whole(scene.limits);
  const x = (t: number) => xOf(all, width, t);
  c.fillStyle = theme.strip;
  c.fill(rounded(0, 2, width, height - 4, 5));
  c.strokeStyle = theme.curve;
  c.globalAlpha = 0.45;
  c.lineWidth = 1;
  c.beginPath();
  if (scene.overview[0]?.length) {
    const points = levelFor(scene.overview, all.from, all.to, Math.min(width / 2, 400));
    for (let i = 0; i < points.length; i++)
      c.lineTo(x((points.start[i]! + points.end[i]!) / 2), height - 6 - points.curves.luma.mean[i]! * (height - 14));
  }
  c.stroke();
  c.globalAlpha = 1;
  c.fillStyle = theme.ink2;
  for (const episode of scene.episodes.items) {
    const left = x(episode.start_pts_ms);
    c.fillRect(left, height - 4.5, Math.max(1.5, x(episodeEnd(episode, scene.limits.frameMs, scene.limits.end)) - left), 1.5);
  }
  for (const lane of scene.lanes) {
    if (lane.kind === 'plain') continue;
    const seen = lane.kind === 'seen';
    c.fillStyle = theme[seen ? 'seen' : lane.kind === 'cut' ? 'cut' : 'art'];
    for (const marker of lane.markers) {
      const left = x(marker.start_pts_ms);
      const wide = Math.max(seen ? 2 : 3, x(endOf(marker, scene.limits.frameMs)) - left);
      if (lane.kind === 'cut') c.fillRect(left - 0.75, 4, 1.5, height - 8);
      else c.fillRect(left, seen ? height - 8 : 5, wide, 3);
    }
  }
}

export function paintWindow(c: CanvasRenderingContext2D, scene: Scene, theme: Theme, width: number, height: number): void {
  const all = whole(scene.limits);
  const { from, to } = overviewWindow(scene.view, all, width);
  c.fillStyle = theme.bg;
  c.globalAlpha = 0.62;
  c.fillRect(0, 2, Math.max(0, from), height - 4);
  c.fillRect(to, 2, Math.max(0, width - to), height - 4);
  c.globalAlpha = 1;
  const head = xOf(all, width, scene.head);
  c.fillStyle = theme.ink;
  c.fillRect(head - 0.75, 1, 1.5, height - 2);
  c.strokeStyle = c.fillStyle = theme.accent;
  c.lineWidth = 1.5;
  c.stroke(rounded(from + 0.75, 1.5, Math.max(6, to - from - 1.5), height - 3, 5));
  for (const at of [from, to]) c.fill(rounded(Math.min(Math.max(at, 2.5), width - 2.5) - 2.5, height / 2 - 6, 5, 12, 2.5));
}

/** Returns the position of a view's window in the overview, never narrower than its handles. */
export function overviewWindow(view: View, all: View, width: number): { from: number; to: number } {
  const from = xOf(all, width, view.from);
  const to = xOf(all, width, view.to);
  const short = Math.max(0, 8 - (to - from)) / 2;
  return { from: from - short, to: to + short };
}
