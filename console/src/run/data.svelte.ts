/** Data of a run: loaded once, then kept up with its events while it goes on. */

import type { Answer, Page, Query, RunEvent } from 'sightline-client';
import { client, isGone, type Run, type Schemas } from '../api/client';
import { connection } from '../api/connection.svelte';
import { every } from '../api/every';
import { DESCRIBED, follow } from '../api/follow';
import { ask } from '../api/http';
import { isLive } from '../runs/words';
import { episodeIndex, joined, type Episode, type Region } from '../timeline/episodes';
import { IntervalIndex } from '../timeline/intervals';
import { markerLanes, type Marker, type MarkerLane } from '../timeline/lanes';
import { loopsOf } from '../timeline/loops';
import { gaps, highest, type SignalName } from '../timeline/pyramid';
import type { LoopBand, Word } from '../timeline/render/scene';
import { frameLength, REASONS, type Thresholds } from '../timeline/signals';
import type { Still } from '../timeline/stills';
import type { Limits } from '../timeline/view';
import { Windows, type Asked } from '../timeline/windows';
import { Work } from '../timeline/work';
import type { Zone } from '../zones/geometry';

interface Analysis {
  id: string;
  model: string;
  markers: number;
  gate: Thresholds | null;
}

/** Fields that a chunk's answer and a live finding share. */
type Said = Pick<Schemas.Interaction, 'seq' | 'description' | 'confidence'> & Partial<Schemas.Interaction>;

const OVERVIEW_POINTS = 4000;
const MOST_LOOPS = 20;
/** Episodes that are asked for at once, and that are held of the run's start; later ones are held where the view is. */
const EPISODES_A_PAGE = 1000;
const MOST_EPISODES = 20_000;
/** A live run's new rows are asked for this often. */
const ROWS_EVERY_MS = 1000;
const RECORD_EVERY_MS = 2000;
const REST_EVERY_MS = 15_000;

export class RunData {
  record = $state.raw<Run | null>(null);
  markers = $state.raw<readonly Marker[]>([]);
  stills = $state.raw<readonly Still[]>([]);
  words = $state.raw<readonly Word[]>([]);
  analyses = $state.raw<readonly Analysis[]>([]);
  loops = $state.raw<readonly LoopBand[]>([]);
  episodes = $state.raw<readonly Episode[]>([]);
  /** Counts the arrivals of finer signals and of pictures. */
  came = $state(0);
  /** Signals of the run have come, or there are none. */
  ready = $state(false);
  frames = $state(0);
  limits = $state.raw<Limits>({ start: 0, end: 0, frameMs: 40 });
  /** Time at which reading ended early, and the reason. */
  cut = $state.raw<{ at: number; reason: string } | null>(null);
  /** Lists leave out events that the server cannot read. */
  damaged = $state(false);
  failure = $state<string | null>(null);
  error = $state.raw<unknown>(null);
  gone = $state(false);
  /** The key was refused, and nothing is followed any more. */
  halted = false;
  /** Counts what arrived since the page began to follow. */
  arrived = $state(0);

  readonly windows: Windows;
  readonly work = new Work();
  readonly stopped = new AbortController();

  readonly terminal = $derived(this.record !== null && !['pending', 'processing'].includes(this.record.status));
  readonly live = $derived(this.record !== null && isLive(this.record));
  readonly wallStart = $derived.by(() => {
    const starts = this.record?.wall_start_ms ?? {};
    return starts[this.stream ?? ''] ?? Object.values(starts).find((start) => start !== null) ?? null;
  });
  readonly lanes: MarkerLane[] = $derived(markerLanes(this.markers, this.limits.frameMs));
  readonly stillIndex = $derived(new IntervalIndex(this.stills, (still) => still.pts_ms, (still) => still.pts_ms));
  readonly wordIndex = $derived(new IntervalIndex(this.words, (word) => word.start, (word) => word.end));
  readonly episodeIndex = $derived(episodeIndex(this.episodes));
  /** It is known of the run what moves. */
  readonly moves = $derived.by(() => {
    void this.frames;
    return this.episodes.length > 0 || (this.windows.overview?.levels.at(-1)?.curves.activity.max.some((value) => !Number.isNaN(value)) ?? false);
  });
  readonly gaps = $derived.by(() => {
    void this.frames;
    const points = this.windows.overview?.levels[0];
    return points ? gaps(points, this.limits.frameMs) : [];
  });

