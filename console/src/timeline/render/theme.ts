/** Colours of the page for the canvases, which no style sheet reaches. */

import { colours, type Colour } from '../../ui/colours.svelte';

export type Theme = Record<Colour, string> & { font: string };

/** System colours, where the system asks for them alone. */
const FORCED: Partial<Record<Colour, string>> = {
  bg: 'Canvas', panel: 'Canvas', raise: 'Canvas', hover: 'Canvas', strip: 'Canvas', line: 'GrayText', accent: 'Highlight', tint: 'transparent', area: 'transparent',
};

export function readTheme(element: Element): Theme {
  const forced = matchMedia('(forced-colors: active)').matches;
  const found = colours();
  if (forced) for (const name of Object.keys(found) as Colour[]) found[name] = FORCED[name] ?? 'CanvasText';
  return { ...found, font: getComputedStyle(element).fontFamily };
}

/** Stripes for artifacts, gaps and replaced markers; drawn once for each colour and scale. */
export function hatch(context: CanvasRenderingContext2D, colour: string, scale: number, ground = 0.16): CanvasPattern {
  const size = Math.round(7 * scale);
  const tile = new OffscreenCanvas(size, size);
  const c = tile.getContext('2d')!;
  c.globalAlpha = ground;
  c.fillStyle = colour;
  c.fillRect(0, 0, size, size);
  c.globalAlpha = 0.75;
  c.strokeStyle = colour;
  c.lineWidth = 1.5 * scale;
  c.beginPath();
  for (const at of [-size, 0, size]) {
    c.moveTo(at - 2, size + 2);
    c.lineTo(at + size + 2, -2);
  }
  c.stroke();
  const pattern = context.createPattern(tile, 'repeat')!;
  pattern.setTransform(new DOMMatrix().scale(1 / scale));
  return pattern;
}
