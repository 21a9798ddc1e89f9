/** Three hours at 30 a second: 324,000 rows, 2,000 markers, 5,000 episodes of activity, 10,000 events. The answers are made here, in the shape of the server's. */
import type { Page } from '@playwright/test';
import { readFileSync } from 'node:fs';
import { open } from '../support/run-page';
import { expect, picture, test } from '../support/test';

const RUN = `run-${'5'.repeat(32)}`;
const FRAMES = 324_000;
const MS = 100 / 3;
const LIMITS = { keepalive_frames: 30, activity_on: 0.005, activity_off: 0.002, scene_cut: 0.5, luma_shift: 0.15, flicker: 0.55, ghosting: 0.55, noise: 0.55 };
const pts = (frame: number) => Math.round(frame * MS);
/** One peak of a single frame each ten minutes, and one in the middle. */
const isPeak = (frame: number) => frame % 18_000 === 9001;
const scene = (frame: number) => (isPeak(frame) ? 0.93 : ((frame * 7919) % 97) / 900);
/** Something moves for the second half of every 64 frames or so. */
const moves = (frame: number) => (frame % 64 < 30 ? 0 : 0.004 + ((frame * 31) % 89) / 2000);
const luma = (frame: number) => 0.5 + Math.sin(frame / 4000) * 0.2;
const spread = (a: number, b: number) => ({ min: Math.min(a, b), max: Math.max(a, b), mean: (a + b) / 2 });

function signals(from: number, to: number, points: number) {
  const frames = to - from + 1;
  const base = { request_id: 'req-1', run_id: RUN, stream_id: 'main', frames, thresholds: LIMITS };
  if (frames <= points)
    return { ...base, buckets: null, signals: Array.from({ length: frames }, (_, i) => {
      const n = from + i;
      const reason = isPeak(n) ? 'scene_cut' : n % 30 === 0 ? 'periodic_keepalive' : 'no_trigger';
      return { frame_index: n, source_frame_index: n, pts_ms: pts(n), perceptual_hash: '7f7f7fffc2000000', luma_mean: luma(n), flicker_score: 0, ghosting_score: 0, noise_variance_score: 0, activity_score: moves(n), scene_score: scene(n), kept: reason !== 'no_trigger', reason };
    }) };
  return { ...base, signals: null, buckets: Array.from({ length: points }, (_, i) => {
    const first = from + Math.floor((i * frames) / points);
    const last = from + Math.floor(((i + 1) * frames) / points) - 1;
    const peak = Math.floor((last - 9001) / 18_000) !== Math.floor((first - 9002) / 18_000);
    return { first_frame: first, last_frame: last, start_pts_ms: pts(first), end_pts_ms: pts(last), frames: last - first + 1, kept_frames: 2, reasons: { no_trigger: 1, ...(peak ? { scene_cut: 1 } : {}) },
      luma_mean: spread(luma(first), luma(last)), flicker_score: spread(0, 0), ghosting_score: spread(0, 0), noise_variance_score: spread(0, 0), activity_score: spread(moves(first), moves(last)), scene_score: spread(0, peak ? 0.93 : 0.1) };
  }) };
}

