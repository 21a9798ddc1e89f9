import { execFileSync } from 'node:child_process';
import { readFileSync, statSync, truncateSync } from 'node:fs';
import type { Page } from '@playwright/test';
import { clip } from '../support/clips';
import { startModel, finding } from '../support/model';
import { api, makeRun } from '../support/runs';
import { startServer } from '../support/server';
import { startSite } from '../support/site';
import { expect, signIn, test } from '../support/test';

const rowOf = (page: Page, name: string) => page.getByRole('row').filter({ has: page.getByRole('link', { name, exact: true }) });

test('a video that is dropped is uploaded, analysed and listed with what was found', async ({ page, site }) => {
  await page.goto(site);
  const bytes = readFileSync(clip('cuts.mp4')).toString('base64');
  const data = await page.evaluateHandle(async (text) => {
    const transfer = new DataTransfer();
    const body = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
    transfer.items.add(new File([body], 'gate north.mp4', { type: 'video/mp4' }));
    return transfer;
  }, bytes);
  await page.dispatchEvent('body', 'dragenter', { dataTransfer: data });
  await expect(page.getByText('Drop to upload and analyse')).toBeVisible();
  await page.dispatchEvent('body', 'drop', { dataTransfer: data });
  const row = rowOf(page, 'gate north.mp4');
  await expect(row.getByText('Completed')).toBeVisible({ timeout: 40_000 });
  await expect(row).toContainText(/Cuts:\s*3/);
  await expect(row).toContainText('640 × 360 at 25 fps');
  await expect(row.locator('img')).toHaveJSProperty('complete', true);
  await row.getByRole('link').click();
  await expect(page).toHaveURL(/\/runs\/run-[0-9a-f]{32}/);
});

test('what is no video is refused in words', async ({ page, site }) => {
  await page.goto(site);
  await page.getByRole('button', { name: 'Upload a video' }).first().click();
  await page.setInputFiles('input[type=file]', { name: 'notes.mp4', mimeType: 'video/mp4', buffer: Buffer.from('no video at all') });
  await expect(page.getByRole('alert').filter({ hasText: 'This file was not taken' })).toBeVisible();
  await page.getByRole('button', { name: 'Close' }).last().click();
  await expect(page.getByText('This file was not taken')).toHaveCount(0);
});

test('a path that the server may not read is refused, and leaves no run', async ({ page, server, site }) => {
  await page.goto(site);
  const before = (await api<unknown[]>(server, 'GET', 'runs')).length;
  await page.getByRole('button', { name: 'Add a path or URL' }).first().click();
  await page.getByRole('textbox', { name: 'Path or URL' }).fill('/etc/passwd');
  await page.getByRole('button', { name: 'Analyse', exact: true }).click();
  await expect(page.getByRole('dialog').getByText(/root/i).last()).toBeVisible();
  expect(await api<unknown[]>(server, 'GET', 'runs')).toHaveLength(before);
});

test('a deleted run is gone at once, comes back by Undo, and is deleted for good when the page is left', async ({ page, server, site }) => {
  const run = await makeRun(server, { file: clip('still.mp4'), label: 'to delete' });
  await api(server, 'POST', 'runs', { label: 'to stay' });
  await page.goto(site);
  const row = rowOf(page, 'to delete');
  const remove = async (): Promise<void> => {
    await row.getByRole('button', { name: 'More for to delete' }).click();
    await page.getByRole('menuitem', { name: 'Delete run' }).click();
    await expect(row).toHaveCount(0);
  };
  await remove();
  await page.getByRole('button', { name: 'Undo' }).click();
  await expect(row).toBeVisible();
  await api(server, 'GET', `runs/${run}`);
  await remove();
  await api(server, 'GET', `runs/${run}`);
  // Another page and back within the time of the Undo: it stays gone.
  await page.getByRole('link', { name: 'Machine' }).click();
  await page.getByRole('link', { name: 'Runs', exact: true }).click();
  await expect(page.getByRole('button', { name: 'Undo' })).toBeVisible();
  await expect(rowOf(page, 'to stay')).toBeVisible();
  await expect(row).toHaveCount(0);
  await page.goto(`${site}machine`);
  await expect.poll(() => api(server, 'GET', `runs/${run}`).then(() => 'there', (error: Error) => error.message.match(/404/)?.[0])).toBe('404');
  await page.goto(site);
  await expect(page.getByRole('heading', { level: 1, name: 'Runs' })).toBeVisible();
  await expect(row).toHaveCount(0);
});

