/** Tests of the shell's pages by axe and screenshots: both themes, forced colours, large text, a phone. Screenshots go to `screenshots-out/`. */
import { clip, hasBunny } from '../support/clips';
import { makeRun } from '../support/runs';
import { axe, expect, picture, test, theme } from '../support/test';

const PAGES = ['runs', 'search?q=car', 'search', 'machine', 'settings', 'nowhere'];
const nameOf = (path: string): string => path.replace(/\W+/g, '-');

test.beforeAll(async ({ server }) => {
  if (hasBunny()) for (const name of ['wall.mp4', 'burrow.mp4'] as const) await makeRun(server, { file: clip(name), chunk: 60, label: name });
  await makeRun(server, { file: clip('still.mp4'), label: 'door.mp4' });
  await makeRun(server, { file: clip('cuts.mp4'), chunk: 25, label: 'cuts.mp4' });
});

for (const path of PAGES) {
  test(`${path} in both themes`, async ({ page, site }) => {
    await theme(page, 'dark');
    await page.goto(site + path);
    await expect(page.getByRole('heading').first()).toBeAttached();
    await page.waitForLoadState('networkidle').catch(() => undefined);
    for (const [width, height, name] of [[1440, 900, 'desk'], [390, 844, 'phone'], [720, 450, 'zoom'], [320, 640, 'narrow']] as const) {
      await page.setViewportSize({ width, height });
      expect(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth), `${name} scrolls sideways`).toBeLessThanOrEqual(0);
      if (name === 'desk' || name === 'phone') for (const scheme of ['dark', 'light'] as const) {
        await theme(page, scheme);
        expect(await axe(page), `${name}, ${scheme}`).toEqual([]);
        await picture(page, `${nameOf(path)}${name === 'phone' ? '-phone' : ''}-${scheme}`);
      }
    }
  });
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
