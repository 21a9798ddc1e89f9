/** The state of a run page: the view, the head, the selection; all lanes and panels derive from it. Long because every move is one of its. */

import { settings } from '../app/settings.svelte';
import { writePlace, type Place } from '../timeline/address';
import { compared, type Comparison } from '../timeline/compare';
import { episodeEnd, episodeIndex, peakOf, type Episode } from '../timeline/episodes';
import type { IntervalIndex } from '../timeline/intervals';
import { endOf, markerLanes, QUIET_TYPES, type Marker, type MarkerLane } from '../timeline/lanes';
import type { Tried, Word } from '../timeline/render/scene';
import { levelOf, span, zoneOffset, type View } from '../timeline/scale';
import { frameAt, timeOfFrame, type Thresholds } from '../timeline/signals';
import { snapped } from '../timeline/snap';
import type { Still } from '../timeline/stills';
import { advanced, clamped, fitted, panned, revealed, tailed, ViewStack, whole, zoomed, type Move, type Tail } from '../timeline/view';
import type { Draft } from '../zones/zones.svelte';
import { worthALane, type RunData } from './data.svelte';

type Selection =
  | { kind: 'marker'; id: string }
  | { kind: 'frame'; frame: number }
  /** By its first frame. */
  | { kind: 'episode'; start: number }
  | { kind: 'range'; from: number; to: number };

export const EVERY_SIGNAL = ['scene', 'luma', 'flicker', 'noise', 'ghosting'] as const;
const JUMP_MS = 160;
const REST_MS = 250;

export class RunPage {
  view = $state.raw<View>({ from: 0, to: 1 });
  head = $state(0);
  hover = $state<number | null>(null);
  /** The episode under the pointer, or that the keyboard has reached. */
  pointed = $state.raw<Episode | null>(null);
  selection = $state.raw<Selection | null>(null);
  tail = $state.raw<Tail>({ following: false, unseen: 0 });
  /** The whole run as it was known last. */
  private all: View = { from: 0, to: 1 };
  clock = $state(false);
  snap = $state(true);
  playing = $state(false);
  /** Lanes shown although they are hidden by default, and hidden although shown. */
  extra = $state.raw<readonly string[]>([]);
  hidden = $state.raw<readonly string[]>([]);
  large = $state(false);
  table = $state(false);
  width = $state(1000);
  /** Said politely to screen readers: what a jump reached. */
  said = $state('');
  tried = $state.raw<{ limits: Thresholds; decisions: ReadonlyMap<number, Tried>; episodes: readonly Episode[] | null } | null>(null);
  other = $state.raw<{ id: string; markers: readonly Marker[] } | null>(null);
  onlyDifferences = $state(false);
  /** Zones that are drawn over the picture. */
  draft = $state.raw<Draft | null>(null);
  search = $state<string | undefined>(undefined);
  hits = $state.raw<readonly number[]>([]);

  readonly origin: number | null = $derived.by(() => {
    const start = this.data.wallStart;
    return start === null ? null : start + zoneOffset(start, settings.zone);
  });
  readonly comparison: Comparison | null = $derived.by(() => (this.other ? compared(this.other.markers.filter(worthALane), this.data.markers.filter(worthALane)) : null));
  readonly otherLanes: MarkerLane[] = $derived.by(() => (this.other ? markerLanes(this.other.markers, this.data.limits.frameMs) : []));
  /** Lanes that are shown, those of a compared analysis among them. */
  readonly lanes: MarkerLane[] = $derived.by(() => {
    const known = new Set(this.data.lanes.map((lane) => lane.type));
    const all = [...this.data.lanes, ...this.otherLanes.filter((lane) => !known.has(lane.type))];
    return all.filter((lane) => this.shows(lane.type));
  });
  readonly marker: Marker | null = $derived.by(() => {
    const { selection } = this;
    if (selection?.kind !== 'marker') return null;
    return this.data.markers.find((marker) => marker.marker_id === selection.id)
      ?? this.other?.markers.find((marker) => marker.marker_id === selection.id) ?? null;
  });
  /** Episodes that are shown: recorded ones, or those of limits that are tried. */
  readonly episodes: IntervalIndex<Episode> = $derived.by(() => (this.tried?.episodes ? episodeIndex(this.tried.episodes) : this.data.episodeIndex));
  readonly episode: Episode | null = $derived.by(() => {
    const { selection } = this;
    return selection?.kind === 'episode' ? (this.episodes.items.find((one) => one.start_frame === selection.start) ?? null) : null;
  });
  /** The frame that the inspector is about. */
  readonly frame: number = $derived.by(() => {
    if (this.selection?.kind === 'frame') return this.selection.frame;
    if (this.marker) return this.marker.start_frame;
    if (this.episode) return this.episode.peak_frame;
    return this.frameOf(this.head);
  });
  readonly band: { from: number; to: number; marker?: string; frame?: number; episode?: number } | null = $derived.by(() => this.bandOf());
  readonly word: Word | undefined = $derived.by(() => this.data.wordIndex.meeting(this.head, this.head).filter((word) => this.head < word.end).at(-1));

