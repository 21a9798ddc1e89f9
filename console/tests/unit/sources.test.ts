import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const src = new URL('../../src/', import.meta.url);

test('no markup that the security policy forbids', () => {
  const files = readdirSync(src, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.svelte'));
  expect(files.length).toBeGreaterThan(10);
  for (const file of files) {
    const text = readFileSync(new URL(file, src), 'utf8');
    expect(text, `${file}: {@html}`).not.toContain('{@html');
    expect(text, `${file}: a style attribute`).not.toMatch(/\sstyle=["{]/);
  }
});
