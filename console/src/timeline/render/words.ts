/** Descriptions of models along the time: two lines from each description to the next. */

import type { Row } from '../lanes';
import { levelOf, span, tOf, xOf } from '../scale';
import type { Scene } from './scene';
import { twoLines } from './text';
import type { Theme } from './theme';

export function paintWords(c: CanvasRenderingContext2D, row: Row, scene: Scene, theme: Theme, width: number, x0: number, x1: number): void {
  const { view } = scene;
  const words = scene.words.meeting(tOf(view, width, x0), tOf(view, width, x1));
  const plain = levelOf(span(view) / width) === 'density';
  const [top, high] = [row.y + 4, row.height - 9];
  let covered = -Infinity;
  for (const word of words) {
    const start = xOf(view, width, word.start);
    const left = Math.max(0, start);
    const room = Math.min(width, xOf(view, width, word.end)) - left;
    const on = scene.head >= word.start && scene.head < word.end;
    if (start - covered < 3 && !on) continue;
    covered = start;
    c.fillStyle = on ? theme.ink : word.reused === null ? theme.seen : theme.edge;
    c.globalAlpha = plain ? 0.7 : 1;
    c.fillRect(start, top, 2, high);
    c.globalAlpha = 1;
    if (room < 44 || plain) continue;
    c.font = `${on ? 560 : 430} 11px ${theme.font}`;
    c.fillStyle = on ? theme.ink : word.reused === null ? theme.ink2 : theme.ink3;
    c.textBaseline = 'middle';
    twoLines(c, word.text, room - 14).forEach((line, n, lines) => c.fillText(line, left + 8, top + high / 2 + (n - (lines.length - 1) / 2) * 16));
  }
}
