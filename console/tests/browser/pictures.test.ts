/** The pictures of the README, of Big Buck Bunny: `npm run pictures` writes them anew. */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Page } from '@playwright/test';
import { clip, hasBunny } from '../support/clips';
import { finding, startModel } from '../support/model';
import { makeRun } from '../support/runs';
import { startServer } from '../support/server';
import { startSite } from '../support/site';
import { expect, picture, signIn, test, theme } from '../support/test';

const MEADOW = [
  'A grey rabbit crawls out of its burrow.', 'The rabbit stands up and stretches both arms.', 'It yawns with its eyes shut.',
  'Close to the burrow: the rabbit looks about.', 'Heavy picture noise. The rabbit is still there.', 'Another view: a meadow and an old stone wall.',
  'Nobody in view.', 'The rabbit passes on the left.', 'The whole slope again. The rabbit comes out.', 'The rabbit stretches.', 'It scratches its head; the light fades.',
];
const typeOf = (words: string): string => (/rabbit|yawns|head/.test(words) ? 'rabbit' : 'scenery');

/** Writes a page as WebP into `docs/pictures/`. */
async function keep(page: Page, name: string): Promise<void> {
  await picture(page, name);
  const folder = (path: string) => fileURLToPath(new URL(`../../../${path}`, import.meta.url));
  execFileSync('ffmpeg', ['-v', 'error', '-y', '-i', folder(`console/screenshots-out/${name}.png`), '-quality', '82', folder(`docs/pictures/${name}.webp`)]);
}

test('the run page and the list, as the README shows them', async ({ page }) => {
  test.skip(!process.env['SIGHTLINE_PICTURES'], 'they are made on demand');
  test.setTimeout(240_000);
  expect(hasBunny(), 'run deploy/fetch-clips.sh').toBe(true);
  let words: string[] = [];
  const model = await startModel((number) => {
    const said = words.length > 1 ? words.shift()! : words[0]!;
    return finding(said, typeOf(said), 0.82 + (number % 5) / 40);
  });
  const server = await startServer({ model: model.url });
  const site = await startSite(server);
  const cut = join(tmpdir(), 'sightline-cut.mkv');
  execFileSync('ffmpeg', ['-v', 'error', '-y', '-i', clip('burrow.mp4'), '-c', 'copy', cut]);
  writeFileSync(cut, readFileSync(cut).subarray(0, readFileSync(cut).length * 0.6));
  const described = (name: 'cuts.mp4' | 'wall.mp4' | 'burrow.mp4' | 'meadow.mp4', label: string, chunk: number, said: string[]) => {
    words = said;
    return makeRun(server, { file: clip(name), label, chunk });
  };
  await makeRun(server, { file: clip('still.mp4'), label: 'colour-bars.mp4' });
  await described('wall.mp4', 'north-wall-0730.mp4', 60, ['An old stone wall in evening light.']);
  await makeRun(server, { file: cut, label: 'burrow-night.mkv' });
  await described('cuts.mp4', 'test-patterns.mp4', 50, ['Moving bars and a clock.', 'A fractal, zooming in.', 'Colour bars with heavy noise.', 'A test card that counts seconds.']);
  await described('burrow.mp4', 'burrow-0612.mp4', 40, ['A rabbit sleeps in its burrow.', 'The rabbit wakes up.', 'It yawns with its eyes shut.']);
  const run = await described('meadow.mp4', 'meadow-2026-11-23.mp4', 48, [...MEADOW]);

  await signIn(page, server.keys['tester'] ?? '');
  await page.addInitScript((key) => sessionStorage.setItem('sightline.key', key), server.keys['tester'] ?? '');
  await theme(page, 'dark');
  await page.goto(`${site.url}runs/${run}`);
  await expect(page.getByRole('region', { name: 'Picture' })).toHaveAttribute('data-state', 'ready');
  await page.keyboard.press('c');
  await expect(page.getByRole('region', { name: 'Why this frame' })).toContainText('Scene cut');
  await page.waitForLoadState('networkidle');
  await expect(page.getByRole('region', { name: 'Why this frame' }).locator('.pic canvas').first()).toBeVisible();
  await keep(page, 'run');
  await theme(page, 'light');
  await page.goto(site.url);
  await expect(page.getByText('Ended early')).toBeVisible();
  await page.waitForLoadState('networkidle');
  await page.setViewportSize({ width: 1440, height: 690 });
  await keep(page, 'runs');
  site.stop();
  await server.remove();
  model.stop();
});
