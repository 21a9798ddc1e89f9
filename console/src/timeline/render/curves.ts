/** Curves of signals: grey until a limit is crossed, broken at gaps, every peak a hair. */

import type { Row } from '../lanes';
import { indexAt, levelFor, type Series, type SignalName } from '../pyramid';
import { tOf, xOf, type View } from '../scale';
import { heightOf, limitOf, REASONS } from '../signals';
import type { Scene } from './scene';
import type { Theme } from './theme';

const EXPOSURE = 1 << REASONS.indexOf('exposure_shift');
const COLOURS: Record<SignalName, 'cut' | 'art' | 'ink2'> = { scene: 'cut', luma: 'art', flicker: 'art', ghosting: 'art', noise: 'art', activity: 'ink2' };
/** Lowest height of a hair. */
const HAIR_PX = 0.3;

export function paintCurve(c: CanvasRenderingContext2D, row: Row, scene: Scene, theme: Theme, width: number, x0: number, x1: number): void {
  const name = row.signal!;
  const { view } = scene;
  const quiet = row.quiet !== undefined;
  const bottom = row.y + row.height - (quiet ? 3 : 4);
  const top = row.y + 2;
  const y = (value: number) => bottom - heightOf(name, value) * (bottom - top);
  const limit = scene.limitsOfGate && limitOf(name, scene.limitsOfGate);
  const [from, to] = [tOf(view, width, x0 - 3), tOf(view, width, x1 + 3)];
  for (const piece of scene.pieces(from, to)) {
    const series = levelFor(piece.levels, piece.from, piece.to, ((piece.to - piece.from) / (to - from)) * (x1 - x0));
    const traced = trace(series, name, view, width, piece.from, piece.to, y, scene.limits.frameMs);
    stroke(c, traced, y, quiet ? null : (limit ?? null), theme, COLOURS[name], quiet);
    if (name === 'luma') dots(c, series, view, width, piece.from, piece.to, y, theme.art);
  }
  if (limit !== null && limit !== undefined && !quiet) {
    c.strokeStyle = theme.edge;
    c.lineWidth = 1;
    c.setLineDash([2, 4]);
    c.lineDashOffset = xOf(view, width, 0) % 6;
    c.beginPath();
    c.moveTo(x0, Math.round(y(limit)) + 0.5);
    c.lineTo(x1, Math.round(y(limit)) + 0.5);
    c.stroke();
    c.setLineDash([]);
  }
}

interface Trace {
  line: Path2D;
  area: Path2D;
  hairs: Path2D;
}

function trace(
  series: Series, name: SignalName, view: View, width: number, from: number, to: number, y: (v: number) => number, frameMs: number,
): Trace {
  const { min, max, mean } = series.curves[name];
  const [line, area, hairs] = [new Path2D(), new Path2D(), new Path2D()];
  const floor = y(0);
  const gap = Math.max(2000, frameMs * 12);
  let open = false;
  let lastX = 0;
  const close = () => {
    if (open) area.lineTo(lastX, floor);
    open = false;
  };
  const first = Math.max(0, indexAt(series, from) - 1);
  for (let i = first; i < series.length; i++) {
    if (Number.isNaN(mean[i])) {
      close();
      continue;
    }
    if (i > first && series.start[i]! - series.end[i - 1]! > gap) close();
    const x = xOf(view, width, (series.start[i]! + series.end[i]!) / 2);
    const level = y(mean[i]!);
    if (open) {
      line.lineTo(x, level);
      area.lineTo(x, level);
    } else {
      line.moveTo(x, level);
      area.moveTo(x, floor);
      area.lineTo(x, level);
      open = true;
    }
    if (y(min[i]!) - y(max[i]!) > HAIR_PX) {
      hairs.moveTo(x, y(min[i]!));
      hairs.lineTo(x, y(max[i]!));
    }
    lastX = x;
    if (series.start[i]! > to) break;
  }
  close();
  return { line, area, hairs };
}

function stroke(
  c: CanvasRenderingContext2D, { line, area, hairs }: Trace, y: (v: number) => number, limit: number | null,
  theme: Theme, colour: 'cut' | 'art' | 'ink2', quiet: boolean,
): void {
  c.lineJoin = 'round';
  c.lineWidth = quiet ? 1 : 1.2;
  c.strokeStyle = theme.curve;
  c.globalAlpha = quiet ? 0.7 : 1;
  if (!quiet) {
    c.fillStyle = theme.area;
    c.fill(area);
  }
  c.stroke(line);
  c.lineWidth = 1;
  c.globalAlpha = quiet ? 0.7 : 0.75;
  c.stroke(hairs);
  c.globalAlpha = 1;
  if (limit === null) return;
  c.save();
  c.beginPath();
  c.rect(-10, y(1) - 3, 1e5, y(limit) - y(1) + 3);
  c.clip();
  c.fillStyle = c.strokeStyle = theme[colour];
  c.globalAlpha = 0.34;
  c.fill(area);
  c.globalAlpha = 1;
  c.lineWidth = 1.8;
  c.stroke(line);
  c.stroke(hairs);
  c.restore();
}

/** Dots where the light changed by more than its limit, one for each 6 px. */
function dots(
  c: CanvasRenderingContext2D, series: Series, view: View, width: number, from: number, to: number, y: (v: number) => number, colour: string,
): void {
  c.fillStyle = colour;
  let last = -Infinity;
  for (let i = Math.max(0, indexAt(series, from) - 1); i < series.length && series.start[i]! <= to; i++) {
    const x = xOf(view, width, series.start[i]!);
    if (!(series.reasons[i]! & EXPOSURE) || x - last < 6) continue;
    c.beginPath();
    c.arc(x, y(series.curves.luma.mean[i]!), 2.5, 0, 7);
    c.fill();
    last = x;
  }
}
