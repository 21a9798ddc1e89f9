import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const folder = new URL('../../messages/', import.meta.url);
const read = (language: string, file: string): Record<string, unknown> =>
  JSON.parse(readFileSync(new URL(`${language}/${file}`, folder), 'utf8')) as Record<string, unknown>;
const placeholders = (message: unknown): string[] => [...new Set(JSON.stringify(message).match(/\{\w+\}/g) ?? [])].sort();

test.each(readdirSync(new URL('en/', folder)))('%s says the same in German', (file) => {
  const english = read('en', file);
  const german = read('de', file);
  expect(Object.keys(german)).toEqual(Object.keys(english));
  for (const [key, message] of Object.entries(english)) expect(placeholders(german[key]), key).toEqual(placeholders(message));
});
