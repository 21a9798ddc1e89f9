/** The live tail: it follows, lets go at a touch, counts, and comes back. */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { clip } from '../support/clips';
import { expect, picture, test } from '../support/test';

const CLI = process.env['SIGHTLINE_BINARY'] ?? fileURLToPath(new URL('../../../target/debug/sightline', import.meta.url));

test('the tail of a live run follows, lets go and returns', async ({ page, server, site }) => {
  const publisher = spawn(CLI, ['whip', 'publish', '--loop', '--api-key', server.keys['tester'] ?? '', clip('cuts.mp4'), `${server.url}/v1/stream/whip`]);
  try {
    const run = await new Promise<string>((resolve, reject) => {
      let said = '';
      const take = (text: Buffer) => {
        said += text.toString();
        const found = /run-[0-9a-f]{32}/.exec(said);
        if (found) resolve(found[0]);
      };
      publisher.stdout.on('data', take);
      publisher.stderr.on('data', take);
      publisher.on('exit', () => reject(new Error(said)));
    });
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
  } finally {
    publisher.kill('SIGINT');
  }
});
