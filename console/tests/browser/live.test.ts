/** The Live page: published from this browser's fake camera, watched from another program, asked about. */
import { axe, expect, picture, signIn, test, theme } from '../support/test';
import { WITH_CAMERA } from '../support/chromium';
import { clip } from '../support/clips';
import { api } from '../support/runs';

test.use({ permissions: ['camera'], launchOptions: WITH_CAMERA });

test('a camera is published: words, stills and figures come, a prompt is changed, the session is ended', async ({ page, site }) => {
  await page.goto(`${site}live`);
  await expect(page.getByRole('heading', { name: 'Nothing is live' })).toBeVisible();
  expect(await axe(page)).toEqual([]);
  await page.getByRole('button', { name: 'Show address' }).click();
  await page.getByRole('link', { name: 'Add a path or URL' }).click();
  await expect(page.getByRole('textbox', { name: 'Path or URL' })).toBeFocused();
  await page.keyboard.press('Escape');
  await expect(page).toHaveURL(/runs$/);
  await page.goto(`${site}live`);
  await page.getByRole('button', { name: 'Camera' }).click();
  await expect(page).toHaveURL(/\/live\/run-[0-9a-f]{32}/);
  await expect(page.getByText('Your camera')).toBeVisible();
  await expect(page.locator('figcaption')).toContainText(/lorries|van|car|view|woman|man/, { timeout: 30_000 });
  await expect(page.getByRole('region', { name: 'Connection' })).toContainText('Good', { timeout: 15_000 });
  await page.getByText('All events').click();
  await expect(page.getByText('Still kept').first()).toBeVisible();
  await expect(page.getByText(/^Marker: /).first()).toBeVisible();

  const prompt = page.getByRole('textbox', { name: 'Prompt' });
  await prompt.fill('Say when a person <b>waves</b>.');
  await page.getByRole('button', { name: 'Apply to new frames' }).click();
  await expect(page.getByText(/in force since frame [\d,]+/)).toBeVisible();

  await page.getByRole('link', { name: 'Runs', exact: true }).click();
  await page.getByRole('link', { name: 'Live', exact: false }).first().click();
  await expect(page.getByText('Your camera')).toBeVisible();
  for (const scheme of ['dark', 'light'] as const) {
    await theme(page, scheme);
    expect(await axe(page)).toEqual([]);
    await picture(page, `live-${scheme}`);
  }
  await page.getByRole('button', { name: 'End session' }).last().click();
  await expect(page.getByText('Ended', { exact: true })).toBeVisible();
  await page.getByRole('link', { name: 'Open timeline' }).first().click();
  await expect(page).toHaveURL(/\/runs\/run-/);
  await page.getByRole('button', { name: 'Ask about this' }).click();
  await expect(page.getByRole('dialog', { name: 'Ask about this' }).getByRole('textbox', { name: 'Question' })).toBeFocused();
});

test('another program is watched, and a model is asked about its newest still', async ({ page, publish, site, server }) => {
  await publish(clip('cuts.mp4'));
  await page.goto(`${site}live`);
  await expect(page.locator('.card').first()).toBeVisible({ timeout: 20_000 });
  await page.locator('.card').first().click();
  await expect(page.getByText(/Still of .* ago/)).toBeVisible({ timeout: 20_000 });
  await expect(page.getByText('Scene cut').first()).toBeVisible({ timeout: 30_000 });
  for (const scheme of ['dark', 'light'] as const) {
    await theme(page, scheme);
    await picture(page, `live-watched-${scheme}`);
  }
  // What came scrolls in its panel; the page stays as high as the window.
  await page.setViewportSize({ width: 1440, height: 640 });
  await expect.poll(() => page.getByRole('region', { name: 'Seen' }).getByRole('listitem').count(), { timeout: 30_000 }).toBeGreaterThan(6);
  expect(await page.evaluate(() => document.documentElement.scrollHeight - innerHeight)).toBeLessThanOrEqual(0);
  await page.locator('body').press('a');
  await page.getByRole('textbox', { name: 'Question' }).fill('What is this?');
  await page.keyboard.press('Enter');
  await expect(page.locator('.answers li').first()).toContainText('tokens');
  expect(await axe(page)).toEqual([]);
  await picture(page, 'ask-light');
  await page.keyboard.press('Escape');
  await page.setViewportSize({ width: 390, height: 844 });
  expect(await axe(page)).toEqual([]);
  await picture(page, 'live-phone-light');

  const { run_id } = (await api<{ run_id: string }[]>(server, 'GET', 'runs?status=processing'))[0] ?? { run_id: '' };
  await page.goto(`${site}live/${run_id}`);
  await expect(page.getByText(/Still of .* ago/)).toBeVisible();
  await api(server, 'DELETE', `runs/${run_id}`);
  await expect(page.getByText('This run was deleted.')).toBeVisible({ timeout: 15_000 });
});

test('a browser whose clock is off tells ages by the clock of the server', async ({ page, publish, site }) => {
  await page.addInitScript(() => {
    const [Own, off] = [Date, 20 * 60_000];
    globalThis.Date = class extends Own {
      constructor(...given: []) { super(...(given.length === 0 ? [Own.now() + off] as unknown as [] : given)); }
      static override now(): number { return Own.now() + off; }
    } as DateConstructor;
  });
  await publish(clip('cuts.mp4'));
  await page.goto(`${site}live`);
  await page.locator('.card').first().click({ timeout: 20_000 });
  await expect(page.getByText(/Still of .* · [\d.]+ s ago/)).toBeVisible({ timeout: 20_000 });
  await expect(page.locator('.slot img')).not.toHaveCount(0);
});

test('a camera that may not be used is said, and what to do', async ({ page, site, server }) => {
  await page.addInitScript(() => {
    navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('Permission denied', 'NotAllowedError'));
  });
  await signIn(page, server.keys['tester'] ?? '');
  await page.goto(`${site}live`);
  await page.getByRole('button', { name: 'Camera' }).click();
  await expect(page.getByRole('alert')).toContainText('Allow it beside the address');
  await expect(page.getByRole('button', { name: 'Camera' })).toBeEnabled();
});

test('the server goes and comes back: no word is lost or twice', async ({ page, publish, site, server }) => {
  await publish(clip('cuts.mp4'));
  await page.goto(`${site}live`);
  await page.locator('.card').first().click({ timeout: 20_000 });
  await expect(page.getByText('Scene cut').first()).toBeVisible({ timeout: 30_000 });
  await server.stop('SIGKILL');
  await expect(page.getByText('The server does not answer.')).toBeVisible({ timeout: 15_000 });
  await expect(page.getByText('Scene cut').first()).toBeVisible();
  await server.start();
  await expect(page.getByText('Ended', { exact: true })).toBeVisible({ timeout: 30_000 });
  const run = /run-[0-9a-f]{32}/.exec(page.url())?.[0] ?? '';
  const { count } = await api<{ count: number }>(server, 'GET', `runs/${run}/interactions`);
  await expect(page.getByRole('region', { name: 'Seen' }).locator('.panel-head .dim')).toHaveText(String(count));
});
