/** Serves `dist/` as the server does, beneath a prefix where asked, and passes `/v1` on to a server. */
import { createReadStream, existsSync, readFileSync } from 'node:fs';
import { createServer, request as ask } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';

const DIST = fileURLToPath(new URL('../../dist/', import.meta.url));
const POLICY = readFileSync(new URL('../../csp.txt', import.meta.url), 'utf8').trim();
const TYPES: Record<string, string> = {
  '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.woff2': 'font/woff2', '.svg': 'image/svg+xml',
};

export interface Site { url: string; stop: () => void }

export async function startSite(server: { port: number }, prefix = ''): Promise<Site> {
  const site = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? '/', 'http://x');
    const path = pathname.startsWith(`${prefix}/`) ? pathname.slice(prefix.length) : '';
    if (path.startsWith('/v1/')) {
      const on = ask({ port: server.port, method: request.method, path: (request.url ?? '').slice(prefix.length), headers: request.headers }, (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(response);
        answer.on('close', () => { if (!answer.complete) response.destroy(); });
      });
      on.on('error', () => response.destroy());
      response.on('close', () => on.destroy());
      request.pipe(on);
      return;
    }
    const file = path.startsWith('/assets/') ? DIST + path.slice(1) : `${DIST}${/^\/(runs|live)\/[^/]+$/.test(path) ? 'nested' : 'index'}.html`;
    if (path === '' || path.includes('..') || !existsSync(file)) {
      response.writeHead(404).end();
      return;
    }
    // As the server does it.
    const small = existsSync(`${file}.gz`);
    response.writeHead(200, {
      'content-type': TYPES[extname(file)] ?? 'application/octet-stream',
      'content-security-policy': POLICY,
      ...(small ? { 'content-encoding': 'gzip' } : {}),
    });
    createReadStream(small ? `${file}.gz` : file).pipe(response);
  });
  await new Promise<void>((resolve) => site.listen(0, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${(site.address() as AddressInfo).port}${prefix}/`, stop: () => { site.closeAllConnections(); site.close(); } };
}
