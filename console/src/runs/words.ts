/** Name and state of a run, as the list has them. */
import type { Run } from '../api/client';
import { spans } from './spans';
import { number, t } from '../app/messages.svelte';

/** The run's label, else its file's name, else a piece of its id. */
export function nameOf(run: Pick<Run, 'label' | 'source_uri' | 'run_id'>): string {
  if (run.label) return run.label;
  const uri = run.source_uri ?? '';
  const file = uri.split(/[?#]/)[0]?.replace(/\/+$/, '').split('/').pop() ?? '';
  return file === '' ? t('run.unnamed', { id: run.run_id.slice(4, 12) }) : decoded(file);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** A live source feeds it now. */
export function isLive(run: Run): boolean {
  return (run.status === 'processing' || run.status === 'pending') && (run.session_id !== null || run.source === 'rtsp');
}

type Standing = 'live' | 'waiting' | 'working' | 'completed' | 'resting' | 'empty' | 'failed' | 'cancelled' | 'expired';

export function standingOf(run: Run): Standing {
  if (run.status === 'completed' || run.status === 'failed' || run.status === 'cancelled' || run.status === 'expired') return run.status;
  if (isLive(run)) return 'live';
  if (run.active_job) return run.active_job.status === 'queued' ? 'waiting' : 'working';
  return run.summary || run.status === 'processing' ? 'resting' : 'empty';
}

/** Its source ended before its time, and nobody stopped it. */
export function endedEarly(run: Run): boolean {
  const standing = standingOf(run);
  return run.summary?.truncated === true && (standing === 'completed' || standing === 'resting');
}

/** Something about it that a person should see to. */
export function needsLook(run: Run): boolean {
  return run.status === 'failed' || endedEarly(run) || (run.semantic !== null && (run.semantic.chunks_failed > 0 || run.semantic.fallback_used));
}

export type Filter = 'all' | 'live' | 'working' | 'completed' | 'look';
export const FILTERS: readonly Filter[] = ['all', 'live', 'working', 'completed', 'look'];

export function passes(run: Run, filter: Filter): boolean {
  const standing = standingOf(run);
  switch (filter) {
    case 'all': return true;
    case 'live': return standing === 'live';
    case 'working': return standing === 'working' || standing === 'waiting';
    case 'completed': return standing === 'completed';
    case 'look': return needsLook(run);
  }
}

/** Spans that the list can be cut to, in hours. */
export const SINCE: Record<string, number> = { '1h': 1, '24h': 24, '7d': 168, '30d': 720 };

const by = (value: (run: Run) => number) => (a: Run, b: Run) => value(b) - value(a);

/** Orders of the list by `sort` of the address; the first is its own. */
export const ORDERS = {
  newest: () => 0,
  oldest: (a: Run, b: Run) => a.created_at.localeCompare(b.created_at),
  name: (a: Run, b: Run) => nameOf(a).localeCompare(nameOf(b), undefined, { numeric: true }),
  longest: by((run) => run.summary?.length_ms ?? 0),
  seen: by((run) => run.summary?.counts.descriptions ?? 0),
  cuts: by(cutsOf),
  artifacts: by(artifactsOf),
} satisfies Record<string, (a: Run, b: Run) => number>;
export type Order = keyof typeof ORDERS;

/** Returns the origin and the format of a run's source: `File · 1280 × 720 at 25 fps`. */
export function sourceOf(run: Run): string {
  const kind = run.session_id !== null || run.source === 'whip' ? t('source.whip')
    : run.source === 'rtsp' ? t('source.rtsp')
    : run.source === 'url' ? t('source.url')
    : run.source === 'file' ? t('source.file')
    : t('source.none');
  const { width, height, source_fps } = run.summary ?? {};
  if (!width || !height) return kind;
  const size = `${width} × ${height}`;
  return `${kind} · ${source_fps ? t('source.at', { size, fps: number(source_fps, { maximumFractionDigits: 2 }) }) : size}`;
}

/** Hard cuts, as the gate found them. */
export function cutsOf(run: Run): number {
  return run.summary?.shape.cuts.reduce((sum, cuts) => sum + cuts, 0) ?? 0;
}

/** Stretches of damaged picture: the markers of them, or what the gate suspects where a model named the rest. */
export function artifactsOf(run: Run): number {
  const { counts, shape } = run.summary ?? {};
  return counts?.markers['artifact_suspected'] ?? (shape ? spans(shape.artifacts).length : 0);
}
