/** A server of the tests' own: the real binary, its data in a temporary folder, a key for each caller. */
import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const BINARY = process.env.SIGHTLINE_SERVER_BINARY ?? fileURLToPath(new URL('../../../target/debug/sightline-server', import.meta.url));
const START_MS = 30_000;

export interface Options {
  /** Names of the keys; each is `keys[name]`. */
  names?: string[];
  /** Base URL of a model backend (`startModel`). */
  model?: string;
  /** Further settings. */
  env?: Record<string, string>;
  /** Folders that runs may be made from. */
  roots?: string[];
}

export class Server {
  readonly keys: Record<string, string>;
  readonly port: number;
  readonly folder = mkdtempSync(join(tmpdir(), 'sightline-console-'));
  #child: ChildProcess | null = null;
  #options: Options;

  constructor(port: number, options: Options) {
    this.port = port;
    this.#options = options;
    this.keys = Object.fromEntries((options.names ?? ['tester']).map((name) => [name, randomBytes(16).toString('hex')]));
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Starts it, also again after `stop`, with the same data, port and keys. */
  async start(): Promise<void> {
    const log = openSync(join(this.folder, 'server.log'), 'a');
    const { model, env, roots } = this.#options;
    this.#child = spawn(BINARY, [], {
      stdio: ['ignore', log, log],
      cwd: this.folder,
      env: {
        PATH: process.env.PATH,
        SERVICE_BIND_ADDR: `127.0.0.1:${this.port}`,
        SERVICE_API_KEYS: Object.entries(this.keys).map(([name, key]) => `${name}:${key}`).join(','),
        SERVICE_DATA_DIR: join(this.folder, 'data'),
        SERVICE_SANDBOX: process.env.SERVICE_SANDBOX ?? 'best-effort',
        ...(roots ? { SERVICE_INGEST_FILE_ROOTS: roots.join(',') } : {}),
        ...(model ? { SERVICE_VLLM_BASE_URL: model } : {}),
        ...env,
      },
    });
    // A test that fails half way leaves none behind.
    process.once('exit', () => this.#child?.kill('SIGKILL'));
    const key = Object.values(this.keys)[0] ?? '';
    const until = Date.now() + START_MS;
    while (Date.now() < until && this.#child.exitCode === null) {
      const ready = await fetch(`${this.url}/v1/ready`, { headers: { 'x-api-key': key } }).catch(() => null);
      if (ready?.ok) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`the server did not become ready:\n${this.log().slice(-2000)}`);
  }

  /** Ends it and waits until it has; its data stays. */
  async stop(signal: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill(signal);
    await ended;
  }

  /** Ends it and removes its data. */
  async remove(): Promise<void> {
    await this.stop('SIGKILL');
    rmSync(this.folder, { recursive: true, force: true });
  }

  log(): string {
    return readFileSync(join(this.folder, 'server.log'), 'utf8');
  }
}

/** Starts a server on a free port. */
export async function startServer(options: Options = {}): Promise<Server> {
  const server = new Server(await freePort(), options);
  await server.start();
  return server;
}

export function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const probe = createServer().listen(0, '127.0.0.1', () => {
      const { port } = probe.address() as AddressInfo;
      probe.close(() => resolve(port));
    });
  });
}
