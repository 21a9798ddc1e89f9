/** Names, moments and sentences of the run page. */

import type { Schemas } from '../api/client';
import { score, share, span } from '../app/format';
import { t, type Key } from '../app/messages.svelte';
import type { RunPage } from './page.svelte';
import type { Episode } from '../timeline/episodes';
import { clockText, timeText } from '../timeline/scale';
import type { Thresholds } from '../timeline/signals';

const TYPES: Record<string, Key> = {
  scene_cut: 'type.scene_cut',
  artifact_suspected: 'type.artifact_suspected',
  keyframe_keep: 'type.keyframe_keep',
  context_observation: 'type.context_observation',
};

/** Returns the name of a type of marker; one of a model as it said it, in words. */
export function typeName(type: string): string {
  const key = TYPES[type];
  const words = type.replaceAll('_', ' ').trim();
  return key ? t(key) : words.charAt(0).toUpperCase() + words.slice(1);
}

/** A name within a sentence: a noun of German keeps its capital. */
export const within = (name: string): string => (document.documentElement.lang === 'de' ? name : name.toLowerCase());

/** A moment on the clock that the page shows. */
export function momentText(page: Pick<RunPage, 'clock' | 'origin'>, ms: number, digits: number): string {
  return page.clock && page.origin !== null ? clockText(ms + page.origin, digits) : timeText(ms, digits);
}

/** Names in the order of a list, as the language joins them. */
export const listed = (names: readonly string[]): string =>
  new Intl.ListFormat(document.documentElement.lang || 'en', { type: 'conjunction' }).format(names);

/** An episode in one line: start, length, peak, zones. */
export function episodeText(page: Pick<RunPage, 'clock' | 'origin'>, episode: Episode): string {
  const { start_pts_ms: start, end_pts_ms: end, peak_score: peak, zones } = episode;
  const length = end === null ? t('activity.lasts') : span(end - start);
  const told = t('activity.line', { start: momentText(page, start, 1), length, peak: share(peak) });
  return zones.length ? t('activity.line_zones', { told, zones: listed(zones) }) : told;
}

/** A frame as `GET frames/{n}` tells of it. */
export type FrameAnswer = Pick<
  Schemas.FrameExplanation,
  'frame_index' | 'pts_ms' | 'flicker_score' | 'ghosting_score' | 'noise_variance_score' | 'scene_score' | 'activity_score' | 'luma_shift' | 'kept'
> & { reason: string; thresholds: Thresholds };

/** As much moves in it as starts an episode of activity. */
export const isOver = ({ activity_score: score, thresholds }: FrameAnswer): boolean => score !== null && score >= (thresholds.activity_on ?? Infinity);

export interface Bar {
  signal: 'scene' | 'luma_step' | 'flicker' | 'ghosting' | 'noise';
  value: number;
  limit: number;
}

/** The values that the gate holds against its limits. */
export function barsOf(frame: FrameAnswer): Bar[] {
  const limits = frame.thresholds;
  return [
    { signal: 'scene', value: frame.scene_score ?? 0, limit: limits.scene_cut },
    { signal: 'luma_step', value: frame.luma_shift ?? 0, limit: limits.luma_shift },
    { signal: 'flicker', value: frame.flicker_score, limit: limits.flicker },
    { signal: 'ghosting', value: frame.ghosting_score, limit: limits.ghosting },
    { signal: 'noise', value: frame.noise_variance_score, limit: limits.noise },
  ];
}

interface Sentence {
  key: Key;
  parameters: Record<string, string | number>;
  /** Colour of the number that decided. */
  colour: 'cut' | 'art' | null;
}

const ARTIFACTS: Record<string, Bar['signal']> = {
  flicker_suspected: 'flicker', ghosting_suspected: 'ghosting', noise_variance_spike: 'noise',
};

/** Explains the decision about a frame, from the reason and its numbers alone. `first` is the run's first frame. */
export function why(frame: FrameAnswer, first: number, name: (signal: Bar['signal']) => string): Sentence {
  const bars = barsOf(frame);
  const bar = (signal: Bar['signal']) => bars.find((one) => one.signal === signal)!;
  const plain = (key: Key, parameters = {}): Sentence => ({ key, parameters, colour: null });
  const over = (key: Key, one: Bar, colour: 'cut' | 'art', more = {}): Sentence =>
    ({ key, parameters: { v: score(one.value), l: score(one.limit), ...more }, colour });
  const every = frame.thresholds.keepalive_frames;
  const ms = frame.thresholds.keepalive_ms;
  switch (frame.reason) {
    case 'initial_frame':
      return plain('why.initial_frame');
    case 'scene_cut':
      return frame.scene_score === null ? plain('why.scene_cut_hash') : over('why.scene_cut', bar('scene'), 'cut');
    case 'activity_started':
    case 'activity_peak':
    case 'activity_settled':
      return plain(`why.${frame.reason}`, { v: share(frame.activity_score ?? 0), l: share(frame.thresholds.activity_on ?? 0) });
    case 'periodic_keepalive':
      return ms ? plain('why.periodic_keepalive_ms', { every: span(ms) }) : plain('why.periodic_keepalive', { n: every });
    case 'exposure_shift':
      return over('why.exposure_shift', bar('luma_step'), 'art');
    case 'no_trigger': {
      if (isOver(frame)) return plain('why.activity_goes_on', { v: share(frame.activity_score!) });
      if (shareOf(bar('luma_step')) >= 1) return over('why.light_steps', bar('luma_step'), 'art');
      const nearest = bars.reduce((best, one) => (shareOf(one) > shareOf(best) ? one : best));
      const numbers = { signal: name(nearest.signal), v: score(nearest.value), l: score(nearest.limit) };
      if (ms) return plain('why.no_trigger_ms', { ...numbers, every: span(ms) });
      if (every === 0) return plain('why.no_trigger_no_clock', numbers);
      const next = first + (Math.floor((frame.frame_index - first) / every) + 1) * every;
      return plain('why.no_trigger', { ...numbers, n: String(next) });
    }
  }
  const artifact = ARTIFACTS[frame.reason];
  if (artifact) {
    const signal = name(artifact);
    return over(frame.kept ? 'why.artifact_kept' : 'why.artifact', bar(artifact), 'art', { signal });
  }
  return plain(frame.kept ? 'why.other_kept' : 'why.other', { reason: frame.reason.replaceAll('_', ' ') });
}

const shareOf = (bar: Bar): number => (bar.limit > 0 ? bar.value / bar.limit : bar.value > 0 ? Infinity : 0);
