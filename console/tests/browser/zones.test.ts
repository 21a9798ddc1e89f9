/** Zones: drawn over a still by pointer and by keyboard, judged, used for a new analysis and a camera. */
import type { Page } from '@playwright/test';
import { WITH_CAMERA } from '../support/chromium';
import { clip } from '../support/clips';
import { choose, open } from '../support/run-page';
import { api, makeRun } from '../support/runs';
import { axe, expect, picture, test, theme } from '../support/test';

test.use({ permissions: ['camera', 'clipboard-read', 'clipboard-write'], launchOptions: WITH_CAMERA });

const panel = (page: Page) => page.getByRole('region', { name: 'Zones' });
const layer = (page: Page) => page.getByRole('group', { name: 'Zones on the picture' });
const corner = (page: Page, n: number) => layer(page).getByRole('button', { name: new RegExp(`^Corner ${n} of`) });

async function draw(page: Page, address: string): Promise<void> {
  await open(page, address);
  await choose(page, 'Draw zones');
  await expect(panel(page)).toBeVisible();
}

async function click(page: Page, ...points: [number, number][]): Promise<void> {
  const box = (await layer(page).boundingBox())!;
  for (const [x, y] of points) await page.mouse.click(box.x + x * box.width, box.y + y * box.height);
}

/** Where only the second movement of the clip comes. */
const DOOR: [number, number][] = [[0.65, 0.1], [0.9, 0.1], [0.9, 0.5], [0.65, 0.5]];

let run: string;
test.beforeAll(async ({ server }) => {
  run = await makeRun(server, { file: clip('walk.mp4'), label: 'somebody walks' });
});

test('a zone is drawn, judged at once, refused where it is wrong, and used for a new analysis', async ({ page, site, server }) => {
  await draw(page, `${site}runs/${run}?t=8600`);
  await expect(panel(page).getByRole('status')).toHaveText('No zone yet. Click on the picture.');
  await expect(panel(page)).toContainText('3 to 32 a zone');
  await expect(panel(page)).toContainText('0 of 16');
  await click(page, ...DOOR);
  await expect(panel(page)).toContainText('4 corners, 1 episode');
  await corner(page, 1).click();
  await expect(panel(page).getByRole('button', { name: 'Close', exact: true })).toHaveCount(1);
  await expect(panel(page).getByRole('status')).toHaveText('At most 1 of 2 episodes touches these zones.');

  const at = (await corner(page, 4).boundingBox())!;
  const size = (await layer(page).boundingBox())!;
  await page.mouse.move(at.x + at.width / 2, at.y + at.height / 2);
  await page.mouse.down();
  await page.mouse.move(at.x + at.width / 2, at.y + at.height / 2 + size.height * 0.2, { steps: 5 });
  await page.mouse.up();
  await expect(corner(page, 4)).toHaveAccessibleName(/^Corner 4 of 4, 6[45]\.?\d* % from the left, (69|70)\.?\d* % from the top$/);
  await expect(panel(page).getByRole('status')).toHaveText('At most 2 of 2 episodes touch these zones.');
  await click(page, [0.78, 0.1]);
  await expect(panel(page)).toContainText('5 corners');
  await corner(page, 2).press('Delete');
  await expect(panel(page)).toContainText('4 corners');
  await corner(page, 4).focus();
  for (let n = 0; n < 4; n++) await page.keyboard.press('Shift+ArrowUp');
  await expect(panel(page).getByRole('status')).toHaveText('At most 1 of 2 episodes touches these zones.');
  await panel(page).getByRole('checkbox', { name: /^Only the zones/ }).check();
  await expect(panel(page).getByRole('status')).toHaveText('At most 1 of 2 episodes would be left.');

  const name = panel(page).getByRole('textbox', { name: 'Name of zone 1' });
  await name.fill('');
  await panel(page).getByRole('button', { name: 'Analyse anew with them' }).click();
  await expect(panel(page).getByRole('alert')).toHaveText('name must be a string of 1 to 64 bytes');
  await expect(name).toHaveAttribute('aria-invalid', 'true');
  await name.fill('door');
  await expect(panel(page).getByRole('alert')).toHaveCount(0);
  await panel(page).getByRole('button', { name: 'Copy as JSON' }).click();
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toContain('"activity_zones_only": true');
  const copied = JSON.parse(await page.evaluate(() => navigator.clipboard.readText())) as { zones: { name: string; polygon: number[][] }[] };
  expect(copied.zones).toMatchObject([{ name: 'door', polygon: [[0.65, 0.1], [0.9, 0.1], [0.9, 0.5]].map((corner) => corner.map((value) => expect.closeTo(value, 2))).concat([expect.anything()]) }]);

  await panel(page).getByRole('button', { name: 'Analyse anew with them' }).click();
  await expect(page).not.toHaveURL(new RegExp(run));
  const again = /run-[0-9a-f]{32}/.exec(page.url())![0];
  await expect.poll(async () => (await api<{ episodes: { end_frame: number; zones: string[] }[] }>(server, 'GET', `runs/${again}/activity`)).episodes.filter((one) => one.end_frame !== null), { timeout: 20_000 })
    .toMatchObject([{ zones: ['door'] }]);
  await expect(page.locator('.label.activity')).toContainText('1 episode', { timeout: 20_000 });
  await page.keyboard.press('e');
  await expect(page.getByRole('region', { name: 'Why this frame' })).toContainText('In the zone door.');
  await choose(page, 'Draw zones');
  await expect(panel(page).getByRole('textbox', { name: 'Name of zone 1' })).toHaveValue('door');
  await expect(panel(page).getByRole('checkbox')).toBeChecked();
});

