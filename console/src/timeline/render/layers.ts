/** Canvases of one size above each other, and the loop that repaints those that need it, then sleeps. */

export const LAYERS = ['ground', 'data', 'stills', 'head'] as const;
export type LayerName = (typeof LAYERS)[number];

/** Draws the columns from `x0` to `x1` of a layer, in CSS pixels. */
type Painter = (context: CanvasRenderingContext2D, x0: number, x1: number) => void;

const MOST_SCALE = 2;

export class Layers {
  readonly contexts: Record<LayerName, CanvasRenderingContext2D>;
  width = 0;
  height = 0;
  scale = 1;
  /** Work done, for tests: whole repaints and shifts of the data layer, repaints of the head. */
  readonly counts = { full: 0, shifted: 0, head: 0 };
  private readonly dirty = new Set<LayerName>();
  private shift = 0;
  private request = 0;
  private rest: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly canvases: Record<LayerName, HTMLCanvasElement>,
    private readonly paint: Record<LayerName, Painter>,
    private readonly before: () => void,
    private readonly after: () => void = () => {},
  ) {
    const context = (name: LayerName) => canvases[name].getContext('2d', { alpha: true })!;
    this.contexts = Object.fromEntries(LAYERS.map((name) => [name, context(name)])) as typeof this.contexts;
  }

  resize(width: number, height: number): void {
    const scale = Math.min(devicePixelRatio || 1, MOST_SCALE);
    if (width === this.width && height === this.height && scale === this.scale) return;
    [this.width, this.height, this.scale] = [width, height, scale];
    for (const name of LAYERS) {
      this.canvases[name].width = Math.max(1, Math.round(width * scale));
      this.canvases[name].height = Math.max(1, Math.round(height * scale));
    }
    this.redraw();
  }

  /** Asks for layers to be painted anew, all where none is named. */
  redraw(...names: LayerName[]): void {
    for (const name of names.length ? names : LAYERS) this.dirty.add(name);
    this.wake();
  }

  /** Moves data and stills sideways; what appears is painted, and all of it once the view rests. */
  pan(dx: number): void {
    this.shift += dx;
    this.dirty.add('ground').add('head');
    this.wake();
    clearTimeout(this.rest);
    this.rest = setTimeout(() => this.redraw('data', 'stills'), 120);
  }

  destroy(): void {
    cancelAnimationFrame(this.request);
    clearTimeout(this.rest);
  }

  private wake(): void {
    this.request ||= requestAnimationFrame(() => {
      this.request = 0;
      this.frame();
    });
  }

  private frame(): void {
    this.before();
    const by = Math.round(this.shift * this.scale);
    const moved = by !== 0;
    for (const name of LAYERS) {
      const shifts = name === 'data' || name === 'stills';
      if (this.dirty.has(name)) this.whole(name);
      else if (shifts && moved) this.strip(name, by);
    }
    if (this.dirty.has('data') && this.counts.full++ === 0) performance.mark('timeline-painted');
    if (!this.dirty.has('data') && moved) this.counts.shifted++;
    if (this.dirty.has('head')) this.counts.head++;
    this.shift = this.dirty.has('data') ? 0 : this.shift - by / this.scale;
    this.dirty.clear();
    this.after();
  }

  private whole(name: LayerName): void {
    const context = this.contexts[name];
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvases[name].width, this.canvases[name].height);
    context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    this.paint[name](context, 0, this.width);
  }

  private strip(name: LayerName, by: number): void {
    const canvas = this.canvases[name];
    if (Math.abs(by) >= canvas.width) return this.whole(name);
    const context = this.contexts[name];
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.globalCompositeOperation = 'copy';
    context.drawImage(canvas, by, 0);
    context.globalCompositeOperation = 'source-over';
    // A little more than what appeared: marks at the seam are painted whole.
    const seam = Math.round(8 * this.scale);
    const left = by > 0 ? 0 : canvas.width + by - seam;
    const wide = Math.abs(by) + seam;
    context.save();
    context.beginPath();
    context.rect(left, 0, wide, canvas.height);
    context.clip();
    context.clearRect(left, 0, wide, canvas.height);
    context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    this.paint[name](context, left / this.scale, (left + wide) / this.scale);
    context.restore();
  }
}