  private seq = 0;
  private round = new AbortController();
  private readonly noted = <T extends { damaged_events?: number }>(list: T): T => ((this.damaged ||= !!list.damaged_events), list);

  constructor(
    readonly id: string,
    readonly stream: string | undefined,
    private analysis: string | undefined,
  ) {
    this.windows = new Windows(
      (asked, signal) => this.fetchSignals(asked, signal),
      () => (this.came += 1),
    );
  }

  /** Loads all, and follows what comes until `end`, or until it begins anew. */
  async begin(): Promise<void> {
    this.round.abort();
    const { signal } = (this.round = new AbortController());
    this.error = null;
    this.halted = false;
    try {
      // The record first: one that has ended is not followed, so all must be read after its end.
      await this.loadRecord();
      // Words after the stills, so that none before the last still is missing: what follows it comes as events.
      const [signals, stills] = [this.loadSignals(), this.loadStills()];
      const told = Promise.all([stills.then(() => this.loadWords()), Promise.all([signals, stills]).then(() => this.loadEpisodes())]);
      await Promise.all([signals, this.loadMarkers(), told, this.loadAnalyses()]);
      if (signal.aborted) return;
      void this.loadLoops();
      void this.loadCut();
      void this.keepUp(signal);
    } catch (error) {
      if (!signal.aborted) this.failed(error);
    }
  }

  end(): void {
    this.stopped.abort();
    this.round.abort();
    this.windows.end();
    this.work.end();
  }

  private failed(error: unknown): void {
    if (this.stopped.signal.aborted) return;
    if (isGone(error)) this.gone = true;
    else if (connection.refused) this.halted = true;
    else this.error = error;
  }

  private async loadRecord(): Promise<void> {
    const record = await client.getRun(this.id, { signal: this.stopped.signal });
    if (JSON.stringify(record) !== JSON.stringify(this.record)) this.record = record;
  }

  private async fetchSignals({ from, to, points }: Asked, signal: AbortSignal) {
    const query = { stream_id: this.stream, from_frame: from, to_frame: to, max_points: points };
    const answer = await ask(`v1/runs/${this.id}/signals`, { query, signal });
    return this.work.signals(await answer.arrayBuffer());
  }

  async loadSignals(): Promise<void> {
    const overview = await this.fetchSignals({ points: OVERVIEW_POINTS }, this.stopped.signal);
    const points = overview.levels[0]!;
    this.windows.begin(overview);
    const frameMs = frameLength(points);
    if (points.length) this.limits = { start: points.start[0]!, end: points.end[points.length - 1]! + frameMs, frameMs };
    this.frames = overview.frames;
    this.bound();
    this.ready = true;
  }

  /** Without recorded signals, as of a run that is live, the stills say how far it goes. */
  private bound(): void {
    const [first, last] = [this.stills[0], this.stills.at(-1)];
    if (!first || !last || this.windows.overview?.frames) return;
    const frames = last.frame_index - first.frame_index;
    const frameMs = frames > 0 ? (last.pts_ms - first.pts_ms) / frames : 40;
    this.limits = { start: Math.min(0, first.pts_ms), end: last.pts_ms + frameMs, frameMs };
    this.frames = last.frame_index + 1;
  }

  async loadMarkers(analysis = this.analysis): Promise<void> {
    this.analysis = analysis;
    this.markers = await this.markersOf(analysis);
  }

