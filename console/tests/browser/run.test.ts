/** The page of a run, by pointer and by keyboard, against the server. */
import type { Page } from '@playwright/test';
import { clip } from '../support/clips';
import { choose, open, player, plot, slider, why } from '../support/run-page';
import { api, makeRun } from '../support/runs';
import { axe, expect, picture, test, theme } from '../support/test';

const head = async (page: Page) => Number(await slider(page).getAttribute('aria-valuenow'));
const query = (page: Page) => new URL(page.url()).searchParams;
const view = (page: Page) => ({ from: Number(query(page).get('from')), to: Number(query(page).get('to')) });

test.describe('a described run', () => {
  let run: string;
  test.beforeAll(async ({ server }) => {
    run = await makeRun(server, { file: clip('cuts.mp4'), chunk: 50, label: 'four shots' });
  });

  test('a still tells why it was kept, and its neighbour why it was not', async ({ page, site }) => {
    await open(page, `${site}runs/${run}`);
    const box = (await plot(page).boundingBox())!;
    // The film's slot at a quarter holds the cut at 3 s.
    await plot(page).click({ position: { x: box.width * 0.265, y: 85 } });
    await expect(why(page)).toContainText('Kept because the whole picture changed: scene score');
    await expect(player(page)).toHaveAttribute('data-frame', '75');
    await why(page).getByRole('button', { name: /^Frame 76 not kept/ }).click();
    await expect(why(page)).toContainText(/Frame 76: Not kept\. [\d.]+ % of the picture moves; a still is kept where that begins, grows by half, or ends\./);
  });

  test('a frame that cannot be asked about while the server is away is told of when it is back', async ({ page, site }) => {
    let away = true;
    await page.route('**/frames/*', (route) => (away ? route.abort() : route.continue()));
    await open(page, `${site}runs/${run}?t=3000`);
    await expect(why(page)).toContainText('The server does not answer');
    away = false;
    await expect(why(page)).toContainText('Kept because the whole picture changed', { timeout: 20_000 });
  });

  test('events that the server cannot read are told of', async ({ page, site }) => {
    await page.route(/\/markers\?/, async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: { ...(await response.json()), damaged_events: 2 } });
    });
    await open(page, `${site}runs/${run}`);
    await expect(page.getByRole('status').filter({ hasText: 'The server’s log is damaged' })).toBeVisible();
  });

  test('every task by keyboard alone', async ({ page, site }) => {
    await open(page, `${site}runs/${run}`);
    await page.keyboard.press('g');
    await page.keyboard.type('0:04.2');
    await page.keyboard.press('Enter');
    await expect.poll(() => head(page)).toBe(4200);
    await page.keyboard.press('g');
    await page.keyboard.type('#150');
    await page.keyboard.press('Enter');
    await expect(player(page)).toHaveAttribute('data-frame', '150');
    await page.keyboard.press('.');
    await expect(player(page)).toHaveAttribute('data-frame', '151');
    await page.keyboard.press(',');
    await page.keyboard.press(',');
    await expect(player(page)).toHaveAttribute('data-frame', '149');
    await page.keyboard.press(']');
    await expect(player(page)).toHaveAttribute('data-frame', '150');
    await page.keyboard.press('[');
    await expect(player(page)).toHaveAttribute('data-frame', '100');
    await page.keyboard.press('ArrowRight');
    await expect(player(page)).toHaveAttribute('data-frame', '125');
    await page.keyboard.press('Home');
    await page.keyboard.press('c');
    await expect(player(page)).toHaveAttribute('data-frame', '75');
    await expect(why(page)).toContainText('Scene cut');
    await expect(page.locator('[aria-live=polite]').filter({ hasText: 'Scene cut, 0:03.0, 1 of 3' })).toBeAttached();
    await page.keyboard.press('j');
    expect(await head(page)).toBeGreaterThan(3000);
    await page.keyboard.press('k');
    await expect.poll(() => head(page)).toBe(3000);
    await page.keyboard.press('Escape');
    await expect(why(page).getByRole('heading')).toHaveText('Frame 75');
    await page.keyboard.press('t');
    await expect(page.getByRole('region', { name: 'Table of what is in view' })).toBeVisible();
    await page.keyboard.press('t');
    await page.keyboard.press('f');
    await expect(player(page)).toHaveCount(0);
    await page.keyboard.press('f');
    await page.keyboard.press('l');
    await expect(page.getByRole('menuitemcheckbox', { name: /^Nothing of note/ })).toBeVisible();
    await page.keyboard.press('Escape');
    await page.keyboard.press('+');
    await expect.poll(() => view(page).to - view(page).from).toBeCloseTo(6120, -2);
    await page.keyboard.press('Shift+ArrowRight');
    await expect.poll(() => view(page).from).toBeGreaterThan(500);
    await page.keyboard.press('Backspace');
    await expect.poll(() => view(page).to - view(page).from).toBeCloseTo(12_240, -2);
    await slider(page).focus();
    await page.keyboard.press(' ');
    await expect(page.getByRole('button', { name: 'Pause' })).toBeVisible();
    await page.keyboard.press(' ');
    await expect(page.getByRole('button', { name: 'Play', exact: true })).toBeVisible();
  });

  test('the lanes are lists, and the head says where it is', async ({ page, site }) => {
    await open(page, `${site}runs/${run}?t=3000`);
    await expect(slider(page)).toHaveAttribute('aria-valuetext', '0:03, frame 75, kept');
    await slider(page).focus();
    await page.keyboard.press('ArrowDown');
    const words = page.getByRole('listbox', { name: /^Seen/ });
    await expect(words).toBeFocused();
    await page.keyboard.press('ArrowRight');
    const chosen = await words.getAttribute('aria-activedescendant');
    await expect(page.locator(`#${chosen}`)).toHaveAttribute('aria-selected', 'true');
    for (let n = 0; n < 6 && !(await page.getByRole('listbox', { name: /^Scene cut/ }).evaluate((list) => list === document.activeElement)); n++)
      await page.keyboard.press('ArrowDown');
    await page.keyboard.press('End');
    await expect(player(page)).toHaveAttribute('data-frame', '225');
    await page.keyboard.press('Escape');
    await expect(slider(page)).toBeFocused();
  });

  test('the address is a link to what is seen', async ({ page, site, context }) => {
    await context.grantPermissions(['clipboard-read', 'clipboard-write']);
    await open(page, `${site}runs/${run}?t=6000&from=5000&to=7000`);
    await page.keyboard.press('c');
    await expect.poll(() => query(page).get('m')).toMatch(/^mk-/);
    await page.keyboard.press('y');
    const link = await page.evaluate(() => navigator.clipboard.readText());
    await open(page, link);
    await expect(why(page)).toContainText('Scene cut');
    await expect(player(page)).toHaveAttribute('data-frame', '225');
    expect(view(page).to - view(page).from).toBeCloseTo(2000, -1);
  });

  test('zoom from the whole to six frames, and back step by step', async ({ page, site }) => {
    await open(page, `${site}runs/${run}`);
    const box = (await plot(page).boundingBox())!;
    // In one go, as a hand does it: with pauses each part would be a step of its own.
    await plot(page).evaluate((element, at) => {
      for (let n = 0; n < 30; n++) element.dispatchEvent(new WheelEvent('wheel', { ...at, deltaY: -300, ctrlKey: true, bubbles: true, cancelable: true }));
    }, { clientX: box.x + box.width / 2, clientY: box.y + 80 });
    await expect.poll(() => Math.round(view(page).to - view(page).from)).toBe(240);
    await expect(page.locator('.span')).toHaveText('240 ms');
    await page.goBack();
    await expect(page.locator('.span')).toHaveText('12 s');
    await page.mouse.move(box.x + box.width / 2, box.y + 80);
    await page.mouse.wheel(300, 0);
    await page.keyboard.press('z');
    await expect(page.locator('.span')).toHaveText('12 s');
  });

  test.describe('by touch', () => {
    test.use({ hasTouch: true, isMobile: true, viewport: { width: 390, height: 844 } });

    test('one finger pans, two zoom about what is between them, a tap sets the head, a long press selects', async ({ page, site, context }) => {
      await open(page, `${site}runs/${run}?t=0&from=2000&to=8000`);
      await plot(page).scrollIntoViewIfNeeded();
      const box = (await plot(page).boundingBox())!;
      // Above the lowest lane, whose words are chosen by a tap.
      const y = box.y + box.height - 40;
      const cdp = await context.newCDPSession(page);
      const at = (...xs: number[]) => xs.map((x, id) => ({ x: box.x + x, y, id }));
      const touch = (type: 'touchStart' | 'touchMove' | 'touchEnd', ...xs: number[]) => cdp.send('Input.dispatchTouchEvent', { type, touchPoints: at(...xs) });
      const scrolled = await page.evaluate(() => scrollY);

      await touch('touchStart', 300);
      for (const x of [280, 240, 180, 120, 100]) await touch('touchMove', x);
      await touch('touchEnd');
      const panned = 2000 + (200 / box.width) * 6000;
      await expect.poll(() => view(page).from).toBeCloseTo(panned, -2);
      expect(view(page).to - view(page).from).toBeCloseTo(6000, -1);

      await touch('touchStart', 150);
      await touch('touchStart', 150, 210);
      for (const by of [10, 25, 45, 60]) await touch('touchMove', 150 - by, 210 + by);
      await touch('touchEnd', 90);
      await touch('touchEnd');
      await expect.poll(() => view(page).to - view(page).from).toBeCloseTo(2000, -2);
      const middle = (180 / box.width) * 6000 + panned;
      expect(view(page).from + (180 / box.width) * 2000).toBeCloseTo(middle, -2);
      expect(await head(page)).toBe(0);

      await page.touchscreen.tap(box.x + 180, y);
      await expect.poll(() => head(page)).toBeGreaterThan(middle - 100);
      expect(await head(page)).toBeLessThan(middle + 100);

      await touch('touchStart', 100);
      await expect(why(page)).toContainText('Selected range');
      for (const x of [140, 220, 260]) await touch('touchMove', x);
      await touch('touchEnd');
      expect(await page.evaluate(() => scrollY)).toBe(scrolled);
      await why(page).getByRole('button', { name: 'Zoom to it' }).click();
      await expect.poll(() => view(page).to - view(page).from).toBeLessThan(1600);
    });
  });

  test('a drag pans and plays nothing; a click sets the head; a drag in the ruler selects', async ({ page, site }) => {
    await open(page, `${site}runs/${run}?t=0&from=2000&to=8000`);
    const box = (await plot(page).boundingBox())!;
    const y = box.y + (await page.locator('.label.signal').first().boundingBox())!.y - box.y + 12;
    await page.mouse.move(box.x + 600, y);
    await page.mouse.down();
    await page.mouse.move(box.x + 400, y, { steps: 6 });
    await page.mouse.up();
    await expect.poll(() => view(page).from).toBeCloseTo(2000 + (200 / box.width) * 6000, -1);
    expect(await head(page)).toBe(0);
    await page.mouse.click(box.x + 500, y);
    expect(await head(page)).toBeGreaterThan(4000);
    await expect(page.getByRole('button', { name: 'Play', exact: true })).toBeVisible();
    await page.mouse.move(box.x + 300, box.y + 46);
    await page.mouse.down();
    await page.mouse.move(box.x + 700, box.y + 46, { steps: 6 });
    await page.mouse.up();
    await expect(why(page)).toContainText('Selected range');
    await page.keyboard.press('Enter');
    await expect.poll(() => view(page).to - view(page).from).toBeLessThan(2400);
  });

  test('the table holds what is in view, sorts, and chooses', async ({ page, site }) => {
    await open(page, `${site}runs/${run}`);
    await page.keyboard.press('t');
    const table = page.getByRole('region', { name: 'Table of what is in view' });
    await table.getByRole('button', { name: 'Sort by Type' }).click();
    await expect(table.getByRole('columnheader', { name: 'Sort by Type' })).toHaveAttribute('aria-sort', 'ascending');
    await table.getByRole('row').filter({ hasText: 'Scene cut' }).first().getByRole('button').click();
    await expect(why(page)).toContainText('1 of 3');
    await table.getByRole('tab', { name: 'Frames' }).click();
    await expect(table.getByRole('status')).toHaveText('In view: 300');
    await table.getByRole('tab', { name: 'Frames' }).press('ArrowLeft');
    await expect(table.getByRole('tab', { name: 'Words' })).toBeFocused();
    await expect(table.getByRole('cell', { name: /van|car|woman|view|lorries|jacket/ }).first()).toBeVisible();
  });

  test('words are found, chosen, and in step with the head', async ({ page, site }) => {
    await open(page, `${site}runs/${run}`);
    const seen = page.getByRole('region', { name: 'Seen' });
    await expect(seen.getByRole('listitem').first()).toBeVisible();
    await seen.getByRole('listitem').nth(2).getByRole('button').click();
    await expect.poll(() => head(page)).toBe(4000);
    await expect(seen.getByRole('listitem').nth(2).getByRole('button')).toHaveAttribute('aria-current', 'true');
    await seen.getByRole('searchbox').fill('zebra');
    await expect(seen).toContainText('No description contains “zebra”.');
  });

  test('a search leads from hit to hit', async ({ page, site }) => {
    await open(page, `${site}runs/${run}?q=a&t=0`);
    await expect(page.getByText(/hits? for “a”/)).toBeVisible();
    await page.keyboard.press('j');
    await expect.poll(() => head(page)).toBeGreaterThan(0);
  });

  test('an ended run lets limits be tried and says why they cannot be applied', async ({ page, site }) => {
    await open(page, `${site}runs/${run}`);
    await choose(page, 'Try other limits');
    const limits = page.getByRole('region', { name: 'Try other limits' });
    await limits.getByRole('slider', { name: 'Still every n seconds' }).fill('0');
    await expect(limits.getByRole('status')).toContainText(/\d+ stills kept instead of \d+\./);
    await expect(limits.getByRole('button', { name: 'Apply as a new analysis' })).toBeDisabled();
    await expect(limits).toContainText('This run has ended');
  });

  test('axe is content in both themes, with the table and the limits open', async ({ page, site }) => {
    await page.emulateMedia({ reducedMotion: 'reduce' });
    await open(page, `${site}runs/${run}?t=3000`);
    await page.keyboard.press('c');
    await expect(why(page)).toContainText('Scene cut');
    for (const scheme of ['dark', 'light'] as const) {
      await theme(page, scheme);
      expect(await axe(page)).toEqual([]);
    }
    await page.keyboard.press('t');
    await choose(page, 'Try other limits');
    for (const scheme of ['dark', 'light'] as const) {
      await theme(page, scheme);
      expect(await axe(page)).toEqual([]);
    }
  });

  test('forced colours, less motion, large text and narrow windows lose nothing', async ({ page, site }) => {
    await page.emulateMedia({ forcedColors: 'active', reducedMotion: 'reduce' });
    await open(page, `${site}runs/${run}?t=3000`);
    await expect(page.getByRole('button', { name: 'Copy link to moment' })).toBeVisible();
    await picture(page, 'run-forced-colours');
    await page.emulateMedia({ forcedColors: 'none' });
    for (const width of [720, 390, 320]) {
      await page.setViewportSize({ width, height: 800 });
      const over = () => page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      await expect.poll(over, `${width} px`).toBeLessThanOrEqual(0);
      await expect(page.getByRole('tab', { name: 'Why' })).toBeVisible();
      expect(await axe(page), `${width} px`).toEqual([]);
    }
  });
});

