/** The points of a run's signals: the whole at a glance, and finer windows of what is looked at. */

import { indexAt, type Series } from './pyramid';
import type { Frames } from './render/scene';
import { frameAt, indexOfFrame, type Thresholds } from './signals';
import { keyOfTile, Lru, tilesOf } from './tiles';
import type { Levels } from './work';

export interface Asked {
  from?: number;
  to?: number;
  points: number;
}

/** Fetches and reads signals of frames `from..=to`. */
type Fetch = (asked: Asked, signal: AbortSignal) => Promise<Levels>;

export interface Piece {
  levels: Series[];
  from: number;
  to: number;
}

/** A frame with its time, that of the next one, and what the gate decided about it. */
export interface FrameRow {
  frame: number;
  pts: number;
  next: number;
  kept: boolean;
  reasons: number;
}

interface Held extends Levels {
  from: number;
  to: number;
}

const MOST_BYTES = 64 << 20;
const MOST_FETCHES = 6;
/** Frames before and after the head of which the exact times are wanted. */
const NEAR = 60;
const BYTES_A_POINT = 118;

export class Windows {
  overview: Levels | null = null;
  private readonly tiles = new Lru<Held>(MOST_BYTES);
  private readonly under = new Map<string, AbortController>();
  private near: Held | null = null;

  constructor(
    private readonly fetch: Fetch,
    /** Called when finer points have come. */
    private readonly came: () => void,
  ) {}

  get limits(): Thresholds | null {
    return this.overview?.limits ?? null;
  }

  /** Takes what is known of the whole run. */
  begin(overview: Levels): void {
    this.overview = overview;
    this.tiles.clear();
    this.near = this.exact = null;
  }

  /** Asks for the points of a view that is `width` px wide; what has left it is given up. */
  want(from: number, to: number, width: number, start: number, end: number): void {
    const { overview } = this;
    if (!overview?.levels[0]?.length || overview.exact) return;
    const points = overview.levels[0];
    const wanted = tilesOf(from, to, start, end);
    const keys = new Set(wanted.map(keyOfTile));
    for (const [key, abort] of this.under) if (!keys.has(key)) abort.abort();
    for (const tile of wanted) {
      const key = keyOfTile(tile);
      if (this.tiles.get(key) || this.under.has(key) || this.under.size >= MOST_FETCHES) continue;
      if (this.exactOver(tile.from, tile.to)) continue;
      const share = (tile.to - tile.from) / (to - from);
      const most = Math.min(20_000, Math.max(64, Math.ceil(2 * width * share)));
      if (indexAt(points, tile.to) - indexAt(points, tile.from) >= most) continue;
      const abort = new AbortController();
      this.under.set(key, abort);
      const slack = (points.frames[0] ?? 1) + 2;
      const asked = { from: Math.max(0, frameAt(points, tile.from) - slack), to: frameAt(points, tile.to) + slack, points: most };
      this.fetch(asked, abort.signal)
        .then((window) => {
          this.tiles.set(key, { ...window, ...tile }, (window.levels[0]?.length ?? 0) * BYTES_A_POINT * 1.34);
          this.exact = null;
          this.came();
        })
        .catch(() => {})
        .finally(() => this.under.delete(key));
    }
  }

  /** The finest points of each part of a range. */
  pieces(from: number, to: number): Piece[] {
    const { overview } = this;
    if (!overview?.levels[0]?.length) return [];
    if (overview.exact) return [{ levels: overview.levels, from, to }];
    const held = this.tiles.values().filter((tile) => tile.to > from && tile.from < to && tile.levels[0]?.length);
    held.sort((a, b) => spacing(a) - spacing(b));
    const pieces: Piece[] = [];
    let t = from;
    while (t < to) {
      const best = held.find((tile) => tile.from <= t && tile.to > t);
      const next = best ? best.to : Math.min(to, ...held.map((tile) => tile.from).filter((start) => start > t));
      pieces.push({ levels: best?.levels ?? overview.levels, from: t, to: Math.min(next, to) });
      t = next;
    }
    return pieces;
  }

  /** Windows of single frames that meet a range. */
  frames(from: number, to: number): Frames[] {
    return this.exactWindows()
      .filter(({ levels: [points] }) => points!.start[0]! <= to && points!.end[points!.length - 1]! >= from)
      .map(({ levels, hashes }) => ({ points: levels[0]!, hashes: hashes! }));
  }

  /** The frame that is shown at `t`, where single frames are known around it. */
  at(t: number): FrameRow | null {
    const window = this.exactOver(t, t);
    return window ? rowAt(window.levels[0]!, frameAt(window.levels[0]!, t)) : null;
  }

  /** The frame of a number, likewise. */
  byNumber(frame: number): FrameRow | null {
    for (const { levels: [points] } of this.exactWindows()) {
      const first = points!.firstFrame[0]!;
      if (frame >= first && frame < first + points!.length) return rowAt(points!, frame);
    }
    return null;
  }

  private nearAsked: AbortController | null = null;

  /** Has the exact rows around a frame. */
  async around(frame: number): Promise<void> {
    const row = this.byNumber(frame);
    const last = this.overview?.levels[0];
    const end = last?.length ? last.firstFrame[last.length - 1]! + last.frames[last.length - 1]! - 1 : 0;
    if (row && this.byNumber(Math.max(0, frame - 5)) && this.byNumber(Math.min(end, frame + 5))) return;
    this.nearAsked?.abort();
    const abort = (this.nearAsked = new AbortController());
    const asked = { from: Math.max(0, frame - NEAR), to: frame + NEAR, points: 2 * NEAR + 2 };
    const window = await this.fetch(asked, abort.signal).catch(() => null);
    if (!window || abort.signal.aborted || !window.levels[0]?.length) return;
    const [points] = window.levels;
    this.near = { ...window, from: points!.start[0]!, to: points!.end[points!.length - 1]! };
    this.exact = null;
    this.came();
  }

  end(): void {
    for (const abort of this.under.values()) abort.abort();
    this.nearAsked?.abort();
    this.tiles.clear();
  }

  private exact: Levels[] | null = null;

  private exactWindows(): Levels[] {
    if (this.exact) return this.exact;
    const held: (Levels | null)[] = [this.overview, this.near, ...this.tiles.values()];
    return (this.exact = held.filter((window): window is Levels => window !== null && window.exact && window.levels[0]!.length > 0));
  }

  private exactOver(from: number, to: number): Levels | undefined {
    const last = this.overview?.levels[0];
    const end = last?.length ? last.end[last.length - 1]! : 0;
    return this.exactWindows().find(({ levels: [points] }) => {
      const first = points!.firstFrame[0] === last?.firstFrame[0] ? -Infinity : points!.start[0]!;
      const until = points!.end[points!.length - 1]!;
      return first <= from && (until >= to || until >= end);
    });
  }
}

const spacing = (tile: Held): number => (tile.to - tile.from) / tile.levels[0]!.length;

function rowAt(points: Series, frame: number): FrameRow {
  const i = Math.min(points.length - 1, Math.max(0, frame - points.firstFrame[0]!));
  const at = points.firstFrame[i] === frame ? i : indexOfFrame(points, frame);
  const pts = points.start[at]!;
  const length = at > 0 ? pts - points.start[at - 1]! : (points.start[1] ?? 40) - pts;
  const next = at + 1 < points.length ? points.start[at + 1]! : pts + Math.max(1, length);
  return { frame: points.firstFrame[at]!, pts, next, kept: points.kept[at]! > 0, reasons: points.reasons[at]! };
}