  private stack: ViewStack | null = null;
  private animation = 0;
  /** End of the movement of the view that is under way. */
  private goal: View | null = null;
  private rest: ReturnType<typeof setTimeout> | undefined;
  private pendingMove: Move = 'pan';

  constructor(
    readonly data: RunData,
    /** Writes the address; `push` where Back shall undo it. */
    private readonly write: (query: ReturnType<typeof writePlace>, push: boolean) => void,
  ) {}

  private shows(type: string): boolean {
    return !this.hidden.includes(type) && (!QUIET_TYPES.includes(type) || this.extra.includes(type));
  }

  toggleLane(type: string): void {
    const flip = (list: readonly string[]) => (list.includes(type) ? list.filter((one) => one !== type) : [...list, type]);
    if (QUIET_TYPES.includes(type)) this.extra = flip(this.extra);
    else this.hidden = flip(this.hidden);
    this.store(false);
  }

  /** Takes a place: of the address at first, or of Back. */
  take(place: Place, first: boolean): void {
    const { limits } = this.data;
    const asked = place.from !== undefined ? { from: place.from, to: place.to! } : whole(limits);
    this.view = clamped(asked, limits);
    this.all = whole(limits);
    this.head = this.inside(place.t ?? (first && this.data.live ? limits.end : limits.start));
    this.clock = (place.clock ?? false) && this.origin !== null;
    this.extra = place.lanes ?? [];
    this.search = place.q;
    this.selection = place.m ? { kind: 'marker', id: place.m } : place.f !== undefined ? { kind: 'frame', frame: place.f }
      : place.e !== undefined ? { kind: 'episode', start: place.e } : null;
    if (place.m && place.t === undefined && this.marker) this.head = this.marker.start_pts_ms;
    if (place.f !== undefined && place.t === undefined) this.head = this.timeOf(place.f);
    if (this.episode && place.t === undefined) this.head = this.peakTime(this.episode);
    if (first) {
      this.stack = new ViewStack(this.view);
      this.tail = { following: this.data.live && place.from === undefined && place.t === undefined, unseen: 0 };
      if (place.t !== undefined && place.from === undefined && span(this.view) > 120_000)
        this.view = clamped({ from: place.t - 30_000, to: place.t + 30_000 }, limits);
    }
    void this.data.windows.around(this.frameOf(this.head));
  }

  get place(): Place {
    const { selection } = this;
    return {
      t: this.head,
      ...(this.tail.following ? {} : (this.goal ?? this.view)),
      m: selection?.kind === 'marker' ? selection.id : undefined,
      f: selection?.kind === 'frame' ? selection.frame : undefined,
      e: selection?.kind === 'episode' ? selection.start : undefined,
      a: this.analysis,
      b: this.other?.id,
      lanes: this.extra.length ? [...this.extra] : undefined,
      clock: this.clock || undefined,
      stream: this.data.stream,
      q: this.search,
    };
  }

  analysis = $state<string | undefined>(undefined);

  /** Writes the place to the address once the view has come to rest. */
  store(push: boolean): void {
    clearTimeout(this.rest);
    if (push) this.write(writePlace(this.place), true);
    else this.rest = setTimeout(() => this.write(writePlace(this.place), false), REST_MS);
  }

  private settle(move: Move): void {
    clearTimeout(this.rest);
    this.pendingMove = move === 'pan' && this.pendingMove === 'zoom' ? 'zoom' : move;
    this.rest = setTimeout(() => {
      const push = this.stack?.settle(this.goal ?? this.view, this.pendingMove) === 'push';
      this.pendingMove = 'pan';
      this.write(writePlace(this.place), push);
    }, move === 'jump' ? JUMP_MS + 20 : REST_MS);
  }

  get canGoBack(): boolean {
    return (this.stack?.depth ?? 0) > 0;
  }

  /** Shows the view before. */
  back(): void {
    const view = this.stack?.back();
    if (!view) return;
    this.letGo();
    this.animate(view);
    this.store(false);
  }

  private letGo(by: 'user' | 'edge' = 'user'): void {
    if (!this.data.live) return;
    this.tail = tailed(this.tail, { kind: 'moved', view: this.view, edge: this.data.limits.end, by });
  }

