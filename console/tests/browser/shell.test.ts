import { clip } from '../support/clips';
import { makeRun } from '../support/runs';
import { expect, test } from '../support/test';

test('the page opens on runs, and a deep link on its run', async ({ page, server, site }) => {
  const run = await makeRun(server, { file: clip('cuts.mp4'), chunk: 50 });
  await page.goto(site);
  await expect(page.getByRole('link', { name: 'Runs', exact: true })).toHaveAttribute('aria-current', 'page');
  await page.goto(`${site}runs/${run}`);
  await expect(page.getByRole('main')).toBeVisible();
});
