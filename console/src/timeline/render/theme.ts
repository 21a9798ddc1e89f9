/** Colours of the page for the canvases, which no style sheet reaches. */

const NAMES = [
  'bg', 'panel', 'raise', 'hover', 'line', 'edge', 'ink', 'ink2', 'ink3', 'accent', 'tint', 'cut', 'art', 'seen',
  'loop', 'curve', 'strip', 'area', 'scrim',
] as const;
type Name = (typeof NAMES)[number];
export type Theme = Record<Name, string> & { font: string };

/** System colours, where the system asks for them alone. */
const FORCED: Record<Name, string> = {
  bg: 'Canvas', panel: 'Canvas', raise: 'Canvas', hover: 'Canvas', line: 'GrayText', edge: 'CanvasText', ink: 'CanvasText',
  ink2: 'CanvasText', ink3: 'CanvasText', accent: 'Highlight', tint: 'transparent', cut: 'CanvasText', art: 'CanvasText',
  seen: 'CanvasText', loop: 'CanvasText', curve: 'CanvasText', strip: 'Canvas', area: 'transparent', scrim: 'Canvas',
};

export function readTheme(element: Element): Theme {
  const style = getComputedStyle(element);
  const forced = matchMedia('(forced-colors: active)').matches;
  const colours = NAMES.map((name) => [name, forced ? FORCED[name] : style.getPropertyValue(`--${name}`).trim()]);
  return { ...(Object.fromEntries(colours) as Record<Name, string>), font: style.fontFamily };
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