  async markersOf(analysis: string | undefined): Promise<Marker[]> {
    return this.noted(await client.getMarkers(this.id, { analysis_id: analysis, origin: 'all' }, { signal: this.stopped.signal })).markers;
  }

  private async loadStills(): Promise<void> {
    const { keyframes } = this.noted(await client.getKeyframes(this.id, {}, { signal: this.stopped.signal }));
    this.stills = keyframes;
    this.bound();
    this.seq = keyframes.reduce((seq, still) => Math.max(seq, still.seq), this.seq);
  }

  /** Loads the first page of the episodes; the others follow. */
  private async loadEpisodes(): Promise<void> {
    const page = await this.pageOfEpisodes({});
    this.episodes = page.episodes;
    void this.loadMoreEpisodes(page.nextCursor).catch(() => {});
  }

  private async loadMoreEpisodes(next: string | undefined): Promise<void> {
    for (let count = EPISODES_A_PAGE; next; count += EPISODES_A_PAGE) {
      if (count >= MOST_EPISODES) return void (this.heldEpisodes = this.episodes);
      const page = await this.pageOfEpisodes({ cursor: next });
      this.episodes = joined(this.episodes, page.episodes);
      next = page.nextCursor;
    }
  }

  private async pageOfEpisodes(query: Query<'getActivity'>): Promise<Page<Answer<'getActivity'>>> {
    const asked = { ...query, stream_id: this.episodesOf, limit: EPISODES_A_PAGE };
    return this.noted(await client.getActivity(this.id, asked, { signal: this.stopped.signal }));
  }

  /** The stream whose signals are shown. */
  private get episodesOf(): string | undefined {
    return this.stream ?? this.windows.overview?.stream ?? undefined;
  }

  /** Those of the run's start, where there are more than are held. */
  private heldEpisodes: readonly Episode[] | null = null;
  private episodesFrom = -1;

  /** Has the episodes of a view that lies behind those that are held. */
  async wantEpisodes(from: number, to: number): Promise<void> {
    const last = this.heldEpisodes?.at(-1)?.start_pts_ms ?? Infinity;
    const start = Math.round(Math.max(from - (to - from), last));
    if (to <= last || start === this.episodesFrom) return;
    this.episodesFrom = start;
    const { episodes } = await this.pageOfEpisodes({ from: start }).catch(() => ({ episodes: [] }));
    if (start === this.episodesFrom) this.episodes = joined(this.heldEpisodes!, episodes);
  }

  private async loadWords(): Promise<void> {
    const { interactions } = this.noted(await client.getInteractions(this.id, {}, { signal: this.stopped.signal }));
    this.words = toWords(interactions);
  }

  async loadAnalyses(): Promise<void> {
    const found: Analysis[] = [];
    await this.queried('analysis_generated', (payload) => {
      const { analysis_id: id, model, markers, gate = null } = payload as { analysis_id?: string; model: string; markers: number; gate?: Thresholds };
      if (id) found.push({ id, model, markers, gate });
    });
    this.analyses = found;
  }

  private async queried(kind: Schemas.EventKind, take: (payload: Record<string, unknown>) => void): Promise<void> {
    let from = 0;
    for (let page = 0; page < 10; page++) {
      const answer = await client.query({ run_id: this.id, kind, from_seq: from }, { signal: this.stopped.signal });
      for (const { payload } of answer.matches) take(payload as Record<string, unknown>);
      if (!answer.has_more) return;
      from = answer.next_from_seq;
    }
  }

  /** The zones of the newest recording of the stream that is shown. */
  async zones(): Promise<{ zones: Zone[]; only: boolean }> {
    const { watched: [own] } = await client.getActivity(this.id, { stream_id: this.episodesOf, limit: 1 }, { signal: this.stopped.signal });
    return { zones: (own?.zones ?? []) as unknown as Zone[], only: own?.activity_zones_only ?? false };
  }

