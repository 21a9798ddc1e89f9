import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig, type Plugin } from 'vite';

/** Emits the page once more for addresses one level down (`/runs/{id}`), with its assets one level up: no part of the page knows where it is mounted. */
function nested(): Plugin {
  return {
    name: 'nested-page',
    enforce: 'post',
    apply: 'build',
    generateBundle(_options, bundle) {
      const page = bundle['index.html'];
      if (page?.type !== 'asset') return;
      this.emitFile({ type: 'asset', fileName: 'nested.html', source: String(page.source).replaceAll('"./', '"../') });
    },
  };
}

/** Writes each text asset once more, compressed, as it lies in the folder: the server sends that to whoever takes gzip. */
function compressed(): Plugin {
  return {
    name: 'compressed-assets',
    apply: 'build',
    async writeBundle({ dir = 'dist' }, bundle) {
      for (const name of Object.keys(bundle).filter((file) => /^assets\/.*\.(js|css|svg)$/.test(file))) {
        await writeFile(`${dir}/${name}.gz`, gzipSync(await readFile(`${dir}/${name}`), { level: 9 }));
      }
    },
  };
}

export default defineConfig({
  base: './',
  plugins: [svelte(), nested(), compressed()],
  resolve: {
    dedupe: ['eventsource-parser'],
    alias: { 'sightline-client': fileURLToPath(new URL('../clients/typescript/src/index.ts', import.meta.url)) },
  },
  server: {
    fs: { allow: ['..'] },
    proxy: { '/v1': process.env.SIGHTLINE_SERVER ?? 'http://127.0.0.1:8080' },
  },
  worker: { format: 'es' },
  build: { target: 'es2022', assetsInlineLimit: 0, modulePreload: { polyfill: false } },
});
