/** The live tail: it follows, lets go at a touch, counts, and comes back. */
import { clip } from '../support/clips';
import { expect, picture, test } from '../support/test';

test('the tail of a live run follows, lets go and returns', async ({ page, publish, site }) => {
  const run = await publish(clip('cuts.mp4'));
  await page.goto(`${site}runs/${run}`);
  const following = page.getByRole('button', { name: 'Following live' });
  await expect(following).toBeVisible({ timeout: 30_000 });
  await expect(page.getByRole('region', { name: 'Picture' })).toContainText('Newest still');
  const end = () => page.getByRole('slider', { name: 'Head' }).getAttribute('aria-valuemax').then(Number);
  const before = await end();
  await expect.poll(end, { timeout: 20_000 }).toBeGreaterThan(before + 3000);
  await page.keyboard.press('+');
  await expect(following).toHaveCount(0);
  const from = () => new URL(page.url()).searchParams.get('from');
  await expect.poll(from).not.toBeNull();
  const [held, then] = [from(), await end()];
  await expect.poll(end, { timeout: 20_000 }).toBeGreaterThan(then + 3000);
  expect(from()).toBe(held);
  await expect(page.getByRole('button', { name: /new\. Go to live\./ })).toBeVisible({ timeout: 20_000 });
  await picture(page, 'run-live');
  await page.keyboard.press('End');
  await expect(following).toBeVisible();
  await expect(page.getByRole('listitem').first()).toContainText(/van|car|view|woman|lorries|jacket/, { timeout: 20_000 });
});

test('a run whose key was refused for a while is followed on', async ({ page, publish, site, server }) => {
  const run = await publish(clip('cuts.mp4'));
  await page.goto(`${site}runs/${run}`);
  await expect(page.getByRole('button', { name: 'Following live' })).toBeVisible({ timeout: 30_000 });
  await page.route('**/v1/runs/**', (route) => route.fulfill({ status: 401, json: { error: { code: 'unauthorized', message: 'missing or invalid API key' } } }));
  await server.stop('SIGKILL');
  await server.start();
  const gate = page.getByRole('dialog', { name: 'Enter an API key' });
  await expect(gate).toBeVisible({ timeout: 30_000 });
  await page.unroute('**/v1/runs/**');
  await gate.getByRole('textbox').fill(server.keys['tester'] ?? '');
  await page.keyboard.press('Enter');
  await expect(page.getByText('This run failed: interrupted. What was read until then is kept.')).toBeVisible({ timeout: 15_000 });
});