  /** Boxes of what moves, of the frames that have one, where the run has at most so many. */
  async boxes(most: number, signal: AbortSignal): Promise<{ frame: number; box: Region }[]> {
    const { signals } = await client.signals(this.id, { stream_id: this.stream, max_points: most }, { signal });
    return (signals ?? []).flatMap(({ frame_index: frame, activity_region: box }) => (box ? [{ frame, box }] : []));
  }

  /** Finds how far each loop goes and how often it repeats, by the hashes after its start. */
  private async loadLoops(): Promise<void> {
    const starts: { frame: number; pts: number }[] = [];
    await this.queried('loop_detected', ({ frame_index, pts_ms }) => starts.push({ frame: Number(frame_index), pts: Number(pts_ms) })).catch(() => {});
    const found: LoopBand[] = [];
    for (const { frame, pts } of starts.slice(0, MOST_LOOPS)) {
      if (found.some((loop) => pts >= loop.from && pts <= loop.to)) continue;
      const asked = { from: Math.max(0, frame - 500), to: frame + 3000, points: 20_000 };
      const rows = await this.fetchSignals(asked, this.stopped.signal).catch(() => null);
      const points = rows?.levels[0];
      if (!rows?.hashes || !points) continue;
      for (const loop of loopsOf(rows.hashes)) {
        const band = { from: points.start[loop.first]!, to: points.end[loop.last]!, repeats: loop.repeats };
        if (!found.some((one) => one.from <= band.to && band.from <= one.to)) found.push(band);
      }
    }
    this.loops = found;
  }

