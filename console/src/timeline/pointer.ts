/** Pointer, wheel and touch on the plot: pan, zoom, select, set the head. */

import type { RunPage } from '../run/page.svelte';
import type { Episode } from './episodes';
import { isSingle, slotLength } from './render/film';
import { endOf, type Layout, type Marker, type Row } from './lanes';
import { span, tOf, type View } from './scale';
import { slots } from './stills';
import { wheelFactor, whole } from './view';

interface Plot {
  page: () => RunPage;
  width: () => number;
  rows: () => Layout;
  scroll: () => number;
  scrollTo: (to: number) => void;
  canScroll: () => boolean;
  /** Position of the window in the overview. */
  window: () => { from: number; to: number };
  /** Height of the stills of the film row. */
  film: (row: Row) => number;
}

type Gesture = 'pan' | 'range' | 'window' | 'left' | 'right' | 'pinch' | 'none';

const CLICK_PX = 4;
const HANDLE_PX = 10;
const LONG_PRESS_MS = 500;
const REACH_PX = 7;

interface Point {
  x: number;
  y: number;
}

/** Distance of two fingers, and their middle. */
const between = (a: Point, b: Point) => ({ apart: Math.max(10, Math.hypot(a.x - b.x, a.y - b.y)), middle: (a.x + b.x) / 2, y: (a.y + b.y) / 2 });

export class Pointer {
  private readonly down = new Map<number, Point>();
  private gesture: Gesture = 'none';
  private start = { x: 0, y: 0, moved: false };
  private last = { x: 0, y: 0 };
  private pinch = { apart: 1, middle: 0, y: 0 };
  private press: ReturnType<typeof setTimeout> | undefined;
  /** Left and top of the plot, read when a gesture begins. */
  private box = { left: 0, top: 0 };

  constructor(private readonly plot: Plot) {}

  attach(element: HTMLElement): () => void {
    const abort = new AbortController();
    const { signal } = abort;
    const on = <K extends keyof HTMLElementEventMap>(kind: K, act: (event: HTMLElementEventMap[K]) => void, passive = true) =>
      element.addEventListener(kind, act, { signal, passive });
    on('pointerenter', () => this.measure(element));
    on('pointerdown', (event) => this.pressed(event, element));
    on('pointermove', (event) => this.moved(event, element));
    on('pointerup', (event) => this.released(event, element));
    on('pointercancel', (event) => this.dropped(event));
    on('pointerleave', () => (this.plot.page().hover = this.plot.page().pointed = null));
    on('dblclick', (event) => this.doubled(event));
    on('wheel', (event) => this.wheeled(event), false);
    on('contextmenu', (event) => this.gesture === 'range' && event.preventDefault(), false);
    return () => abort.abort();
  }

  private measure(element: HTMLElement): void {
    const { left, top } = element.getBoundingClientRect();
    this.box = { left, top };
  }

  private at(event: MouseEvent): Point {
    return { x: event.clientX - this.box.left, y: event.clientY - this.box.top };
  }

  private rowAt(y: number): Row | undefined {
    const { rows, fixed } = this.plot.rows();
    const inside = y < fixed ? y : y + this.plot.scroll();
    return rows.find((row) => inside >= row.y && inside < row.y + row.height && (y < fixed) === (row.y < fixed));
  }

  private pressed(event: PointerEvent, element: HTMLElement): void {
    if (event.button !== 0) return;
    this.measure(element);
    const at = this.at(event);
    this.down.set(event.pointerId, at);
    element.setPointerCapture(event.pointerId);
    clearTimeout(this.press);
    if (this.down.size === 2) {
      const [a, b] = [...this.down.values()] as [Point, Point];
      this.gesture = 'pinch';
      this.start.moved = true;
      this.pinch = between(a, b);
      return;
    }
    this.start = { ...at, moved: false };
    this.last = at;
    const row = this.rowAt(at.y);
    this.gesture = row?.kind === 'ruler' ? 'range' : row?.kind === 'overview' ? this.overviewGesture(at.x) : 'pan';
    if (event.pointerType === 'touch')
      this.press = setTimeout(() => {
        this.gesture = 'range';
        this.start.moved = true;
        this.plot.page().selectRange(this.time(at.x), this.time(at.x));
      }, LONG_PRESS_MS);
  }

  private overviewGesture(x: number): Gesture {
    const { from, to } = this.plot.window();
    const near = (edge: number) => Math.abs(x - edge) <= HANDLE_PX;
    if (to - from > 2.5 * HANDLE_PX || x < from || x > to) {
      if (near(from)) return 'left';
      if (near(to)) return 'right';
    }
    if (x < from || x > to) this.centre(x);
    return 'window';
  }