const id = (prefix: string, n: number) => `${prefix}-${n.toString(16).padStart(16, '0')}`;
const TYPES = ['vehicle', 'person', 'scene_cut', 'artifact_suspected'];
const MARKERS = Array.from({ length: 2000 }, (_, n) => {
  const event_type = TYPES[n % TYPES.length]!;
  const start = n * 162;
  const end = event_type === 'scene_cut' ? start : start + 40 + (n % 7) * 30;
  return { marker_id: id('mk', n), run_id: RUN, stream_id: 'main', event_type, status: n % 9 ? 'exact' : 'provisional', start_frame: start, end_frame: end, start_pts_ms: pts(start), end_pts_ms: pts(end), confidence: 0.6 + (n % 4) / 10, supersedes_marker_id: null, analysis_id: id('an', 1), origin: n % 4 < 2 ? 'model' : 'gate' };
});
const KEYFRAMES = Array.from({ length: 7000 }, (_, n) => ({ seq: n, frame_index: n * 46, pts_ms: pts(n * 46), event_type: n % 100 ? 'keyframe_keep' : 'scene_cut', description: '', image_ref: '', image_media_type: 'image/jpeg', image_bytes: 1, image_sha256: (n % 40).toString(16).padStart(64, '0') }));
const EPISODES = Array.from({ length: 5000 }, (_, n) => ({ stream_id: 'main', start_frame: n * 64 + 30, end_frame: n * 64 + 63, start_pts_ms: pts(n * 64 + 30), end_pts_ms: pts(n * 64 + 63), peak_score: 0.04, peak_frame: n * 64 + 40, region: { x: 0.1, y: 0.2, width: 0.3, height: 0.4 }, zones: n % 3 ? [] : ['door'], image_sha256: null }));
const WORDS = Array.from({ length: 1000 }, (_, n) => ({ chunk_index: n, seq: 10_000 + n, start_pts_ms: n * 10_800, end_pts_ms: n * 10_800 + 10_000, event_type: 'vehicle', object_label: `lorry ${n}`, summary: '', description: `Description number ${n}: two articulated lorries stand side by side at the gate, the left one moves.`, confidence: 0.8, provider: 'vllm', index_name: null }));

async function answer(page: Page): Promise<void> {
  const jpeg = readFileSync(new URL('./run-still.jpg', import.meta.url));
  const record = { request_id: 'req-1', run_id: RUN, label: 'three hours', status: 'completed', mode: 'balanced', model: 'qwen3-vl-8b', semantic: null, active_job: null, source_uri: 'rtsp://camera/1', source: 'rtsp', session_id: null, tenant_id: null, wall_start_ms: { main: 1_795_438_927_000 }, created_at: '2026-11-23T13:02:07Z', updated_at: '2026-11-23T16:02:07Z', expires_at: null };
  await page.route('**/v1/**', async (route) => {
    const url = new URL(route.request().url());
    const json = (body: unknown) => route.fulfill({ json: body });
    if (url.pathname.endsWith('/signals')) {
      const number = (name: string, missing: number) => Number(url.searchParams.get(name) ?? missing);
      return json(signals(number('from_frame', 0), Math.min(FRAMES - 1, number('to_frame', FRAMES - 1)), number('max_points', 20_000)));
    }
    if (url.pathname.endsWith('/markers')) return json({ request_id: 'req-1', run_id: RUN, markers: MARKERS });
    if (url.pathname.endsWith('/activity')) {
      const [first, limit] = [Number(url.searchParams.get('cursor') ?? 0), Number(url.searchParams.get('limit'))];
      const link: Record<string, string> = first + limit < EPISODES.length ? { link: `</v1/runs/${RUN}/activity?limit=${limit}&cursor=${first + limit}>; rel="next"` } : {};
      return route.fulfill({ json: { request_id: 'req-1', run_id: RUN, episodes: EPISODES.slice(first, first + limit) }, headers: link });
    }
    if (url.pathname.endsWith('/keyframes')) return json({ request_id: 'req-1', run_id: RUN, keyframes: KEYFRAMES });
    if (url.pathname.endsWith('/interactions')) return json({ run_id: RUN, count: WORDS.length, interactions: WORDS });
    if (url.pathname.endsWith('/media-ticket')) return json({ request_id: 'req-1', run_id: RUN, ticket: `tk-${'0'.repeat(64)}`, expires_at: new Date(Date.now() + 600_000).toISOString() });
    if (url.pathname.includes('/keyframes/')) return route.fulfill({ body: jpeg, contentType: 'image/jpeg' });
    if (url.pathname.endsWith('/query')) return json({ request_id: 'req-1', matches: [], next_from_seq: 0, has_more: false });
    if (url.pathname.includes('/frames/')) {
      const n = Number(url.pathname.split('/').at(-1));
      return json({ ...signals(n, n, 2).signals![0], luma_shift: 0, previous_reason: 'no_trigger', thresholds: LIMITS, request_id: 'req-1', run_id: RUN, stream_id: 'main' });
    }
    return url.pathname.endsWith(RUN) ? json(record) : json([]);
  });
}

