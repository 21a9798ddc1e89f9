/** Scene of the canvases: all that drawing needs, gathered before a frame is drawn. */

import type { Comparison } from '../compare';
import type { Episode } from '../episodes';
import type { IntervalIndex } from '../intervals';
import type { Layout, MarkerLane } from '../lanes';
import type { Series, SignalName } from '../pyramid';
import type { View } from '../scale';
import type { Reason, Thresholds } from '../signals';
import type { Still } from '../stills';
import type { Limits } from '../view';
import type { Piece } from '../windows';

export interface Word {
  id: string;
  start: number;
  /** Until the next word. */
  end: number;
  text: string;
  type: string;
  label: string | null;
  confidence: number | null;
  /** `seq` of the words that these repeat. */
  reused: number | null;
  seq: number;
}

interface Band {
  from: number;
  to: number;
  text: string;
}

export interface LoopBand {
  from: number;
  to: number;
  repeats: number;
}

/** A decision by limits that are tried, with the time of its frame. */
export interface Tried {
  reason: Reason;
  kept: boolean;
  pts: number;
}

/** Rows of single frames, with hashes. */
export interface Frames {
  points: Series;
  hashes: BigUint64Array;
}

export interface Scene {
  view: View;
  limits: Limits;
  layout: Layout;
  scroll: number;
  head: number;
  headText: string;
  hover: number | null;
  selected: { from: number; to: number; marker?: string; frame?: number; episode?: number } | null;
  playing: boolean;
  /** Time of the shown clock at media time 0; 0 for media time. */
  origin: number;
  clock: boolean;
  compact: boolean;
  limitsOfGate: Thresholds | null;
  overview: Series[];
  /** The finest points that are known of each part of a range. */
  pieces(from: number, to: number): Piece[];
  frames(from: number, to: number): Frames[];
  /** Highest value of a signal within a range. */
  peak(name: SignalName, from: number, to: number): number;
  /** Place in `REASONS` of why a frame was kept, where it is known. */
  reasonOf(frame: number): number;
  stills: IntervalIndex<Still>;
  bitmap(sha: string): ImageBitmap | undefined;
  /** A picture of a frame that was taken from the video. */
  grabbed(frame: number): ImageBitmap | undefined;
  words: IntervalIndex<Word>;
  episodes: IntervalIndex<Episode>;
  /** All lanes, of which the layout shows some. */
  lanes: readonly MarkerLane[];
  gaps: readonly Band[];
  loops: readonly LoopBand[];
  live: boolean;
  compare: { lanes: readonly MarkerLane[]; told: Comparison; only: boolean } | null;
  /** Decisions by thresholds that are tried, by frame. */
  tried: ReadonlyMap<number, Tried> | null;
  /** Words on the canvas, in the language of the page. */
  text: { quiet(value: string): string; times(count: number): string; signal(name: SignalName): string; share(value: number): string };
}
