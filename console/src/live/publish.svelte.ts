/** Publishing from this browser, over WHIP: one camera or screen at a time, which goes on while the person visits other pages. */
import { HttpError, type Schemas } from 'sightline-client';
import { causeOf, client, reasonOf } from '../api/client';
import { deleteLeaving } from '../api/connection.svelte';
import { t, type Key } from '../app/messages.svelte';

export type Source = 'camera' | 'screen';
type Phase = 'idle' | 'asking' | 'connecting' | 'on';

/** Longer than this and the network does not let the video through. */
const CONNECT_MS = 20_000;

/** Reasons that a browser gives no picture, by the name of its exception. */
const REFUSED: Record<string, Key> = {
  NotAllowedError: 'publish.denied',
  NotFoundError: 'publish.no_camera',
  NotReadableError: 'publish.in_use',
};

class Publisher {
  phase = $state<Phase>('idle');
  source = $state<Source>('camera');
  problem = $state('');
  run = $state<string | null>(null);
  /** Picture of the camera for the page. */
  stream = $state.raw<MediaStream | null>(null);
  session = $state<string | null>(null);
  #peer: RTCPeerConnection | null = null;
  /** Counts the ends: what was begun before one goes no further. */
  #turn = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Asks the browser for the picture, offers it to the server, and gives the run's id; `null` where that failed. */
  async start(source: Source, attach: Schemas.PublishConfig): Promise<string | null> {
    if (this.phase !== 'idle') return null;
    this.problem = '';
    this.source = source;
    if (!isSecureContext || !navigator.mediaDevices) {
      this.problem = t('publish.insecure');
      return null;
    }
    this.phase = 'asking';
    const turn = this.#turn;
    try {
      const stream = source === 'camera'
        ? await navigator.mediaDevices.getUserMedia({ video: { width: { ideal: 1280 }, height: { ideal: 720 } } })
        : await navigator.mediaDevices.getDisplayMedia({ video: { frameRate: { ideal: 15 } } });
      if (turn !== this.#turn) {
        stream.getTracks().forEach((track) => track.stop());
        return null;
      }
      this.stream = stream;
      this.phase = 'connecting';
      await this.#offer(stream, attach);
      return turn === this.#turn ? this.run : null;
    } catch (error) {
      if (turn !== this.#turn) return null;
      this.problem = this.#said(error);
      await this.stop();
      return null;
    }
  }

  async #offer(stream: MediaStream, attach: Schemas.PublishConfig): Promise<void> {
    const peer = (this.#peer = new RTCPeerConnection());
    const [track] = stream.getVideoTracks();
    if (!track) throw new Error(t('publish.no_camera'));
    track.onended = () => void this.stop();
    peer.addTransceiver(track, { direction: 'sendonly', streams: [stream] });
    peer.onconnectionstatechange = () => {
      if (peer.connectionState === 'connected') {
        clearTimeout(this.#timer);
        this.phase = 'on';
      } else if (peer.connectionState === 'failed') void this.#lost();
    };
    const turn = this.#turn;
    await peer.setLocalDescription();
    const answer = await client.whipOffer(peer.localDescription?.sdp ?? '', { attach });
    if (turn !== this.#turn) return void client.whipTerminate(answer.session_id).catch(() => undefined);
    this.session = answer.session_id;
    this.run = answer.run_id;
    this.#timer = setTimeout(() => { if (this.phase === 'connecting') void this.#lost(); }, CONNECT_MS);
    await peer.setRemoteDescription({ type: 'answer', sdp: answer.sdp });
  }

  async #lost(): Promise<void> {
    await this.stop();
    this.problem = t('publish.lost');
  }

  /** Ends the session; what it recorded stays. */
  async stop({ leaving = false } = {}): Promise<void> {
    clearTimeout(this.#timer);
    this.#turn += 1;
    const session = this.session;
    this.session = null;
    this.#peer?.close();
    this.#peer = null;
    this.stream?.getTracks().forEach((track) => track.stop());
    this.stream = null;
    this.run = null;
    this.phase = 'idle';
    if (session === null) return;
    if (leaving) deleteLeaving(`v1/stream/whip/${session}`);
    else await client.whipTerminate(session).catch(() => undefined);
  }

  #said(error: unknown): string {
    const cause = causeOf(error);
    if (cause instanceof DOMException) {
      const key = REFUSED[cause.name];
      return key ? t(key) : cause.message;
    }
    if (cause instanceof HttpError && cause.status === 503) return t('publish.no_room', { message: cause.reason });
    if (cause instanceof HttpError && cause.status === 409) return t('publish.limit', { message: cause.reason });
    return reasonOf(error);
  }
}

export const publisher = new Publisher();

addEventListener('pagehide', () => void publisher.stop({ leaving: true }));