test('limits are tried, applied as a second analysis, and compared', async ({ page, server, site }) => {
  const run = await makeRun(server, { file: clip('cuts.mp4'), finish: false });
  await open(page, `${site}runs/${run}`);
  await page.getByRole('button', { name: 'Compare' }).click();
  await expect(page.getByText('There is one analysis.')).toBeVisible();
  await page.getByRole('menuitem', { name: 'Try other limits' }).click();
  const limits = page.getByRole('region', { name: 'Try other limits' });
  await limits.getByRole('slider', { name: 'Scene' }).fill('1');
  await expect(limits).toContainText('Markers: ');
  await expect(limits.getByRole('status')).toContainText('frames are decided differently');
  await limits.getByRole('button', { name: 'Apply as a new analysis' }).click();
  await expect(page.getByRole('button', { name: 'Analysis 2 of 2' })).toBeVisible();
  await expect(page.getByText(/[1-9]\d* markers added, [1-9]\d* gone, \d+ the same\./)).toBeVisible();
  await page.getByRole('checkbox', { name: 'Only differences' }).check();
  await expect.poll(() => query(page).get('b')).toMatch(/^an-/);
  await page.getByRole('button', { name: 'Stop comparing' }).click();
  await expect(page.getByText(/markers added/)).toHaveCount(0);
});