  private centre(x: number): void {
    const page = this.plot.page();
    const t = tOf(whole(page.data.limits), this.plot.width(), x);
    page.pan(t - (page.view.from + page.view.to) / 2);
  }

  private time(x: number): number {
    return tOf(this.plot.page().view, this.plot.width(), x);
  }

  private moved(event: PointerEvent, element: HTMLElement): void {
    const at = this.at(event);
    const page = this.plot.page();
    if (!this.down.has(event.pointerId)) {
      const row = this.rowAt(at.y);
      page.hover = row && row.kind !== 'overview' ? this.time(at.x) : null;
      page.pointed = (row?.kind === 'activity' && this.episodesAt(at.x)[0]) || null;
      element.style.cursor = this.cursorAt(at, row);
      return;
    }
    const before = this.last;
    this.down.set(event.pointerId, at);
    if (this.gesture === 'pinch') return this.pinched();
    if (!this.start.moved && Math.hypot(at.x - this.start.x, at.y - this.start.y) < CLICK_PX) return;
    clearTimeout(this.press);
    this.start.moved = true;
    this.last = at;
    const width = this.plot.width();
    const perPx = span(page.view) / width;
    if (this.gesture === 'pan') {
      element.style.cursor = 'grabbing';
      page.hover = page.pointed = null;
      page.pan((before.x - at.x) * perPx);
    } else if (this.gesture === 'range') page.selectRange(page.meant(this.time(this.start.x), event.altKey), page.meant(this.time(at.x), event.altKey));
    else if (this.gesture !== 'none') this.windowMoved(at.x, (at.x - before.x) * (span(whole(page.data.limits)) / width));
  }

  private windowMoved(x: number, by: number): void {
    const page = this.plot.page();
    if (this.gesture === 'window') return page.pan(by);
    const t = tOf(whole(page.data.limits), this.plot.width(), x);
    const { from, to } = page.view;
    const least = page.data.limits.frameMs * 6;
    const next = this.gesture === 'left' ? Math.min(t, to - least) : Math.max(t, from + least);
    const fixed = this.gesture === 'left' ? to : from;
    page.zoom(Math.abs(fixed - next) / (to - from), fixed);
  }

  private pinched(): void {
    const [a, b] = [...this.down.values()];
    if (!a || !b) return;
    const page = this.plot.page();
    const now = between(a, b);
    const about = this.time(this.pinch.middle);
    page.zoom(this.pinch.apart / now.apart, about);
    page.pan(((this.pinch.middle - now.middle) / this.plot.width()) * span(page.view));
    this.plot.scrollTo(this.plot.scroll() + this.pinch.y - now.y);
    this.pinch = now;
  }

  private released(event: PointerEvent, element: HTMLElement): void {
    const held = this.down.delete(event.pointerId);
    clearTimeout(this.press);
    if (this.gesture === 'pinch' && this.down.size === 1) {
      this.gesture = 'none';
      return;
    }
    if (!held || this.down.size > 0) return;
    if (!this.start.moved && this.gesture !== 'pinch') this.clicked(this.at(event), event.altKey);
    element.style.cursor = '';
    this.gesture = 'none';
  }

  private dropped(event: PointerEvent): void {
    this.down.delete(event.pointerId);
    clearTimeout(this.press);
    this.gesture = 'none';
  }

  private clicked({ x, y }: { x: number; y: number }, free: boolean): void {
    const page = this.plot.page();
    const row = this.rowAt(y);
    if (row?.kind === 'overview') return;
    if (row?.kind === 'film' && this.clickedFilm(row, x, y)) return;
    if (row?.kind === 'markers' && this.clickedLane(row, x)) return;
    if (row?.kind === 'activity' && this.clickedActivity(x)) return;
    if (row?.kind === 'words') {
      const word = page.data.wordIndex.meeting(this.time(x), this.time(x)).at(-1);
      if (word) return page.go(word.start, { reveal: false });
    }
    page.go(page.meant(this.time(x), free), { reveal: false });
    if (!page.selection || !['marker', 'episode'].includes(page.selection.kind) || !page.band || page.head < page.band.from || page.head > page.band.to) page.clear();
  }

  private clickedFilm(row: Row, x: number, y: number): boolean {
    const page = this.plot.page();
    const { view, data } = page;
    const width = this.plot.width();
    if (isSingle(view, width, data.limits.frameMs)) {
      const found = data.windows.at(this.time(x));
      if (found) {
        page.selection = { kind: 'frame', frame: found.frame };
        page.go(found.pts, { reveal: false });
      }
      return found !== null;
    }
    const high = this.plot.film(row);
    if (y > row.y + 4 + high) {
      const reach = (span(view) / width) * REACH_PX;
      const [still] = data.stillIndex.meeting(this.time(x) - reach, this.time(x) + reach);
      if (still) page.selectStill(still);
      return still !== undefined;
    }
    const slot = slots(data.stillIndex, this.time(x), this.time(x) + 1e-6, slotLength(view, width, high), data.limits.end)[0];
    if (slot?.still) page.selectStill(slot.still);
    return slot?.still !== undefined;
  }

