/** Events of a live run as they happen: its newest still, its descriptions and its other events, the newest first. */
import { SvelteMap } from 'svelte/reactivity';
import type { RunEvent } from 'sightline-client';
import { causeOf, client, isGone, type Run, type Schemas } from '../api/client';
import { DESCRIBED, follow } from '../api/follow';
import { share, span } from '../app/format';
import { t, type Key } from '../app/messages.svelte';
import { typeName } from '../run/words';

/** Items that the page keeps; older ones are on the run's own page. */
const ITEMS_MAX = 2000;
const STILLS_MAX = 5000;
/** Events that are told in words of their own; others by their kind. */
const TOLD: Record<string, Key> = { state_transition: 'feed.state', source_reconnected: 'feed.reconnected', token_budget_low: 'feed.budget' };
const ENDS = new Set(['run_completed', 'run_failed', 'stop_requested', 'run_expired', 'run_deleted']);

export interface LiveStill { frame: number; pts: number; sha: string; type: string; at: number }

export type Item = { seq: number; pts: number | null; at: number } & (
  | { kind: 'words'; text: string; label: string; confidence: number | null; frame: number; reused: boolean; error: string | null }
  | { kind: 'cut' | 'artifact' | 'loop' | 'still' | 'other'; text: string; frame: number | null }
);

export class LiveFeed {
  items = $state.raw<readonly Item[]>([]);
  stills = $state.raw<readonly LiveStill[]>([]);
  counts = new SvelteMap<'words' | 'cut' | 'artifact', number>();
  /** Nothing is known yet. */
  first = $state(true);
  ended = $state(false);
  gone = $state(false);
  error = $state.raw<unknown>();
  readonly #shas = $derived(new Map(this.stills.map(({ frame, sha }) => [frame, sha])));
  #wallStart: number | null = null;
  #seq = 0;
  /** Words that were loaded and come again as events. */
  #known: ReadonlySet<number> = new Set();
  #abort = new AbortController();

  constructor(readonly run: string) {}

  get newest(): LiveStill | undefined { return this.stills[this.stills.length - 1]; }
  get newestWords(): (Item & { kind: 'words' }) | undefined {
    return this.items.find((item): item is Item & { kind: 'words' } => item.kind === 'words');
  }