test('a run that is deleted elsewhere leaves the list, and a renamed one has its name', async ({ page, server, site }) => {
  const [gone, kept] = [await makeRun(server, { file: clip('still.mp4'), label: 'elsewhere' }), await makeRun(server, { file: clip('still.mp4'), label: 'old name', finish: false })];
  await page.goto(site);
  await expect(rowOf(page, 'elsewhere')).toBeVisible();
  await api(server, 'DELETE', `runs/${gone}`);
  await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
  await expect(rowOf(page, 'elsewhere')).toHaveCount(0);
  await rowOf(page, 'old name').getByRole('button', { name: 'More for old name' }).click();
  await page.getByRole('menuitem', { name: 'Rename' }).click();
  await page.getByLabel('Name', { exact: true }).fill('new name');
  await page.keyboard.press('Enter');
  await expect(rowOf(page, 'new name')).toBeVisible();
  expect(await api(server, 'GET', `runs/${kept}`)).toMatchObject({ label: 'new name' });
});

test('filters are in the address, and Back undoes them', async ({ page, server, site }) => {
  await makeRun(server, { file: clip('still.mp4'), label: 'findable' });
  await page.goto(site);
  await expect(rowOf(page, 'findable')).toBeVisible();
  await page.getByText('Working', { exact: true }).click();
  await expect(page).toHaveURL(/state=working/);
  await expect(page.getByText('No run matches these filters.')).toBeVisible();
  await page.goBack();
  await expect(rowOf(page, 'findable')).toBeVisible();
  await page.getByRole('searchbox', { name: 'Filter by name or source' }).fill('findab');
  await expect(page).toHaveURL(/q=findab/);
  await page.reload();
  await expect(page.getByRole('searchbox', { name: 'Filter by name or source' })).toHaveValue('findab');
  await expect(rowOf(page, 'findable')).toBeVisible();
});

test('Back from a run leads to its row', async ({ page, server, site }) => {
  for (let n = 0; n < 12; n += 1) await api(server, 'POST', 'runs', { label: `row ${n}` });
  await page.setViewportSize({ width: 1440, height: 500 });
  await page.goto(`${site}runs?q=row`);
  const link = page.getByRole('link', { name: 'row 0', exact: true });
  await expect(page.getByText('row 11', { exact: true })).toBeVisible();
  await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
  await link.click();
  await expect(page.getByText('Nothing was decoded in this run yet.')).toBeVisible();
  await page.goBack();
  await expect(link).toBeFocused();
  await expect(link).toBeInViewport();
});

test('a run that ended early is said to need a look, the list takes an order, and the address keeps it', async ({ page, server, site }) => {
  const cut = `${server.folder}/cut.mkv`;
  execFileSync('ffmpeg', ['-v', 'error', '-y', '-i', clip('cuts.mp4'), '-c', 'copy', cut]);
  truncateSync(cut, Math.floor(statSync(cut).size * 0.6));
  await makeRun(server, { file: cut, label: 'a cut one' });
  await makeRun(server, { file: clip('still.mp4'), label: 'a whole one' });
  await page.goto(`${site}runs?state=look`);
  await expect(rowOf(page, 'a cut one')).toContainText(/Ended early\s*0:0\d was read/);
  await page.getByRole('button', { name: 'Newest first' }).click();
  await page.getByRole('menuitemradio', { name: 'Most cuts' }).click();
  await expect(page).toHaveURL(/sort=cuts/);
  await page.goto(`${site}runs?sort=name`);
  // Runs of other tests stand among them.
  await expect(page.getByRole('row').filter({ hasText: /a (cut|whole) one/ }).first()).toContainText('a cut one');
  await expect(rowOf(page, 'a whole one')).toContainText(/in [\d.]+ s, [\d,]+ fps/);
});

test('search by keys alone: slash, words, Enter, arrows, Enter opens the moment', async ({ page, server, site }) => {
  const run = await makeRun(server, { file: clip('cuts.mp4'), chunk: 25, label: 'searched' });
  await page.goto(site);
  await expect(rowOf(page, 'searched')).toBeVisible();
  await page.keyboard.press('/');
  await page.keyboard.type('RED car');
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(/search\?q=RED\+car/);
  const hits = page.locator('[data-hit]');
  await expect(hits.first()).toBeVisible();
  await expect(page.locator('mark').first()).toHaveText('red car');
  await page.keyboard.press('Enter');
  await expect(hits.first()).toBeFocused();
  await page.keyboard.press('ArrowRight');
  await expect(hits.nth(1)).toBeFocused();
  await expect(page).toHaveURL(/hit=\d+/);
  await page.goto(`${site}search?q=red+car&run=${run}`);
  await expect(page.getByText(/^\d moments? in 1 run$/)).toBeVisible();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(new RegExp(`/runs/${run}\\?(.*&)?t=\\d+`));
});

