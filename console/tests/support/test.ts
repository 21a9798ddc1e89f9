/** `test` with a server, its console and a page that has its key; every page fails the test on a script error or a breach of the policy. */
import { spawn, type ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test as bare, type Page } from '@playwright/test';
import { finding, startModel } from './model';
import { startServer, type Server } from './server';
import { startSite } from './site';

export { expect } from '@playwright/test';

const CLI = process.env['SIGHTLINE_BINARY'] ?? fileURLToPath(new URL('../../../target/debug/sightline', import.meta.url));

interface World {
  server: Server;
  /** Address of the console, with a slash at its end. */
  site: string;
}

const SEEN = [
  'A white van waits at the barrier.', 'A red car passes a silver car.', 'Nobody in view.', 'A woman in black writes on a sheet.',
  'Two articulated lorries side by side: a red one passes a white one.', 'A man in a dark jacket stops at the table.',
];

/** One server for all tests of a worker: each makes runs of its own. */
export const test = bare.extend<{ errors: string[]; publish: (file: string) => Promise<string> }, World & { world: World }>({
  world: [async ({}, use) => {
    const model = await startModel((number) => finding(SEEN[number % SEEN.length] ?? '', number % 2 ? 'person' : 'vehicle', 0.6 + (number % 4) / 10));
    const server = await startServer({ names: ['tester', 'other'], model: model.url, env: { SERVICE_ACTIVE_STREAM_LIMIT: '100' } });
    const site = await startSite(server);
    await use({ server, site: site.url });
    site.stop();
    await server.remove();
    model.stop();
  }, { scope: 'worker' }],
  server: [async ({ world }, use) => use(world.server), { scope: 'worker' }],
  site: [async ({ world }, use) => use(world.site), { scope: 'worker' }],
  errors: async ({}, use) => use([]),
  /** Another program publishes a clip over and over until the test ends; gives the run's id. */
  publish: async ({ server }, use) => {
    const publishers: ChildProcess[] = [];
    await use((file) => new Promise((resolve, reject) => {
      const env = { ...process.env, SIGHTLINE_API_KEY: server.keys['tester'] ?? '' };
      const publisher = spawn(CLI, ['whip', 'publish', file, `${server.url}/v1/stream/whip`, '--loop'], { env, stdio: ['ignore', 'pipe', 'pipe'] });
      publishers.push(publisher);
      let said = '';
      for (const stream of [publisher.stdout, publisher.stderr]) stream.on('data', (text: Buffer) => {
        said += text.toString();
        const run = /run-[0-9a-f]{32}/.exec(said);
        if (run) resolve(run[0]);
      });
      publisher.on('exit', () => reject(new Error(said)));
    }));
    for (const publisher of publishers) publisher.kill('SIGINT');
  },
  page: async ({ page, server, errors }, use) => {
    await signIn(page, server.keys['tester'] ?? '');
    page.on('pageerror', (error) => errors.push(error.message));
    page.on('console', (message) => {
      if (/Content Security Policy|TrustedScript|TrustedHTML/.test(message.text())) errors.push(message.text());
    });
    await use(page);
    expect(errors).toEqual([]);
  },
});

/** Gives the page a key, as a person's tab has it. */
export async function signIn(page: Page, key: string): Promise<void> {
  await page.addInitScript((given) => { if (sessionStorage.getItem('sightline.key') === null) sessionStorage.setItem('sightline.key', given); }, key);
}

const AXE = readFileSync(fileURLToPath(new URL('../../node_modules/axe-core/axe.min.js', import.meta.url)), 'utf8');

/** Returns the findings of axe about the page, WCAG 2.2 AA and best practices: one line a finding. */
export async function axe(page: Page): Promise<string[]> {
  return page.evaluate(`${AXE};axe.run(document, { resultTypes: ['violations'] }).then((r) => r.violations.flatMap((v) => v.nodes.map((n) => v.id + ': ' + n.target.join(' ') + ' ' + n.failureSummary)))`);
}

/** Sets the theme of the system, and waits until it shows. */
export async function theme(page: Page, scheme: 'dark' | 'light'): Promise<void> {
  await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
}

/** Writes a picture into `screenshots-out/`. */
export async function picture(page: Page, name: string): Promise<void> {
  await page.evaluate(() => document.fonts.ready);
  await page.screenshot({ path: fileURLToPath(new URL(`../../screenshots-out/${name}.png`, import.meta.url)) });
}
