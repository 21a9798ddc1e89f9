/** Says what the JavaScript of `dist/` weighs compressed, and fails past 250 kB. */
import { readdirSync, readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

const LIMIT = 250_000;
const assets = new URL('dist/assets/', import.meta.url);
const sizes = readdirSync(assets)
  .filter((name) => name.endsWith('.js'))
  .map((name) => [name, gzipSync(readFileSync(new URL(name, assets)), { level: 9 }).length])
  .sort((a, b) => b[1] - a[1]);
const total = sizes.reduce((sum, [, bytes]) => sum + bytes, 0);
for (const [name, bytes] of sizes) console.log(String(bytes).padStart(8), name);
console.log(`${String(total).padStart(8)} of ${LIMIT} bytes, compressed`);
process.exit(total > LIMIT ? 1 : 0);