test('a search without a hit says so, and how many runs have no words', async ({ page, server, site }) => {
  await makeRun(server, { file: clip('still.mp4'), label: 'wordless' });
  await page.goto(`${site}search?q=unicorn`);
  await expect(page.getByRole('heading', { name: 'No description contains “unicorn”.' })).toBeVisible();
  await expect(page.getByText(/\d+ runs? ha(s|ve) no descriptions\./)).toBeVisible();
});

test('the machine says how it is before its numbers', async ({ page, site }) => {
  await page.goto(`${site}machine`);
  await expect(page.getByRole('heading', { level: 1 })).toHaveText(/This machine is fine\.|needs? you/);
  await expect(page.getByText('qwen3-vl-8b is ready.')).toBeVisible();
  await expect(page.getByText(/Decodes in .+, measures with .+\./)).toBeVisible();
  await page.getByText('Limits', { exact: true }).click();
  await page.getByPlaceholder('Find a limit').fill('SERVICE_ACTIVE');
  await expect(page.getByRole('row')).toHaveCount(2);
  await expect(page.getByRole('row').last()).toContainText('100');
});

test('a model that is away is one thing to see to, and nobody else is chosen for it', async ({ page }) => {
  const model = await startModel(() => finding('a red car'));
  const server = await startServer({ model: model.url });
  const site = await startSite(server);
  model.stop();
  await expect.poll(() => api<{ checks: { status: string }[] }>(server, 'GET', 'doctor').then(({ checks }) => checks.some(({ status }) => status === 'problem')), { timeout: 30_000 }).toBe(true);
  await page.addInitScript((key) => sessionStorage.setItem('sightline.key', key), server.keys['tester'] ?? '');
  await page.goto(`${site.url}machine`);
  await expect(page.getByRole('heading', { level: 1, name: /needs? you/ })).toBeVisible();
  const lines = page.locator('.list').first().getByRole('listitem').filter({ hasText: 'vllm' });
  await expect(page.getByText('No model is ready.')).toBeVisible();
  await expect(lines).toHaveCount(1);
  await expect(lines).toContainText('Model backend vllm: ');
  await page.goto(site.url);
  await page.getByRole('button', { name: 'Upload a video' }).first().click();
  await expect(page.getByText('No model is ready. Machine says why.')).toBeVisible();
  await page.getByRole('button', { name: 'Close' }).last().click();
  expect(await page.evaluate(() => JSON.parse(localStorage.getItem('sightline.analysis') ?? '{}').model)).toBeNull();
  site.stop();
  await server.remove();
});

test('a wrong key is asked for again, a right one keeps the place, and another key sees nothing', async ({ page, server, site }) => {
  const run = await makeRun(server, { file: clip('still.mp4'), label: 'mine' });
  await page.addInitScript(() => { if (!sessionStorage.getItem('tried')) { sessionStorage.setItem('tried', '1'); sessionStorage.setItem('sightline.key', 'wrong-key-wrong-key'); } });
  await page.goto(`${site}?q=mine`);
  const gate = page.getByRole('dialog', { name: 'Enter an API key' });
  await gate.getByLabel('API key').fill('another-wrong-key');
  await page.keyboard.press('Enter');
  await expect(gate.getByRole('alert')).toHaveText('That key was not accepted.');
  await gate.getByLabel('API key').fill(server.keys['tester'] ?? '');
  await page.keyboard.press('Enter');
  await expect(gate).toHaveCount(0);
  await expect(page).toHaveURL(/q=mine/);
  await expect(rowOf(page, 'mine')).toBeVisible();
  expect(await page.evaluate(() => [localStorage.getItem('sightline.key'), document.cookie])).toEqual([null, '']);
  await page.getByRole('link', { name: 'Settings and key' }).click();
  await page.getByRole('button', { name: 'Forget key' }).click();
  await page.goBack();
  await expect(page).toHaveTitle(/^Runs/);
  await expect(gate).toBeVisible();
  await expect(page.getByText('mine', { exact: true })).toHaveCount(0);
  await gate.getByLabel('API key').fill(server.keys['other'] ?? '');
  await page.keyboard.press('Enter');
  await expect(gate).toHaveCount(0);
  await page.goto(site);
  await expect(page.getByRole('heading', { name: 'No runs yet' })).toBeVisible();
  await page.goto(`${site}runs/${run}`);
  await expect(page.getByText('This run does not exist, or it belongs to another key.')).toBeVisible();
});