test('three hours paint soon and pan by shifting what is drawn', async ({ page, site }) => {
  await answer(page);
  await open(page, `${site}runs/${RUN}?t=5400000`);
  const painted = await page.evaluate(() => performance.getEntriesByName('timeline-painted')[0]?.startTime ?? NaN);
  await expect(page.getByText('324,000 frames at 30 fps')).toBeVisible();
  for (const [name, length] of [['hours', 3600_000], ['minutes', 300_000], ['frames', 4000]] as const) {
    await open(page, `${site}runs/${RUN}?t=5400000&from=${5_400_000 - length / 2}&to=${5_400_000 + length / 2}`);
    await page.waitForLoadState('networkidle');
    const told = await page.evaluate(async () => {
      const plot = document.querySelector('.plot')!;
      const { left, top } = plot.getBoundingClientRect();
      const host = document.querySelector<HTMLElement>('[data-testid=timeline]')!;
      const before = { full: Number(host.dataset['full']), shifted: Number(host.dataset['shifted']) };
      const frames: number[] = [];
      let last = performance.now();
      for (let n = 0; n < 120; n++) {
        plot.dispatchEvent(new WheelEvent('wheel', { deltaX: n % 60 < 30 ? 14 : -14, clientX: left + 300, clientY: top + 200, bubbles: true, cancelable: true }));
        await new Promise((resolve) => requestAnimationFrame(resolve));
        const now = performance.now();
        frames.push(now - last);
        last = now;
      }
      frames.sort((a, b) => a - b);
      return { p50: frames[60]!, p95: frames[114]!, full: Number(host.dataset['full']) - before.full, shifted: Number(host.dataset['shifted']) - before.shifted };
    });
    console.log(`three hours, ${name}: p50 ${told.p50.toFixed(1)} ms, p95 ${told.p95.toFixed(1)} ms a frame, ${told.shifted} shifts, ${told.full} whole repaints`);
    expect(told.shifted, name).toBeGreaterThan(50);
    expect(told.full, name).toBeLessThan(20);
  }
  const heap = await page.evaluate(() => (performance as unknown as { memory: { usedJSHeapSize: number } }).memory.usedJSHeapSize / 2 ** 20);
  console.log(`three hours: timeline painted after ${painted.toFixed(0)} ms, ${heap.toFixed(0)} MB of JavaScript heap`);
  await expect(page.locator('.label.activity')).toContainText('5,000 episodes');
  await page.keyboard.press('z');
  await expect(page.locator('.span')).toHaveText('3.1 h');
  await picture(page, 'run-three-hours');
  // Of 2,000 markers the table holds those in sight, and the page stays as high as the window.
  await page.keyboard.press('t');
  await expect(page.getByRole('region', { name: 'Table of what is in view' })).toContainText('In view: 2,000');
  expect(await page.getByRole('row').count()).toBeLessThan(100);
  expect(await page.evaluate(() => document.documentElement.scrollHeight - innerHeight)).toBeLessThanOrEqual(0);
});

test('a peak of one frame among 324,000 is seen at every zoom', async ({ page, site }) => {
  await answer(page);
  const peak = pts(9001 + 18_000 * 9);
  for (const length of [10_800_000, 600_000, 5000]) {
    await open(page, `${site}runs/${RUN}?t=0&from=${peak - length / 2}&to=${peak + length / 2}`);
    await expect(page.locator('.label.signal').filter({ hasText: 'Scene' })).not.toHaveClass(/quiet/);
  }
});
