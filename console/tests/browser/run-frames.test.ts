/** The video shows the frame that is asked for: each picture of these clips holds its own number. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, renameSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from '@playwright/test';
import { player } from '../support/run-page';
import { makeRun } from '../support/runs';
import { expect, test } from '../support/test';

/** Eight fields, left the lowest bit, white where it is set. */
const NUMBERED = "geq=lum='if(mod(floor(N/pow(2,floor(X/40))),2),235,16)':cb=128:cr=128";
const KINDS = {
  'constant rate': { filter: NUMBERED, args: ['-bf', '0'], numberOf: (frame: number) => frame },
  'B-frames': { filter: NUMBERED, args: ['-bf', '3', '-b_strategy', '0', '-g', '48'], numberOf: (frame: number) => frame },
  'variable rate': {
    // Frames 1, 2 of 4 are left out, and a second of it is.
    filter: `${NUMBERED},select='not(between(mod(n,4),1,2))*not(between(n,60,84))'`,
    args: ['-fps_mode', 'vfr', '-bf', '2'],
    numberOf: (frame: number) => Array.from({ length: 200 }, (_, n) => n).filter((n) => !(n % 4 === 1 || n % 4 === 2) && !(n >= 60 && n <= 84))[frame]!,
  },
} as const;

function drawn(name: string, filter: string, args: readonly string[]): string {
  const folder = join(tmpdir(), 'sightline-console-clips');
  const path = join(folder, `numbered-${name.replaceAll(' ', '-')}.mp4`);
  if (existsSync(path)) return path;
  mkdirSync(folder, { recursive: true });
  const made = join(folder, `${process.pid}-${name.replaceAll(' ', '-')}.mp4`);
  execFileSync('ffmpeg', ['-v', 'error', '-y', '-f', 'lavfi', '-i', 'color=s=320x64:r=25:d=8', '-vf', `${filter},format=yuv420p`, ...args, '-c:v', 'libx264', '-crf', '12', made]);
  renameSync(made, path);
  return path;
}

/** The number in the picture that the video shows. */
const shownNumber = (page: Page) => page.evaluate(() => {
  const video = document.querySelector('video')!;
  const canvas = Object.assign(document.createElement('canvas'), { width: video.videoWidth, height: video.videoHeight });
  const context = canvas.getContext('2d')!;
  context.drawImage(video, 0, 0);
  return Array.from({ length: 8 }, (_, bit) => (context.getImageData(bit * 40 + 20, 32, 1, 1).data[0]! > 128 ? 2 ** bit : 0)).reduce((a, b) => a + b, 0);
});

for (const [name, { filter, args, numberOf }] of Object.entries(KINDS)) {
  test(`${name}: the frame shown is the frame asked for`, async ({ page, server, site }) => {
    const run = await makeRun(server, { file: drawn(name, filter, args) });
    await page.goto(`${site}runs/${run}`);
    const video = player(page);
    await expect(video).toHaveAttribute('data-state', 'ready');
    for (const frame of [1, 2, 30, 31, 47, 48, 63, 7, 80, 0]) {
      await page.keyboard.press('g');
      await page.keyboard.type(`#${frame}`);
      await page.keyboard.press('Enter');
      await expect(video).toHaveAttribute('data-frame', String(frame));
      await expect(video).toHaveAttribute('data-shown', String(frame));
      await expect(video).toHaveAttribute('data-off', '0');
      expect(await shownNumber(page), `frame ${frame}`).toBe(numberOf(frame));
      await expect(video).toContainText('Video in step');
    }
    for (let frame = 1; frame < 12; frame++) {
      await page.keyboard.press('.');
      await expect(video).toHaveAttribute('data-shown', String(frame));
      expect(await shownNumber(page), `step to ${frame}`).toBe(numberOf(frame));
    }
  });
}