  /** The still of a frame, where it was kept. */
  shaOf(frame: number): string | undefined { return this.#shas.get(frame); }

  /** Wall time of a moment of the media, epoch milliseconds. */
  at(pts: number, fallback: number): number { return this.#wallStart === null ? fallback : this.#wallStart + pts; }

  /** Loads what there is, then follows until `stop`; comes back by itself after the last event that it has. */
  async start(): Promise<void> {
    const { signal } = this.#abort;
    try {
      const [record, { keyframes }] = await Promise.all([client.getRun(this.run, { signal }), client.getKeyframes(this.run, {}, { signal })]);
      // After the stills, so that every word before the last of them is in: what follows it comes as events.
      const { interactions } = await client.getInteractions(this.run, {}, { signal });
      this.#begin(record, keyframes, interactions);
      await follow(this.run, this.#seq, signal, (events) => this.#take(events));
      this.ended = true;
    } catch (error) {
      if (signal.aborted) return;
      if (isGone(error)) this.gone = true;
      else this.error = causeOf(error);
    }
  }

  stop(): void {
    this.#abort.abort();
  }

  #begin(record: Run, keyframes: readonly Schemas.Keyframe[], interactions: readonly Schemas.Interaction[]): void {
    this.#wallStart = Object.values(record.wall_start_ms).find((start) => start !== null) ?? null;
    const created = Date.parse(record.created_at);
    const at = (pts: number): number => this.at(pts, created + pts);
    const stills = keyframes.map((still) => this.#still(still, at(still.pts_ms)));
    const frames = new Map(keyframes.map((still) => [still.pts_ms, still.frame_index]));
    const words = interactions.map((said) => {
      const pts = said.start_pts_ms ?? 0;
      return this.#words(said.seq, pts, at(pts), { ...said, frame_index: frames.get(pts) ?? -1 });
    });
    const moments = keyframes.map((still) => this.#moment(still, at(still.pts_ms)));
    this.#seq = keyframes.reduce((seq, still) => Math.max(seq, still.seq), 0);
    this.#known = new Set(interactions.map((said) => said.seq));
    this.stills = stills.slice(-STILLS_MAX);
    this.#add([...words, ...moments].sort((a, b) => b.seq - a.seq));
    this.first = false;
    this.ended = record.status !== 'processing' && record.status !== 'pending';
  }

  #take(came: RunEvent[]): void {
    const events = came.filter((event) => event.seq > this.#seq && !this.#known.has(event.seq));
    if (events.length === 0) return;
    this.#seq = events[events.length - 1]?.seq ?? this.#seq;
    const stills: LiveStill[] = [];
    const items: Item[] = [];
    for (const event of events) {
      const kind: string = event.kind;
      const payload = event.payload as Record<string, unknown>;
      const pts = typeof payload['pts_ms'] === 'number' ? payload['pts_ms'] : null;
      if (this.#wallStart === null && pts !== null) this.#wallStart = event.pts_ms - pts;
      const at = pts === null ? event.pts_ms : this.at(pts, event.pts_ms);
      if (kind === 'keyframe_stored') {
        const still = { ...(payload as unknown as Schemas.Keyframe), seq: event.seq };
        stills.push(this.#still(still, at));
        items.push(this.#moment(still, at));
      } else if (DESCRIBED.has(kind)) items.push(this.#words(event.seq, pts ?? 0, at, payload as unknown as Said));
      else if (kind === 'loop_detected') items.push({ seq: event.seq, pts, at, kind: 'loop', text: t('feed.loop'), frame: Number(payload['frame_index']) });
      else if (kind === 'activity_started' || kind === 'activity_ended') items.push(this.#activity(event.seq, kind, payload as unknown as Schemas.Episode, event.pts_ms));
      else {
        if (ENDS.has(kind)) this.ended = true;
        if (kind === 'run_deleted') this.gone = true;
        const told = TOLD[kind];
        const text = kind === 'marker_emitted' ? t('feed.marker', { type: typeName(String(payload['event_type'])) }) : told ? t(told) : kind.replaceAll('_', ' ');
        items.push({ seq: event.seq, pts, at, kind: 'other', text, frame: null });
      }
    }
    if (stills.length > 0) this.stills = [...this.stills, ...stills].slice(-STILLS_MAX);
    this.#add(items.reverse());
  }

  #add(newer: Item[]): void {
    for (const { kind } of newer) if (kind === 'words' || kind === 'cut' || kind === 'artifact') this.counts.set(kind, (this.counts.get(kind) ?? 0) + 1);
    this.items = [...newer, ...this.items].slice(0, ITEMS_MAX);
  }

  #still(still: Schemas.Keyframe, at: number): LiveStill {
    return { frame: still.frame_index, pts: still.pts_ms, sha: still.image_sha256, type: still.event_type, at };
  }

  #moment({ seq, pts_ms: pts, event_type: type, frame_index: frame }: Schemas.Keyframe, at: number): Item {
    const kind = type === 'scene_cut' ? 'cut' : type === 'artifact_suspected' ? 'artifact' : 'still';
    return { seq, pts, at, kind, text: t(`feed.${kind}`), frame };
  }

  #activity(seq: number, kind: 'activity_started' | 'activity_ended', { start_pts_ms: start, end_pts_ms: end, peak_score, peak_frame }: Schemas.Episode, now: number): Item {
    const pts = end ?? start;
    const text = t(`feed.${kind}`, { peak: share(peak_score), length: span(pts - start) });
    return { seq, pts, at: this.at(pts, now), kind: 'other', text, frame: peak_frame };
  }

  #words(seq: number, pts: number, at: number, said: Said): Item {
    const label = (said.object_label || said.event_type || '').replaceAll('_', ' ');
    const error = said.semantic_error ?? null;
    const text = said.description || said.summary || '';
    return { seq, pts, at, kind: 'words', text, label, confidence: said.confidence, frame: said.frame_index, reused: said.reused_from_seq != null, error };
  }
}

/** Fields that a chunk's answer and a finding of a frame share. */
type Said = Pick<Schemas.FindingPayload, 'frame_index' | 'description' | 'semantic_error'> & Omit<Partial<Schemas.Interaction>, 'confidence'> & Pick<Schemas.Interaction, 'confidence'>;
