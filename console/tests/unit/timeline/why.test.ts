import { readFileSync } from 'node:fs';
import { beforeAll, describe, expect, test, vi } from 'vitest';
import type { FrameAnswer } from '../../../src/run/words';

const english = JSON.parse(readFileSync(new URL('../../../messages/en/run.json', import.meta.url), 'utf8')) as Record<string, string>;
const read = (key: string, parameters: Record<string, string | number>): string =>
  english[key]!.replace(/\{(\w+)\}/g, (_, name: string) => String(parameters[name]));

// The words of the page know the language from the browser, which there is none of here.
vi.mock('../../../src/app/messages.svelte', () => ({ t: (key: string) => english[key] }));
vi.mock('../../../src/app/format', () => ({ score: (n: number) => n.toFixed(2), share: (n: number) => `${n * 100} %`, span: (ms: number) => `${ms / 1000} s` }));

let why: typeof import('../../../src/run/words').why;
beforeAll(async () => ({ why } = await import('../../../src/run/words')));

const thresholds = { keepalive_frames: 30, scene_cut: 0.5, luma_shift: 0.15, flicker: 0.55, ghosting: 0.55, noise: 0.55, activity_on: 0.005 };
const frame = (reason: string, kept: boolean, over: Partial<FrameAnswer> = {}): FrameAnswer => ({
  frame_index: 621, pts_ms: 62_100, flicker_score: 0, ghosting_score: 0, noise_variance_score: 0, scene_score: 0, activity_score: 0,
  luma_shift: 0, kept, reason, thresholds, ...over,
});

describe('why, for each reason and whether it was kept', () => {
  test.each([
    ['the first frame', frame('initial_frame', true, { luma_shift: null }), 'Kept because it is the first frame.', null],
    ['a cut', frame('scene_cut', true, { scene_score: 0.8367 }), 'Kept because the whole picture changed: scene score 0.84 is above the limit of 0.50.', 'cut'],
    ['a cut by the hashes alone', frame('scene_cut', true, { scene_score: null }), 'Kept because the whole picture changed.', null],
    ['the clock', frame('periodic_keepalive', true), 'Kept by the clock: every 30th frame is. Nothing crossed a limit.', null],
    ['the light', frame('exposure_shift', true), 'Kept because the light changed by 0.15 or more and has stayed so for a second.', 'art'],
    ['light that changes', frame('no_trigger', false, { luma_shift: 0.21 }), 'Not kept. Brightness moved by 0.21, limit 0.15; a still is kept once such a change has stayed for a second.', 'art'],
    ['flicker, first', frame('flicker_suspected', true, { flicker_score: 0.7 }), 'Kept as the first of its kind: the picture looks damaged. Flicker 0.70 is above the limit of 0.55.', 'art'],
    ['flicker, later', frame('flicker_suspected', false, { flicker_score: 0.7 }), 'Not kept: the picture looks damaged. Flicker 0.70 is above the limit of 0.55.', 'art'],
    ['ghosting, first', frame('ghosting_suspected', true, { ghosting_score: 0.6 }), 'Kept as the first of its kind: the picture looks damaged. Ghosting 0.60 is above the limit of 0.55.', 'art'],
    ['ghosting, later', frame('ghosting_suspected', false, { ghosting_score: 0.6 }), 'Not kept: the picture looks damaged. Ghosting 0.60 is above the limit of 0.55.', 'art'],
    ['noise, first', frame('noise_variance_spike', true, { noise_variance_score: 0.9 }), 'Kept as the first of its kind: the picture looks damaged. Noise 0.90 is above the limit of 0.55.', 'art'],
    ['noise, later', frame('noise_variance_spike', false, { noise_variance_score: 0.9 }), 'Not kept: the picture looks damaged. Noise 0.90 is above the limit of 0.55.', 'art'],
    ['nothing', frame('no_trigger', false, { luma_shift: 0.07, scene_score: 0.1 }), 'Not kept. No signal crossed a limit; the nearest was Luma step, 0.07 of 0.15. The next still by the clock is frame 630.', null],
    ['nothing, on a frame of the clock but one', frame('no_trigger', false, { frame_index: 630 }), 'Not kept. No signal crossed a limit; the nearest was Scene, 0.00 of 0.50. The next still by the clock is frame 660.', null],
    ['nothing and no clock', frame('no_trigger', false, { thresholds: { ...thresholds, keepalive_frames: 0 } }), 'Not kept. No signal crossed a limit; the nearest was Scene, 0.00 of 0.50. No still is kept by the clock.', null],
    ['the clock by time', frame('periodic_keepalive', true, { thresholds: { ...thresholds, keepalive_ms: 2000 } }), 'Kept by the clock: one frame is every 2 s. Nothing crossed a limit.', null],
    ['nothing, and the clock by time', frame('no_trigger', false, { thresholds: { ...thresholds, keepalive_frames: 0, keepalive_ms: 2000 } }), 'Not kept. No signal crossed a limit; the nearest was Scene, 0.00 of 0.50. By the clock one still is kept every 2 s.', null],
    ['something that begins to move', frame('activity_started', true, { activity_score: 0.02 }), 'Kept because something begins to move: 2 % of the picture, limit 0.5 %.', null],
    ['more that moves', frame('activity_peak', true, { activity_score: 0.25 }), 'Kept because more moves than in the stills of this episode before it: 25 % of the picture.', null],
    ['what goes on moving', frame('no_trigger', false, { activity_score: 0.02 }), 'Not kept. 2 % of the picture moves; a still is kept where that begins, grows by half, or ends.', null],
    ['what came to rest', frame('activity_settled', true), 'Kept because what moved has come to rest.', null],
    ['a reason of a later server, kept', frame('sound_heard', true), 'Kept. The gate gives the reason “sound heard”.', null],
    ['a reason of a later server, not kept', frame('sound_heard', false), 'Not kept. The gate gives the reason “sound heard”.', null],
  ])('%s', (_, answer, text, colour) => {
    const told = why(answer, 0, (signal) => english[`signal.${signal}`]!);
    expect(read(told.key, told.parameters)).toBe(text);
    expect(told.colour).toBe(colour);
  });

  test('the clock counts from the first frame of the run', () => {
    expect(why(frame('no_trigger', false, { frame_index: 125 }), 100, () => '').parameters['n']).toBe('130');
  });
});