test('a zone by keyboard alone, and no more than 16', async ({ page, site }) => {
  await draw(page, `${site}runs/${run}?t=8600`);
  await panel(page).getByRole('button', { name: 'New zone' }).press('Enter');
  await panel(page).getByRole('button', { name: 'Add corner' }).press('Enter');
  await expect(corner(page, 1)).toBeFocused();
  await page.keyboard.press('Space');
  await expect(corner(page, 2)).toBeFocused();
  await page.keyboard.press('Shift+ArrowRight');
  await page.keyboard.press('Space');
  for (let n = 0; n < 4; n++) await page.keyboard.press('Shift+ArrowDown');
  await page.keyboard.press('Enter');
  await expect(panel(page)).toContainText(/3 corners, [12] episodes?/);
  expect(new URL(page.url()).searchParams.get('t')).toBe('8600');
  for (let n = 0; n < 15; n++) await panel(page).getByRole('button', { name: 'New zone' }).click();
  await expect(panel(page)).toContainText('16 of 16');
  await expect(panel(page).getByRole('button', { name: 'New zone' })).toBeDisabled();
  await panel(page).getByRole('button', { name: 'Remove Zone 16' }).click();
  await expect(panel(page)).toContainText('15 of 16');
  await page.locator('body').press('Escape');
  await expect(panel(page)).toHaveCount(0);
});

test('zones that are kept go with a camera and with what is added', async ({ page, site }) => {
  await draw(page, `${site}runs/${run}?t=8600`);
  await click(page, ...DOOR);
  await panel(page).getByRole('textbox', { name: 'Name of zone 1' }).fill('door');
  await panel(page).getByRole('button', { name: 'Keep for new runs' }).click();
  await page.goto(`${site}runs`);
  await page.getByRole('button', { name: 'Add a path or URL' }).click();
  await expect(page.getByRole('checkbox', { name: 'Watch door' })).toBeChecked();
  await page.goto(`${site}live`);
  await expect(page.getByRole('checkbox', { name: 'Watch door' })).toBeChecked();
  const offered = page.waitForRequest((request) => request.method() === 'POST' && request.url().endsWith('/v1/stream/whip'));
  await page.getByRole('button', { name: 'Camera' }).click();
  const offer = await offered;
  const attached = Buffer.from((await offer.headerValue('x-attach-config'))!, 'base64url').toString();
  expect(JSON.parse(attached)).toMatchObject({ zones: [{ name: 'door', polygon: DOOR.map((place) => place.map((value) => expect.closeTo(value, 1))) }] });
  await expect(page).toHaveURL(/\/live\/run-/);
  await page.getByRole('button', { name: 'End session' }).last().click();
});

test('looks: both themes, a phone, and clean for axe', async ({ page, site }) => {
  await page.emulateMedia({ reducedMotion: 'reduce' });
  for (const [width, height, name] of [[1440, 900, 'desk'], [390, 844, 'phone']] as const) {
    await page.setViewportSize({ width, height });
    await draw(page, `${site}runs/${run}?t=8600`);
    await click(page, ...DOOR);
    await corner(page, 1).click();
    await panel(page).getByRole('button', { name: 'New zone' }).click();
    await click(page, [0.1, 0.5], [0.4, 0.45], [0.45, 0.9]);
    expect(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)).toBeLessThanOrEqual(0);
    for (const scheme of ['dark', 'light'] as const) {
      await theme(page, scheme);
      expect(await axe(page), `${name}, ${scheme}`).toEqual([]);
      await picture(page, `zones-${name}-${scheme}`);
    }
  }
});
