/** Tests of the shell's pages by axe and screenshots: both themes, forced colours, large text, a phone. Screenshots go to `screenshots-out/`. */
import { clip, realClip } from '../support/clips';
import { makeRun } from '../support/runs';
import { axe, expect, picture, test } from '../support/test';

const PAGES = ['runs', 'search?q=car', 'search', 'machine', 'settings', 'nowhere'];
const nameOf = (path: string): string => path.replace(/\W+/g, '-');

test.beforeAll(async ({ server }) => {
  for (const [name, chunk] of [['surv_bottle-detection.mp4', 100], ['surv_traffic-camera.mp4', 100], ['surv_car-detection.mp4', 60]] as const) {
    const file = realClip(name);
    if (file) await makeRun(server, { file, chunk, label: name.replace('surv_', '') });
  }
  await makeRun(server, { file: clip('still.mp4'), label: 'door.mp4' });
  await makeRun(server, { file: clip('cuts.mp4'), chunk: 25, label: 'cuts.mp4' });
});

for (const scheme of ['dark', 'light'] as const) {
  for (const path of PAGES) {
    test(`${path} in ${scheme}`, async ({ page, site }) => {
      await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
      await page.goto(site + path);
      await expect(page.getByRole('heading').first()).toBeAttached();
      await page.waitForLoadState('networkidle').catch(() => undefined);
      expect(await axe(page)).toEqual([]);
      await picture(page, `${nameOf(path)}-${scheme}`);
      for (const [width, height, name] of [[390, 844, 'phone'], [720, 450, 'zoom'], [320, 640, 'narrow']] as const) {
        await page.setViewportSize({ width, height });
        expect(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth), `${name} scrolls sideways`).toBeLessThanOrEqual(0);
        if (name === 'phone') {
          await picture(page, `${nameOf(path)}-phone-${scheme}`);
          expect(await axe(page)).toEqual([]);
        }
      }
    });
  }
}

test('every page can be read in forced colours', async ({ page, site }) => {
  await page.emulateMedia({ forcedColors: 'active' });
  for (const path of PAGES) {
    await page.goto(site + path);
    await expect(page.getByRole('heading').first()).toBeAttached();
    expect(await axe(page)).toEqual([]);
    await picture(page, `${nameOf(path)}-forced`);
  }
});

test('the gate and the map of keys are clean', async ({ page, site }) => {
  await page.goto(site);
  await page.keyboard.press('?');
  await expect(page.getByRole('dialog')).toBeVisible();
  expect(await axe(page)).toEqual([]);
  await picture(page, 'keys-dark');
  await page.evaluate(() => sessionStorage.setItem('sightline.key', 'not-a-key-of-this-server'));
  await page.reload();
  await expect(page.getByRole('dialog', { name: 'Enter an API key' })).toBeVisible();
  expect(await axe(page)).toEqual([]);
  await picture(page, 'gate-dark');
});
