import { expect, test } from 'vitest';
import { spans } from '../../src/runs/spans';

test.each([
  [[], []],
  [[0, 0], []],
  [[1, 2, 0, 0, 3], [[0, 2], [4, 5]]],
  [[0, 1], [[1, 2]]],
])('buckets %j hold %j', (counts, found) => {
  expect(spans(counts)).toEqual(found);
});
