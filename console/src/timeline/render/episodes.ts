/** Lane of activity: a bar for each episode with its peak marked, above the curve of what moves. */

import { clusters } from '../clusters';
import { episodeEnd, peakOf, type Episode } from '../episodes';
import type { Row } from '../lanes';
import { levelOf, span, tOf, xOf } from '../scale';
import { paintCurve } from './curves';
import { counted, density, label, outline } from './lanes';
import type { Scene } from './scene';
import type { Theme } from './theme';

/** Height of the bars; the curve has the rest. */
const BARS = 19;

export function paintActivity(c: CanvasRenderingContext2D, row: Row, scene: Scene, theme: Theme, width: number, x0: number, x1: number): void {
  const bars = row.quiet === undefined ? BARS : 0;
  paintCurve(c, { ...row, y: row.y + bars, height: row.height - bars }, scene, theme, width, x0, x1);
  if (bars === 0) return;
  const { view, limits } = scene;
  const episodes = scene.episodes.meeting(tOf(view, width, x0 - 12), tOf(view, width, x1 + 12));
  const marks = episodes.map((episode) => {
    const left = xOf(view, width, episode.start_pts_ms);
    return { x0: left, x1: Math.max(xOf(view, width, episodeEnd(episode, limits.frameMs, limits.end)), left + 3), rank: 1 };
  });
  if (levelOf(span(view) / width) === 'density') return density(c, marks, row.y, BARS, theme.ink2, x0, x1);
  for (const at of clusters(marks, 2)) {
    if (at.count > 1) counted(c, at, row.y, BARS, theme.ink2, theme);
    else paintEpisode(c, episodes[at.first]!, at, row.y, scene, theme, width);
  }
}

function paintEpisode(
  c: CanvasRenderingContext2D, episode: Episode, at: { x0: number; x1: number }, y: number, scene: Scene, theme: Theme, width: number,
): void {
  const [top, high] = [y + 3, BARS - 5];
  const wide = Math.max(2, at.x1 - at.x0 - 1);
  c.strokeStyle = c.fillStyle = theme.ink2;
  c.lineWidth = 1.2;
  c.beginPath();
  c.roundRect(at.x0 + 0.6, top, Math.max(1, wide - 1), high, 3);
  if (episode.end_pts_ms === null) {
    c.setLineDash([3, 2.5]);
    c.stroke();
    c.setLineDash([]);
  } else {
    c.globalAlpha = 0.28;
    c.fill();
    c.globalAlpha = 1;
  }
  const peak = Math.min(Math.max(xOf(scene.view, width, peakOf(episode)), at.x0 + 1), at.x1 - 1);
  c.beginPath();
  c.moveTo(peak - 3.5, top - 1);
  c.lineTo(peak + 3.5, top - 1);
  c.lineTo(peak, top + 5);
  c.fill();
  c.fillRect(peak - 0.75, top, 1.5, high);
  const left = Math.max(at.x0, 0) + 8;
  // The words keep clear of the peak, on the side that has more room.
  const [from, to] = peak - left > at.x1 - peak ? [left, peak - 6] : [Math.max(left, peak + 7), Math.min(at.x1, width) - 4];
  if (to - from > 30) label(c, [...episode.zones, scene.text.share(episode.peak_score)].join(' · '), from, y + 0.5, BARS, to - from, theme.ink, 520, theme);
  if (scene.selected?.episode === episode.start_frame) outline(c, { x0: at.x0, x1: at.x0 + wide }, y + 0.5, BARS, theme.ink);
}