  private markersAt(row: Row, x: number): Marker[] {
    const page = this.plot.page();
    const reach = (span(page.view) / this.plot.width()) * REACH_PX;
    return row.lane!.index.meeting(this.time(x) - reach, this.time(x) + reach);
  }

  /** Episodes at a place, those that last there first. */
  private episodesAt(x: number): Episode[] {
    const page = this.plot.page();
    const [t, reach] = [this.time(x), (span(page.view) / this.plot.width()) * REACH_PX];
    const lasts = (one: Episode) => one.start_pts_ms <= t && (one.end_pts_ms ?? Infinity) >= t;
    return page.episodes.meeting(t - reach, t + reach).sort((a, b) => Number(lasts(b)) - Number(lasts(a)));
  }

  private clickedActivity(x: number): boolean {
    const page = this.plot.page();
    const found = this.episodesAt(x);
    return this.chosen(found, (one) => ({ from: one.start_pts_ms, to: one.end_pts_ms ?? Infinity }), found[0], (one) => page.selectEpisode(one));
  }

  private clickedLane(row: Row, x: number): boolean {
    const page = this.plot.page();
    const place = (marker: Marker) => ({ from: marker.start_pts_ms, to: endOf(marker, page.data.limits.frameMs) });
    const [found, t] = [this.markersAt(row, x), this.time(x)];
    const hit = found.find((marker) => place(marker).from <= t && place(marker).to > t) ?? found[0];
    return this.chosen(found, place, hit, (marker) => page.select(marker));
  }

  /** A click on one selects it, on several that are drawn as one zooms to them. */
  private chosen<T>(found: T[], place: (one: T) => View, hit: T | undefined, select: (one: T) => void): boolean {
    const page = this.plot.page();
    const close = (span(page.view) / this.plot.width()) * 4;
    const small = found.map(place).filter((at) => span(at) < close);
    if (small.length > 2) page.fit(Math.min(...small.map((at) => at.from)) - close, Math.max(...small.map((at) => at.to)) + close);
    else if (hit) select(hit);
    return hit !== undefined;
  }

  private doubled(event: MouseEvent): void {
    const { x, y } = this.at(event);
    const row = this.rowAt(y);
    const page = this.plot.page();
    const hit = row?.kind === 'markers' ? this.markersAt(row, x)[0] : undefined;
    if (hit) page.fit(hit.start_pts_ms, endOf(hit, page.data.limits.frameMs));
    else if (row && row.kind !== 'overview') page.zoom(0.5, this.time(x), true);
  }

  private wheeled(event: WheelEvent): void {
    const page = this.plot.page();
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    const [dx, dy] = [event.deltaX * unit, event.deltaY * unit];
    const { x, y } = this.at(event);
    const perPx = span(page.view) / this.plot.width();
    const row = this.rowAt(y);
    const zooms = event.ctrlKey || event.metaKey;
    if (zooms || (Math.abs(dy) > Math.abs(dx) && !event.shiftKey && (row?.kind === 'ruler' || row?.kind === 'overview'))) {
      event.preventDefault();
      const about = row?.kind === 'overview' ? tOf(whole(page.data.limits), this.plot.width(), x) : this.time(x);
      page.zoom(wheelFactor(event.ctrlKey && Math.abs(dy) < 50 ? dy * 6 : dy), about);
    } else if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) {
      event.preventDefault();
      page.pan((event.shiftKey && dx === 0 ? dy : dx) * perPx);
    } else if (this.plot.canScroll()) {
      event.preventDefault();
      this.plot.scrollTo(this.plot.scroll() + dy);
    }
  }

  private cursorAt({ x }: { x: number; y: number }, row: Row | undefined): string {
    const page = this.plot.page();
    if (row?.kind === 'overview') {
      const { from, to } = this.plot.window();
      if (Math.abs(x - from) <= HANDLE_PX || Math.abs(x - to) <= HANDLE_PX) return 'ew-resize';
      return x > from && x < to ? 'grab' : 'pointer';
    }
    if (row?.kind === 'ruler') return 'text';
    if (row?.kind === 'film' || row?.kind === 'words') return 'pointer';
    if (row?.kind === 'markers' && this.markersAt(row, x).length > 0) return 'pointer';
    if (row?.kind === 'activity' && page.pointed) return 'pointer';
    return 'grab';
  }
}
