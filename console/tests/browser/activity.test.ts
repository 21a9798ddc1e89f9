/** The lane of activity: episodes on the timeline, in lists and over the still, as they come too, against the server. */
import type { Page } from '@playwright/test';
import { clip } from '../support/clips';
import { choose, open, painted, player, plot, slider, why } from '../support/run-page';
import { api, makeRun } from '../support/runs';
import { axe, expect, picture, test, theme } from '../support/test';

interface Episode { start_frame: number; end_frame: number; start_pts_ms: number; end_pts_ms: number; peak_frame: number; region: { x: number; y: number; width: number; height: number } }

/** A place of the lane's bars, at a moment of the run's 12 s. */
async function barAt(page: Page, ms: number): Promise<{ x: number; y: number }> {
  const box = (await plot(page).boundingBox())!;
  const label = (await page.locator('.label.activity').boundingBox())!;
  return { x: ((ms + 120) / 12_240) * box.width, y: label.y - box.y + 9 };
}

test.describe('two movements', () => {
  let run: string;
  let episodes: Episode[];
  test.beforeAll(async ({ server }) => {
    run = await makeRun(server, { file: clip('walk.mp4'), label: 'somebody walks' });
    ({ episodes } = await api<{ episodes: Episode[] }>(server, 'GET', `runs/${run}/activity`));
    expect(episodes).toHaveLength(2);
  });

  test('an episode is told of, chosen, and its place is drawn over the still of its peak', async ({ page, site }) => {
    await open(page, `${site}runs/${run}`);
    const [walk] = episodes;
    await expect(page.locator('.label.activity')).toContainText('Activity2 episodes');
    const at = await barAt(page, 4000);
    await plot(page).hover({ position: at });
    await expect(page.locator('.tip')).toHaveText(/^0:0[23]\.\d, 2(\.\d)? s, at most \d+(\.\d)? % of the picture$/);
    await plot(page).click({ position: at });
    await expect(player(page)).toHaveAttribute('data-frame', String(walk!.peak_frame));
    await expect(player(page).getByRole('img', { name: `Frame ${walk!.peak_frame}` })).toBeVisible();
    await expect(why(page)).toContainText('1 of 2');
    await expect(why(page)).toContainText(/Something moves from 0:0[23]\.\d to 0:0[45]\.\d, for 2(\.\d)? s/);
    await expect(why(page)).toContainText(/Kept because (something begins to move|more moves)/);
    const box = (await page.getByTestId('region').boundingBox())!;
    const img = (await player(page).getByRole('img').boundingBox())!;
    const wide = Math.min(img.width, (img.height * 16) / 9);
    expect(box.width / wide).toBeCloseTo(walk!.region.width, 1);
    expect((box.x - img.x - (img.width - wide) / 2) / wide).toBeCloseTo(walk!.region.x, 1);
    await expect.poll(() => new URL(page.url()).searchParams.get('e')).toBe(String(walk!.start_frame));
    await page.reload();
    await expect(page.getByTestId('region')).toBeVisible();
    await page.keyboard.press('Escape');
    await expect(page.getByTestId('region')).toHaveCount(0);
  });

  test('episodes by keyboard alone, and in the table', async ({ page, site }) => {
    await open(page, `${site}runs/${run}`);
    await expect(page.locator('.label.activity')).toContainText('2 episodes');
    await page.keyboard.press('e');
    await expect(player(page)).toHaveAttribute('data-frame', String(episodes[0]!.peak_frame));
    await page.keyboard.press('e');
    await expect(player(page)).toHaveAttribute('data-frame', String(episodes[1]!.peak_frame));
    await page.keyboard.press('Shift+E');
    await expect(player(page)).toHaveAttribute('data-frame', String(episodes[0]!.peak_frame));
    await slider(page).focus();
    await page.keyboard.press('ArrowDown');
    await expect(page.getByRole('listbox', { name: 'Activity, 2' })).toBeFocused();
    await page.keyboard.press('End');
    await expect(page.getByRole('option', { selected: true })).toHaveText(/^0:0[78]\.\d, .* s, at most .* % of the picture$/);
    await expect(page.locator('.tip')).toBeVisible();
    await page.keyboard.press('Escape');
    await page.keyboard.press('t');
    const table = page.getByRole('region', { name: 'Table of what is in view' });
    await table.getByRole('tab', { name: 'Activity' }).click();
    await expect(table.getByRole('status')).toHaveText('In view: 2');
    await table.getByRole('row').nth(1).getByRole('button').click();
    await expect(why(page)).toContainText('1 of 2');
    await page.getByRole('button', { name: 'Lanes' }).click();
    await page.getByRole('menuitemcheckbox', { name: /^Activity/ }).click();
    await expect(page.locator('.label.activity')).toHaveCount(0);
  });

  test('other limits show other episodes at once', async ({ page, site }) => {
    await open(page, `${site}runs/${run}`);
    await choose(page, 'Try other limits');
    const limits = page.getByRole('region', { name: 'Try other limits' });
    await limits.getByRole('slider', { name: 'Activity begins' }).fill('0.2');
    await expect(limits).toContainText('0 episodes of activity, 2 recorded.');
    await expect(page.locator('.label.activity')).toContainText(/0 %|^Activity$|0 episodes/);
    await limits.getByRole('slider', { name: 'Still every n seconds' }).fill('0');
    await expect(limits.getByRole('status')).toContainText(/stills kept instead of \d+\./);
  });

  test('looks: both themes, a phone, and clean for axe', async ({ page, site }) => {
    await page.emulateMedia({ reducedMotion: 'reduce' });
    for (const [width, height, name] of [[1440, 900, 'desk'], [390, 844, 'phone']] as const) {
      await page.setViewportSize({ width, height });
      await open(page, `${site}runs/${run}?e=${episodes[0]!.start_frame}`);
      await expect(page.getByTestId('region')).toBeVisible();
      expect(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)).toBeLessThanOrEqual(0);
      for (const scheme of ['dark', 'light'] as const) {
        await theme(page, scheme);
        expect(await axe(page), `${name}, ${scheme}`).toEqual([]);
        await page.waitForLoadState('networkidle');
        if (name === 'desk') await plot(page).hover({ position: await barAt(page, 8500) });
        await picture(page, `activity-${name}-${scheme}`);
      }
    }
  });
});

test('episodes of a camera come as they happen, open while they last', async ({ page, publish, site }) => {
  await publish(clip('walk.mp4'));
  await page.goto(`${site}live?feed=all`);
  await expect(page).toHaveURL(/\/live\/run-/, { timeout: 20_000 });
  await page.getByRole('link', { name: 'Open timeline' }).first().click();
  await painted(page, 20_000);
  await page.keyboard.press('t');
  const table = page.getByRole('region', { name: 'Table of what is in view' });
  await table.getByRole('tab', { name: 'Activity' }).click();
  await expect(table.getByRole('cell', { name: 'lasts' })).toBeVisible({ timeout: 30_000 });
  await page.keyboard.press('t');
  await picture(page, 'activity-live');
  await page.keyboard.press('t');
  await table.getByRole('tab', { name: 'Activity' }).click();
  await expect(table.getByRole('cell', { name: 'lasts' })).toHaveCount(0, { timeout: 15_000 });
  await expect(table.getByRole('row').nth(1).getByRole('cell').nth(2)).toHaveText(/ s$/);
  await page.goBack();
  await page.getByText('All events').click();
  await expect(page.getByText(/^Something begins to move, [\d.]+ % of the picture$/).first()).toBeVisible({ timeout: 30_000 });
});