  /** Zooms by a factor; about the head where nothing else is named. */
  zoom(factor: number, about = this.head, smooth = false): void {
    const { view } = this;
    const centre = about >= view.from && about <= view.to ? about : (view.from + view.to) / 2;
    const next = zoomed(view, factor, centre, this.data.limits);
    if (smooth) this.animate(next);
    else this.move(next);
    this.letGo();
    this.settle('zoom');
  }

  pan(by: number, smooth = false): void {
    const next = panned(this.view, by, this.data.limits);
    if (smooth) this.animate(next);
    else this.move(next);
    this.letGo(by > 0 && next.to >= this.data.limits.end ? 'edge' : 'user');
    this.settle('pan');
  }

  jump(view: View): void {
    this.animate(clamped(view, this.data.limits));
    this.letGo();
    this.settle('jump');
  }

  fit(from: number, to: number): void {
    this.jump(fitted(from, to, this.data.limits));
  }

  /** Shows times of the clock, or of the media. */
  showClock(on: boolean): void {
    this.clock = on;
    this.store(false);
  }

  showWhole(): void {
    this.jump(whole(this.data.limits));
  }

  /** Moves the view at once. */
  move(view: View): void {
    cancelAnimationFrame(this.animation);
    this.goal = null;
    this.view = view;
  }

  private animate(to: View): void {
    cancelAnimationFrame(this.animation);
    if (matchMedia('(prefers-reduced-motion: reduce)').matches) {
      this.move(to);
      return;
    }
    this.goal = to;
    const from = this.view;
    const start = performance.now();
    const step = (now: number) => {
      const share = Math.min(1, (now - start) / JUMP_MS);
      const eased = 1 - (1 - share) ** 3;
      const between = (a: number, b: number) => a + (b - a) * eased;
      this.view = share < 1 ? { from: between(from.from, to.from), to: between(from.to, to.to) } : to;
      if (share < 1) this.animation = requestAnimationFrame(step);
      else this.goal = null;
    };
    this.animation = requestAnimationFrame(step);
  }

  frameOf(t: number): number {
    void this.data.came;
    const row = this.data.windows.at(t);
    const points = this.data.windows.overview?.levels[0];
    if (row || points?.length) return row ? row.frame : frameAt(points!, t);
    return Math.max(0, Math.round((t - this.data.limits.start) / this.data.limits.frameMs));
  }

  timeOf(frame: number): number {
    const row = this.data.windows.byNumber(frame);
    const points = this.data.windows.overview?.levels[0];
    if (row || points?.length) return row ? row.pts : timeOfFrame(points!, frame);
    return this.data.limits.start + frame * this.data.limits.frameMs;
  }

  private inside(t: number): number {
    const { start, end, frameMs } = this.data.limits;
    return Math.min(Math.max(t, start), Math.max(start, end - frameMs / 2));
  }

  /** Moves the head; the view follows only where it must. */
  go(t: number, { reveal = true, push = false } = {}): void {
    this.head = this.inside(t);
    void this.data.windows.around(this.frameOf(this.head));
    if (reveal) {
      const next = revealed(this.view, this.head, this.data.limits);
      if (next !== this.view) {
        this.animate(next);
        this.letGo();
      }
    }
    this.store(push);
  }

  /** The moment that a place in the view means, with snap. */
  meant(t: number, free = false): number {
    const { view, width } = this;
    const reach = (span(view) / width) * 8;
    const markers = this.lanes.flatMap((lane) => lane.index.meeting(t - reach, t + reach));
    const stills = this.data.stillIndex.meeting(t - reach, t + reach).map((still) => still.pts_ms);
    const marks = [...stills, ...markers.flatMap((marker) => [marker.start_pts_ms, endOf(marker, this.data.limits.frameMs)])];
    const row = levelOf(span(view) / width) === 'frames' ? this.data.windows.at(t) : null;
    return snapped(t, view, width, { marks: marks.sort((a, b) => a - b), frames: row ? [row.pts] : undefined }, this.snap && !free);
  }

  /** Moves by frames. */
  step(by: number): void {
    this.goToFrame(this.frameOf(this.head) + by);
  }

  goToFrame(frame: number): void {
    const last = Math.max(0, this.data.frames - 1);
    const to = Math.min(Math.max(frame, 0), last);
    const row = this.data.windows.byNumber(to);
    if (this.selection?.kind === 'frame') this.selection = { kind: 'frame', frame: to };
    this.go(row ? row.pts : this.timeOf(to));
    if (!row) void this.data.windows.around(to).then(() => this.frameOf(this.head) !== to && this.go(this.timeOf(to)));
  }