test('the server goes and comes back: the list stays, writing waits, and all goes on', async ({ page }) => {
  const server = await startServer();
  const site = await startSite(server);
  await makeRun(server, { file: clip('still.mp4'), label: 'stays' });
  await signIn(page, server.keys['tester'] ?? '');
  await page.addInitScript((key) => sessionStorage.setItem('sightline.key', key), server.keys['tester'] ?? '');
  await page.goto(site.url);
  await expect(rowOf(page, 'stays')).toBeVisible();
  await server.stop('SIGKILL');
  await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
  await expect(page.getByText('The server does not answer.')).toBeVisible({ timeout: 30_000 });
  await expect(rowOf(page, 'stays')).toBeVisible();
  await expect(page.getByRole('button', { name: 'Upload a video' })).toBeDisabled();
  await expect(page.getByText(/as of \d\d:\d\d:\d\d/)).toBeVisible();
  await server.start();
  await page.getByRole('button', { name: 'Try now' }).click({ timeout: 2000 }).catch(() => undefined);
  await expect(page.getByText('The server does not answer.')).toHaveCount(0, { timeout: 20_000 });
  await expect(page.getByRole('button', { name: 'Upload a video' })).toBeEnabled();
  await expect(rowOf(page, 'stays')).toBeVisible();
  site.stop();
  await server.remove();
});

test('hostile names and words stay text', async ({ page }) => {
  const evil = '<img src=x onerror=alert(1)><script>alert(2)</script>\u202Egnp.exe {@html x}';
  const model = await startModel(() => finding(`${evil} red car`));
  const server = await startServer({ model: model.url });
  const site = await startSite(server);
  const run = await makeRun(server, { file: clip('still.mp4'), label: evil, chunk: 20 });
  let alerted = false;
  page.on('dialog', (dialog) => { alerted = true; void dialog.dismiss(); });
  await page.addInitScript((key) => sessionStorage.setItem('sightline.key', key), server.keys['tester'] ?? '');
  for (const path of ['', 'search?q=red+car', `search?q=${encodeURIComponent('<img')}`, `runs/${run}`]) {
    await page.goto(site.url + path);
    await expect(page.locator('bdi:visible', { hasText: 'onerror=alert' }).first()).toBeVisible();
    expect(await page.locator('img[src=x], main script').count(), path).toBe(0);
  }
  expect(alerted).toBe(false);
  site.stop();
  await server.remove();
  model.stop();
});

test('a path prefix works, also for an address one level down', async ({ page, server }) => {
  const site = await startSite(server, '/watch/sight');
  const run = await makeRun(server, { file: clip('still.mp4'), label: 'prefixed' });
  await page.goto(site.url);
  await expect(rowOf(page, 'prefixed').locator('img')).toBeVisible();
  await rowOf(page, 'prefixed').getByRole('link').click();
  await expect(page).toHaveURL(`${site.url}runs/${run}`);
  await page.reload();
  await expect(page.getByText('prefixed').first()).toBeVisible();
  site.stop();
});

test('German is whole, and dates follow the zone that is set', async ({ page, site }) => {
  await page.goto(`${site}settings`);
  await page.getByText('Deutsch').click();
  await expect(page.getByRole('heading', { name: 'Einstellungen' })).toBeVisible();
  expect(await page.evaluate(() => document.documentElement.lang)).toBe('de');
  await page.getByLabel('Zeitzone').selectOption('Pacific/Auckland');
  await page.reload();
  await expect(page.getByLabel('Zeitzone')).toHaveValue('Pacific/Auckland');
});

test('keys are shown by ?, do nothing in fields, and can be turned off', async ({ page, site }) => {
  await page.goto(site);
  await page.keyboard.press('?');
  await expect(page.getByRole('dialog', { name: 'Keys' })).toBeVisible();
  await page.keyboard.press('Escape');
  await page.keyboard.press('4');
  await expect(page).toHaveURL(/machine$/);
  await page.keyboard.press('/');
  await page.keyboard.type('1?');
  await expect(page.getByRole('searchbox')).toHaveValue('1?');
  // A narrow page has no field in its bar: the slash leads to the page that has one.
  await page.setViewportSize({ width: 640, height: 800 });
  await page.goto(site);
  await page.keyboard.press('/');
  await expect(page).toHaveURL(/search$/);
  await page.keyboard.type('1?');
  await expect(page.getByRole('searchbox')).toHaveValue('1?');
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.goto(`${site}settings`);
  await page.getByRole('switch').click();
  await page.locator('body').click({ position: { x: 5, y: 500 } });
  await page.keyboard.press('4');
  await page.keyboard.press('?');
  await expect(page).toHaveURL(/settings$/);
  await expect(page.getByRole('dialog')).toHaveCount(0);
});
