/** The head: a line over all rows with its time and frame in the ruler, and the line under the pointer. */

import { xOf } from '../scale';
import { whole } from '../view';
import type { Scene } from './scene';
import { rounded } from './shapes';
import type { Theme } from './theme';

export function paintHead(c: CanvasRenderingContext2D, scene: Scene, theme: Theme, width: number, height: number): void {
  const ruler = scene.layout.rows.find((row) => row.kind === 'ruler')!;
  if (scene.hover !== null) {
    c.fillStyle = theme.ink3;
    c.globalAlpha = 0.5;
    c.fillRect(Math.round(xOf(scene.view, width, scene.hover)), ruler.y + ruler.height, 1, height);
    c.globalAlpha = 1;
  }
  const overview = scene.layout.rows[0]!;
  c.fillStyle = theme.ink;
  if (scene.playing) c.fillRect(xOf(whole(scene.limits), width, scene.head) - 0.75, 1, 1.5, overview.height - 7);
  const x = xOf(scene.view, width, scene.head);
  if (x < -60 || x > width + 60) return;
  c.fillRect(x - 0.75, ruler.y + 20, 1.5, height - ruler.y - 20);
  c.font = `640 11px ${theme.font}`;
  const wide = c.measureText(scene.headText).width + 20;
  const left = Math.min(Math.max(x - wide / 2, 0), width - wide);
  c.fill(rounded(left, ruler.y + 2, wide, 18, 5));
  c.fillStyle = theme.panel;
  c.textBaseline = 'middle';
  c.fillText(scene.headText, left + 10, ruler.y + 11.5);
}