  /** Reads why decoding ended early from the head of `frames_decoded`, whose signals are left unread. */
  private async loadCut(): Promise<void> {
    if (this.frames === 0) return;
    const body = { run_id: this.id, kind: 'frames_decoded', limit: 1 };
    const response = await ask('v1/query', { body, signal: this.stopped.signal }).catch(() => null);
    const reader = response?.body?.pipeThrough(new TextDecoderStream()).getReader();
    let head = '';
    while (reader && head.length < 20_000 && !head.includes('"signals":')) {
      const { done, value } = await reader.read();
      if (done) break;
      head += value;
    }
    await reader?.cancel().catch(() => {});
    const said = head.split('"signals":')[0]!;
    if (!said.includes('"truncated":true')) return;
    this.cut = { at: this.limits.end, reason: /"reason":"([^"]{0,200})"/.exec(said)?.[1] ?? '' };
  }

  private async keepUp(signal: AbortSignal): Promise<void> {
    if (this.record?.status === 'failed') await this.loadFailure();
    if (signal.aborted) return;
    const poll = (ms: number, act: () => Promise<void>, when: () => boolean) => {
      const end = every(ms, async () => { if (when() && !this.gone) await act().catch((error) => this.failed(error)); });
      signal.addEventListener('abort', end);
    };
    poll(RECORD_EVERY_MS, () => this.loadRecord(), () => !this.terminal);
    poll(REST_EVERY_MS, () => this.loadRecord(), () => this.terminal);
    if (this.terminal) return;
    poll(ROWS_EVERY_MS, () => this.loadSignals(), () => this.live || this.record?.active_job != null);
    await follow(this.id, this.seq, signal, (events) => this.take(events)).catch((error) => { if (!signal.aborted) this.failed(error); });
    if (signal.aborted || this.gone) return;
    await Promise.all([this.loadRecord(), this.loadSignals(), this.loadMarkers(), this.loadAnalyses(), this.loadEpisodes()]).catch((error) => this.failed(error));
    if (this.record?.status === 'failed') await this.loadFailure();
  }

  private async loadFailure(): Promise<void> {
    await this.queried('run_failed', ({ reason }) => (this.failure = String(reason ?? ''))).catch(() => {});
  }

  /** Takes events as they come; those that were loaded already change nothing. */
  private take(events: RunEvent[]): void {
    const stills: Still[] = [];
    const said: Said[] = [];
    const markers: Marker[] = [];
    const episodes: Episode[] = [];
    for (const { kind: told, payload, seq } of events) {
      const kind: string = told;
      if (kind === 'keyframe_stored') stills.push(payload as unknown as Still);
      else if (kind === 'marker_emitted') markers.push(payload as unknown as Marker);
      else if (kind === 'activity_started') episodes.push({ ...(payload as Episode), end_frame: null, end_pts_ms: null });
      else if (kind === 'activity_ended') episodes.push(payload as Episode);
      else if (kind === 'ingest_started') this.episodes = [];
      else if (DESCRIBED.has(kind)) said.push({ ...(payload as Omit<Said, 'seq'>), seq, start_pts_ms: (payload as { pts_ms: number }).pts_ms });
      else if (kind === 'semantic_chunk_inferred') void this.loadWords().catch(() => {});
      else if (kind === 'analysis_generated') void Promise.all([this.loadAnalyses(), this.loadMarkers()]).catch(() => {});
      else if (kind === 'loop_detected') void this.loadLoops();
      else if (kind === 'run_deleted') this.gone = true;
    }
    const fresh = <T>(old: readonly T[], added: T[], key: (item: T) => string | number): T[] => {
      const known = new Set(old.map(key));
      return added.filter((item) => !known.has(key(item)));
    };
    const newStills = fresh(this.stills, stills, (still) => still.frame_index);
    const newWords = fresh(this.words, toWords(said), (word) => word.id);
    const newMarkers = this.analysis ? [] : fresh(this.markers, markers, (marker) => marker.marker_id);
    if (newStills.length) this.stills = [...this.stills, ...newStills];
    this.bound();
    if (newWords.length) this.words = ended([...this.words, ...newWords]);
    if (newMarkers.length) this.markers = [...this.markers, ...newMarkers];
    const newEpisodes = episodes.filter((episode) => episode.stream_id === (this.episodesOf ?? episode.stream_id));
    if (newEpisodes.length) this.episodes = joined(this.episodes, newEpisodes);
    this.arrived += newWords.length || newStills.length || newMarkers.length || newEpisodes.length;
  }

  /** Highest value of a signal within a range. */
  peak(name: SignalName, from: number, to: number): number {
    const peaks = this.windows.pieces(from, to).map((piece) => highest(piece.levels, name, piece.from, piece.to));
    return Math.max(...peaks.filter((value) => !Number.isNaN(value)), -Infinity);
  }

  /** Place in `REASONS` of why a frame was kept, 0 where that is not known. */
  reasonOf(frame: number): number {
    const bits = this.windows.byNumber(frame)?.reasons ?? 0;
    return bits ? Math.min(REASONS.length - 1, 31 - Math.clz32(bits)) : 0;
  }
}

/** The gate's own markers beside a model's words: its cuts and artifacts count as findings, the rest does not. */
export const worthALane = (marker: Marker): boolean =>
  !marker.beside || marker.event_type === 'scene_cut' || marker.event_type === 'artifact_suspected';

function toWords(said: readonly Said[]): Word[] {
  return ended(
    said.filter((one) => one.start_pts_ms !== null && (one.description || one.summary)).map((one) => ({
      id: String(one.seq),
      seq: one.seq,
      start: one.start_pts_ms!,
      end: one.end_pts_ms ?? one.start_pts_ms!,
      text: one.description || (one.summary ?? ''),
      type: one.event_type ?? '',
      label: one.object_label ?? null,
      confidence: one.confidence,
      reused: one.reused_from_seq ?? null,
    })),
  );
}

/** Words in their order, each until the next one. */
function ended(words: Word[]): Word[] {
  const sorted = [...words].sort((a, b) => a.start - b.start || a.seq - b.seq);
  return sorted.map((word, i) => ({ ...word, end: sorted[i + 1]?.start ?? Math.max(word.end, word.start + 10_000) }));
}