  select(marker: Marker): void {
    this.selection = { kind: 'marker', id: marker.marker_id };
    this.go(marker.start_pts_ms);
  }

  selectStill(still: Still): void {
    this.selection = { kind: 'frame', frame: still.frame_index };
    this.go(still.pts_ms);
  }

  /** The moment of an episode's highest score, of its still where there is one. */
  private peakTime(episode: Episode): number {
    const near = peakOf(episode);
    const reach = Math.max(2000, this.data.limits.frameMs * 4);
    return this.data.stillIndex.meeting(near - reach, near + reach).find((still) => still.frame_index === episode.peak_frame)?.pts_ms ?? near;
  }

  selectEpisode(episode: Episode): void {
    this.selection = { kind: 'episode', start: episode.start_frame };
    this.go(this.peakTime(episode));
  }

  /** The next episode, or the one before. */
  moved(direction: 1 | -1): boolean {
    const { episodes: index } = this;
    const at = this.episode?.start_pts_ms ?? this.head;
    const found = direction > 0 ? index.after(at) : index.before(at);
    if (found) this.selectEpisode(found);
    return found !== undefined;
  }

  selectRange(from: number, to: number): void {
    this.selection = { kind: 'range', from: this.inside(Math.min(from, to)), to: this.inside(Math.max(from, to)) };
    this.store(false);
  }

  clear(): void {
    this.selection = null;
    this.store(false);
  }

  /** The next or previous marker of the lanes in view; of a search the next hit. */
  marked(direction: 1 | -1): boolean {
    const at = this.head;
    if (this.hits.length) {
      const next = direction > 0 ? this.hits.find((hit) => hit > at + 0.5) : this.hits.findLast((hit) => hit < at - 0.5);
      if (next === undefined) return false;
      this.selection = null;
      this.go(next);
      return true;
    }
    const found = this.lanes
      .map((lane) => (direction > 0 ? lane.index.after(at) : lane.index.before(at)))
      .filter((marker): marker is Marker => marker !== undefined)
      .sort((a, b) => direction * (a.start_pts_ms - b.start_pts_ms));
    if (found[0]) this.select(found[0]);
    return found[0] !== undefined;
  }

  still(direction: 1 | -1): boolean {
    const index = this.data.stillIndex;
    const still = direction > 0 ? index.after(this.head) : index.before(this.head);
    if (still) this.selectStill(still);
    return still !== undefined;
  }

  cut(): boolean {
    const lane = this.data.lanes.find((one) => one.kind === 'cut');
    const marker = lane?.index.after(this.head) ?? lane?.index.after(-Infinity);
    if (marker) this.select(marker);
    return marker !== undefined;
  }

  goLive(): void {
    this.tail = tailed(this.tail, { kind: 'live' });
    this.head = this.inside(this.data.limits.end);
    this.animate(advanced(this.view, this.data.limits.end));
  }

  /** The run went on: holds the live edge in view, or counts; a view of the whole run stays one. */
  arrived(count: number): void {
    const [before, all] = [this.all, whole(this.data.limits)];
    this.all = all;
    if (this.data.live) this.tail = tailed(this.tail, { kind: 'arrived', count });
    else if (Math.abs(this.view.from - before.from) < 1 && Math.abs(this.view.to - before.to) < 1) this.view = all;
    if (!this.tail.following) return;
    const edge = this.data.limits.end;
    this.view = span(this.view) >= span(all) * 0.9 || span(all) < 60_000 ? all : advanced(this.view, edge);
    this.head = this.inside(edge);
  }

  private bandOf() {
    const { selection, marker } = this;
    const { frameMs, end } = this.data.limits;
    if (selection?.kind === 'range') return { from: selection.from, to: selection.to };
    if (marker) {
      // A cut begins the shot up to the next one.
      const cuts = marker.event_type === 'scene_cut' ? this.data.lanes.find((lane) => lane.kind === 'cut')?.index : undefined;
      const to = cuts ? (cuts.after(marker.start_pts_ms)?.start_pts_ms ?? end) : endOf(marker, frameMs);
      return { from: marker.start_pts_ms, to, marker: marker.marker_id, frame: marker.start_frame };
    }
    if (this.episode) {
      const { start_pts_ms: from, start_frame, peak_frame } = this.episode;
      return { from, to: episodeEnd(this.episode, frameMs, end), episode: start_frame, frame: peak_frame };
    }
    if (selection?.kind !== 'frame') return null;
    const from = this.timeOf(selection.frame);
    return { from, to: this.data.windows.byNumber(selection.frame)?.next ?? from + frameMs, frame: selection.frame };
  }
}
