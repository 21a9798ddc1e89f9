/** The source video in step with the head: seeks to the middle of a frame and confirms which one is shown. */

import { haveTicket, mediaUrl } from '../api/tickets.svelte';
import { Lru } from '../timeline/tiles';
import type { FrameRow, Windows } from '../timeline/windows';

type VideoState = 'none' | 'loading' | 'ready' | 'cannot';

const MOST_CORRECTIONS = 2;
const MOST_GRABBED = 160;
const GRAB_PX = 240;
const GRAB_WAIT_MS = 1500;

const middleOf = (row: FrameRow): number => (row.pts + row.next) / 2000;

export class Video {
  state = $state<VideoState>('none');
  /** Frames that the shown picture is away from the asked one; null where that is not known yet. */
  off = $state<number | null>(null);
  /** Frame that the video shows. */
  shown = $state<number | null>(null);
  url = $state<string | null>(null);
  element: HTMLVideoElement | null = null;
  private wanted: FrameRow | null = null;
  private corrections = 0;
  private renewed = false;

  constructor(
    private readonly run: string,
    private readonly windows: Windows,
    /** Time of the frame that is shown while it plays. */
    private readonly played: (ms: number) => void,
    private readonly ended: () => void,
  ) {}

  async open(): Promise<void> {
    this.state = 'loading';
    await haveTicket(this.run).catch(() => {});
    this.url = mediaUrl(this.run, 'source');
    if (!this.url) this.state = 'cannot';
  }

  attach(element: HTMLVideoElement): () => void {
    this.element = element;
    const abort = new AbortController();
    const { signal } = abort;
    element.addEventListener('loadeddata', () => this.loaded(), { signal });
    element.addEventListener('seeked', () => this.seeked(), { signal });
    element.addEventListener('ended', () => this.ended(), { signal });
    element.addEventListener('error', () => void this.refused(), { signal });
    const presented = (_now: number, { mediaTime }: VideoFrameCallbackMetadata) => {
      this.presented(mediaTime * 1000);
      if (!signal.aborted) element.requestVideoFrameCallback(presented);
    };
    if ('requestVideoFrameCallback' in element) element.requestVideoFrameCallback(presented);
    return () => {
      abort.abort();
      this.element = null;
    };
  }

  private loaded(): void {
    this.state = this.element?.videoWidth ? 'ready' : 'cannot';
    if (this.wanted) this.show(this.wanted);
  }

  /** A ticket lasts ten minutes: takes another one, once, before it gives up. */
  private async refused(): Promise<void> {
    if (this.renewed) {
      this.state = 'cannot';
      return;
    }
    this.renewed = true;
    await haveTicket(this.run, { renew: true }).catch(() => {});
    const url = mediaUrl(this.run, 'source');
    if (url === this.url || !url) this.state = 'cannot';
    else this.url = url;
  }

  /** Shows a frame: seeks to its middle, after the seek that is under way. */
  show(row: FrameRow): void {
    if (this.wanted?.frame !== row.frame) this.corrections = 0;
    this.wanted = row;
    const { element } = this;
    if (!element || this.state !== 'ready' || !element.paused || element.seeking) return;
    if (Math.abs(element.currentTime - middleOf(row)) > 1e-4) {
      this.off = null;
      element.currentTime = middleOf(row);
    }
  }

  private seeked(): void {
    const { element, wanted } = this;
    if (element && wanted && element.paused && Math.abs(element.currentTime - middleOf(wanted)) > 1e-4 && this.corrections === 0) this.show(wanted);
  }

  private presented(ms: number): void {
    this.renewed = false;
    const row = this.windows.at(ms + 0.5);
    this.shown = row?.frame ?? null;
    const { element } = this;
    if (!element) return;
    if (!element.paused) {
      this.off = 0;
      this.played(row?.pts ?? ms);
      return;
    }
    this.check();
  }