test('a run that is deleted meanwhile keeps what is seen', async ({ page, server, site }) => {
  const run = await makeRun(server, { file: clip('still.mp4'), finish: false });
  await open(page, `${site}runs/${run}`);
  await api(server, 'DELETE', `runs/${run}`);
  await expect(page.getByText('This run was deleted.')).toBeVisible({ timeout: 20_000 });
  await expect(page.getByTestId('timeline')).toBeVisible();
  await page.reload();
  await expect(page.getByText('This run does not exist, or it belongs to another key.')).toBeVisible();
});

test('an empty run, a foreign one and a file without a clock say what to do', async ({ page, server, site }) => {
  const { run_id } = await api<{ run_id: string }>(server, 'POST', 'runs', {});
  await page.goto(`${site}runs/${run_id}`);
  await expect(page.getByText('Nothing was decoded in this run yet.')).toBeVisible();
  const foreign = await makeRun(server, { file: clip('still.mp4'), as: 'other' });
  await page.goto(`${site}runs/${foreign}`);
  await expect(page.getByText('This run does not exist, or it belongs to another key.')).toBeVisible();
  const run = await makeRun(server, { file: clip('still.mp4') });
  await open(page, `${site}runs/${run}?clock=1`);
  await expect(page.getByText('No model was asked about this run.')).toBeVisible();
  await page.getByText('Clock', { exact: true }).click({ force: true });
  await expect(page.getByText('This file does not say when it was recorded, so there is no clock time.')).toBeVisible();
});

test('hostile names stay text', async ({ page, server, site }) => {
  const label = '<img src=x onerror=alert(1)>\u202egnp.exe {@html}';
  const run = await makeRun(server, { file: clip('still.mp4'), label });
  await open(page, `${site}runs/${run}`);
  await expect(page.getByRole('heading', { level: 1 })).toHaveText(label);
  expect(await page.locator('img[src=x]').count()).toBe(0);
});
