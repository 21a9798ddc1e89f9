/** Reads an answer of `GET signals` into points. */

import type { Schemas } from 'sightline-client';
import { firstWhere } from './order';
import { emptySeries, SIGNALS, type Series, type SignalName } from './pyramid';

/** Reasons of the gate, weakest first: the place is the rank of a mark and its bit in a series. */
export const REASONS = [
  'no_trigger', 'initial_frame', 'periodic_keepalive', 'activity_settled', 'activity_peak', 'activity_started',
  'exposure_shift', 'noise_variance_spike', 'ghosting_suspected', 'flicker_suspected', 'scene_cut',
] as const;
export type Reason = (typeof REASONS)[number];

const FIELDS: Record<SignalName, string> = {
  scene: 'scene_score',
  luma: 'luma_mean',
  flicker: 'flicker_score',
  ghosting: 'ghosting_score',
  noise: 'noise_variance_score',
  activity: 'activity_score',
};

/** Those of activity are missing in logs of before there was any. */
export type Thresholds = Omit<Schemas.GateThresholds, 'activity_on' | 'activity_off'> & Partial<Schemas.GateThresholds>;

/** Threshold of a curve; luma has none, its step has. */
export const limitOf = (name: SignalName, limits: Thresholds): number | null =>
  name === 'luma' ? null : name === 'scene' ? limits.scene_cut : name === 'activity' ? (limits.activity_on ?? null) : limits[name];

/** Height of a value in its lane, 0 to 1. What moves is often a hundredth of the picture: its third root keeps that in sight. */
export const heightOf = (name: SignalName, value: number): number => {
  const inside = Math.min(1, Math.max(0, value));
  return name === 'activity' ? Math.cbrt(inside) : inside;
};

interface Answer {
  stream_id: string | null;
  frames: number;
  thresholds: Thresholds;
  signals: Record<string, unknown>[] | null;
  buckets: Record<string, unknown>[] | null;
}

export interface Window {
  stream: string | null;
  frames: number;
  limits: Thresholds;
  /** Each point is a frame: nothing finer can be fetched. */
  exact: boolean;
  points: Series;
  /** Perceptual hashes, where each point is a frame. */
  hashes: BigUint64Array | null;
}

const bit = (reason: string): number => 1 << Math.max(0, REASONS.indexOf(reason as Reason));

export function readSignals(answer: Answer): Window {
  const exact = answer.signals !== null;
  const rows = answer.signals ?? answer.buckets ?? [];
  const points = emptySeries(rows.length);
  const hashes = exact ? new BigUint64Array(rows.length) : null;
  rows.forEach((row, i) => {
    if (hashes) {
      readFrame(row, points, i);
      hashes[i] = BigInt(`0x${row.perceptual_hash as string}`);
    } else readBucket(row, points, i);
  });
  return { stream: answer.stream_id, frames: answer.frames, limits: answer.thresholds, exact, points, hashes };
}

function readFrame(row: Record<string, unknown>, points: Series, i: number) {
  points.start[i] = points.end[i] = row.pts_ms as number;
  points.firstFrame[i] = row.frame_index as number;
  points.frames[i] = 1;
  points.kept[i] = row.kept ? 1 : 0;
  points.reasons[i] = bit(row.reason as string);
  for (const name of SIGNALS) {
    const value = (row[FIELDS[name]] as number | null) ?? NaN;
    const curve = points.curves[name];
    curve.min[i] = curve.max[i] = curve.mean[i] = value;
  }
  const luma = points.curves.luma.mean;
  points.step[i] = i > 0 ? Math.abs(luma[i]! - luma[i - 1]!) : 0;
}

function readBucket(row: Record<string, unknown>, points: Series, i: number) {
  points.start[i] = row.start_pts_ms as number;
  points.end[i] = row.end_pts_ms as number;
  points.firstFrame[i] = row.first_frame as number;
  points.frames[i] = row.frames as number;
  points.kept[i] = row.kept_frames as number;
  for (const reason of Object.keys(row.reasons as object)) points.reasons[i]! |= bit(reason);
  for (const name of SIGNALS) {
    const spread = row[FIELDS[name]] as Schemas.SignalSpread | null;
    const curve = points.curves[name];
    curve.min[i] = spread?.min ?? NaN;
    curve.max[i] = spread?.max ?? NaN;
    curve.mean[i] = spread?.mean ?? NaN;
  }
}

/** The frame at a moment, as well as the points tell: exact where they are frames. */
export function frameAt(points: Series, t: number): number {
  if (points.length === 0) return 0;
  const i = Math.max(0, firstWhere(points.length, (at) => points.start[at]! > t) - 1);
  const inside = points.frames[i]! - 1;
  const length = points.end[i]! - points.start[i]!;
  const share = length > 0 ? Math.min(1, Math.max(0, (t - points.start[i]!) / length)) : 0;
  return points.firstFrame[i]! + Math.floor(share * inside + 1e-6);
}

/** Index of the point that holds a frame, or of the nearest before it. */
export function indexOfFrame(points: Series, frame: number): number {
  return Math.max(0, firstWhere(points.length, (i) => points.firstFrame[i]! > frame) - 1);
}

/** The moment of a frame, likewise. */
export function timeOfFrame(points: Series, frame: number): number {
  if (points.length === 0) return 0;
  const i = indexOfFrame(points, frame);
  const inside = points.frames[i]! - 1;
  const share = inside > 0 ? Math.min(1, Math.max(0, (frame - points.firstFrame[i]!) / inside)) : 0;
  return points.start[i]! + share * (points.end[i]! - points.start[i]!);
}

/** Typical distance of two frames. */
export function frameLength(points: Series): number {
  const frames = points.length ? points.firstFrame[points.length - 1]! + points.frames[points.length - 1]! - points.firstFrame[0]! : 0;
  const length = points.length ? points.end[points.length - 1]! - points.start[0]! : 0;
  return frames > 1 && length > 0 ? length / (frames - 1) : 40;
}