  /** Holds the shown frame against the asked one once the seek is done, and corrects it. */
  private check(): void {
    const { element, wanted, shown } = this;
    if (!element || !wanted || shown === null || !element.paused) return;
    if (shown === wanted.frame) this.off = 0;
    else if (!element.seeking && Math.abs(element.currentTime - middleOf(wanted)) < 1) {
      this.off = shown - wanted.frame;
      if (this.corrections >= MOST_CORRECTIONS) return;
      this.corrections += 1;
      const row = this.windows.byNumber(shown);
      if (row) element.currentTime = middleOf(wanted) + (wanted.pts - row.pts) / 1000;
    }
  }

  async play(row: FrameRow | null): Promise<boolean> {
    const { element } = this;
    if (!element || this.state !== 'ready') return false;
    if (row) element.currentTime = middleOf(row);
    try {
      await element.play();
      return true;
    } catch {
      return false;
    }
  }

  pause(): void {
    this.element?.pause();
  }
}

/** Small pictures of frames that were not kept, taken from a second video one after the other. */
export class Grabber {
  /** Counts the pictures that have come. */
  came = $state(0);
  private readonly held = new Lru<ImageBitmap>(MOST_GRABBED, (bitmap) => bitmap.close());
  private video: HTMLVideoElement | null = null;
  private near: FrameRow[] = [];
  private far: FrameRow[] = [];
  private busy = false;
  private ended = false;

  constructor(private readonly source: () => string | null) {}

  of(frame: number): ImageBitmap | undefined {
    return this.held.get(String(frame));
  }

  /** Asks for the frames around the head; those asked for before are given up. */
  want(rows: FrameRow[]): void {
    this.near = rows;
    if (!this.busy) void this.work();
  }

  /** Asks for the frames of the film strip, after those around the head. */
  wantFilm(rows: FrameRow[]): void {
    this.far = rows;
    if (!this.busy) void this.work();
  }

  private next(): FrameRow | undefined {
    for (const list of [this.near, this.far])
      for (let row = list.shift(); row; row = list.shift()) if (!this.held.has(String(row.frame))) return row;
    return undefined;
  }

  end(): void {
    this.ended = true;
    this.near = this.far = [];
    this.held.clear();
    this.video?.removeAttribute('src');
  }

  private async work(): Promise<void> {
    this.busy = true;
    for (let row = this.next(); row && !this.ended; row = this.next()) {
      const video = await this.ready();
      if (!video) break;
      const seeked = once(video, 'seeked');
      video.currentTime = middleOf(row);
      if (!(await seeked)) continue;
      const scale = Math.min(1, GRAB_PX / video.videoWidth);
      const bitmap = await createImageBitmap(video, {
        resizeWidth: Math.max(1, Math.round(video.videoWidth * scale)), resizeHeight: Math.max(1, Math.round(video.videoHeight * scale)),
      }).catch(() => null);
      if (!bitmap) continue;
      if (this.ended) bitmap.close();
      else this.held.set(String(row.frame), bitmap);
      this.came += 1;
    }
    this.busy = false;
  }

  private async ready(): Promise<HTMLVideoElement | null> {
    const url = this.source();
    if (!url) return null;
    if (!this.video) {
      this.video = document.createElement('video');
      this.video.muted = true;
      this.video.preload = 'auto';
    }
    if (this.video.src !== new URL(url, location.href).href) {
      this.video.src = url;
      if (!(await once(this.video, 'loadeddata'))) return null;
    }
    return this.video.readyState >= 2 ? this.video : null;
  }
}

function once(video: HTMLVideoElement, kind: 'seeked' | 'loadeddata'): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), GRAB_WAIT_MS);
    const done = (well: boolean) => {
      clearTimeout(timer);
      resolve(well);
    };
    video.addEventListener(kind, () => done(true), { once: true });
    video.addEventListener('error', () => done(false), { once: true });
  });
}
