/** Copies and downloads of a run page. */

import { client, reasonOf } from '../api/client';
import { apiUrl } from '../api/connection.svelte';
import { copyText } from '../app/copy';
import { t } from '../app/messages.svelte';
import { say } from '../app/toasts.svelte';
import { ask as askModel } from '../live/ask.svelte';
import { nameOf } from '../runs/words';
import { timeText } from '../timeline/scale';
import type { RunPage } from './page.svelte';

const LONGEST_CLIP_MS = 600_000;

/** Opens the panel that asks a model about the still at the head, or the last one before it. */
export function askAbout(page: RunPage): void {
  const still = page.data.stillIndex.at(page.head) ?? page.data.stillIndex.before(page.head) ?? page.data.stills[0];
  if (still) askModel({ run: page.data.id, stills: [{ sha: still.image_sha256, pts: still.pts_ms }] });
}

/** Returns the selection as a path of the API: a marker's range of markers, a frame, a range of signals. */
function selectedPath(page: RunPage): string {
  const run = `v1/runs/${page.data.id}`;
  const { selection, marker } = page;
  if (marker) return apiUrl(`${run}/markers`, { event_type: marker.event_type, from_frame: marker.start_frame, to_frame: marker.end_frame, analysis_id: marker.analysis_id, origin: 'all' });
  if (selection?.kind === 'range') return apiUrl(`${run}/signals`, { from_frame: page.frameOf(selection.from), to_frame: page.frameOf(selection.to), max_points: 1000, stream_id: page.data.stream });
  return apiUrl(`${run}/frames/${page.frame}`, { stream_id: page.data.stream });
}

export function copyCurl(page: RunPage): void {
  const url = new URL(selectedPath(page), location.href).href;
  void copyText(`curl -H "x-api-key: $SIGHTLINE_API_KEY" '${url.replaceAll("'", '%27')}'`, t('run.copied_curl'));
}

export async function copyJson(page: RunPage): Promise<void> {
  const { marker, selection, data } = page;
  try {
    const json = marker ?? (selection?.kind === 'range'
      ? { run_id: data.id, from_ms: Math.round(selection.from), to_ms: Math.round(selection.to) }
      : await client.getFrame(data.id, page.frame, { stream_id: data.stream }));
    await copyText(JSON.stringify(json, null, 2), t('run.copied'));
  } catch (error) {
    say(reasonOf(error));
  }
}

/** A link to what is seen: absolute in time, and without the place of a live edge. */
export function copyLink(page: RunPage): void {
  page.store(true);
  void copyText(location.href, t('run.copied_link', { time: timeText(page.head, 3) }));
}

function download(blob: Blob, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const fileName = (page: RunPage): string => nameOf(page.data.record!).replace(/[^\w.-]+/g, '_').slice(0, 80);

/** The selected part, else the view, at most ten minutes of it. */
export async function downloadClip(page: RunPage): Promise<void> {
  const { limits } = page.data;
  const part = page.band && page.band.to - page.band.from > limits.frameMs * 1.5 ? page.band : page.view;
  const from = Math.round(Math.max(limits.start, part.from));
  const to = Math.round(Math.min(limits.end, part.to, from + LONGEST_CLIP_MS));
  say(t('run.clip_ready', { from: timeText(from), to: timeText(to) }));
  try {
    const answer = await client.getClip(page.data.id, { from_ms: from, to_ms: to });
    const matroska = answer.headers.get('content-type')?.includes('matroska');
    download(await answer.blob(), `${fileName(page)}-${from}-${to}.${matroska ? 'mkv' : 'mp4'}`);
  } catch (error) {
    say(t('run.clip_missing', { message: reasonOf(error) }));
  }
}

export async function downloadStill(page: RunPage): Promise<void> {
  const still = page.data.stillIndex.meeting(page.head, page.head)[0] ?? page.data.stillIndex.at(page.head);
  if (!still) return;
  try {
    download(await client.getKeyframe(page.data.id, still.image_sha256), `${fileName(page)}-${still.frame_index}.jpg`);
  } catch (error) {
    say(reasonOf(error));
  }
}
