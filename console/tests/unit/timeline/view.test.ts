import { describe, expect, test } from 'vitest';
import { span } from '../../../src/timeline/scale';
import { advanced, clamped, fitted, panned, revealed, tailed, ViewStack, wheelFactor, whole, zoomed } from '../../../src/timeline/view';

const limits = { start: 0, end: 151_400, frameMs: 100 };

describe('zoom', () => {
  test('what is under the pointer stays there', () => {
    const view = { from: 18_000, to: 114_000 };
    const near = zoomed(view, 0.5, 62_000, limits);
    expect(span(near)).toBeCloseTo(48_000);
    expect((62_000 - near.from) / span(near)).toBeCloseTo((62_000 - view.from) / span(view));
  });
  test('six frames at most fill the width, the run and 2 % at least', () => {
    let view = { from: 18_000, to: 114_000 };
    for (let i = 0; i < 60; i++) view = zoomed(view, 0.5, 62_000, limits);
    expect(span(view)).toBeCloseTo(600);
    expect(view.from).toBeLessThanOrEqual(62_000);
    for (let i = 0; i < 60; i++) view = zoomed(view, 2, 62_000, limits);
    expect(view).toEqual(whole(limits));
    expect(span(view)).toBeCloseTo(151_400 * 1.02);
  });
  test('a wheel turned back undoes itself, and one throw is no more than five times', () => {
    expect(wheelFactor(120) * wheelFactor(-120)).toBeCloseTo(1);
    expect(wheelFactor(1e6)).toBe(5);
    expect(wheelFactor(-1e6)).toBe(0.2);
  });
  test('a run shorter than six frames shows as many', () => {
    const short = { start: 0, end: 40, frameMs: 40 };
    expect(span(zoomed(whole(short), 0.1, 20, short))).toBeCloseTo(240);
  });
});

test('a pan stops at the ends and keeps its span', () => {
  const view = { from: 18_000, to: 114_000 };
  expect(panned(view, 5_000, limits)).toEqual({ from: 23_000, to: 119_000 });
  expect(panned(view, 1e9, limits).to).toBeCloseTo(whole(limits).to);
  expect(span(panned(view, -1e9, limits))).toBeCloseTo(96_000);
});

test('a fitted marker has half of itself around it', () => {
  expect(fitted(60_000, 80_000, limits)).toEqual({ from: 55_000, to: 85_000 });
  expect(span(fitted(62_000, 62_000, limits))).toBeGreaterThanOrEqual(600);
});

test('a moment in view moves nothing, one out of view is centred', () => {
  const view = { from: 18_000, to: 114_000 };
  expect(revealed(view, 62_000, limits)).toBe(view);
  const there = revealed(view, 130_000, limits);
  expect(there.from < 130_000 && there.to > 130_000).toBe(true);
});

test('clamping keeps the centre', () => {
  expect(clamped({ from: 62_000, to: 62_010 }, limits)).toEqual({ from: 61_705, to: 62_305 });
});

describe('the view stack', () => {
  const [a, b, c] = [{ from: 0, to: 10 }, { from: 2, to: 4 }, { from: 3, to: 5 }];
  test('a pan replaces, a zoom adds, back returns', () => {
    const stack = new ViewStack(a);
    expect(stack.settle(b, 'zoom')).toBe('push');
    expect(stack.settle(c, 'pan')).toBe('replace');
    expect(stack.depth).toBe(1);
    expect(stack.back()).toEqual(a);
    expect(stack.back()).toBeNull();
  });
  test('the same view again adds nothing, and old views are forgotten', () => {
    const stack = new ViewStack(a, 4);
    expect(stack.settle({ ...a }, 'jump')).toBe('replace');
    for (let n = 1; n < 20; n++) stack.settle({ from: n, to: n + 1 }, 'jump');
    expect(stack.depth).toBe(3);
  });
});

describe('the live tail', () => {
  const on = { following: true, unseen: 0 };
  const off = { following: false, unseen: 0 };
  test('lets go at any move of the user, counts, and comes back', () => {
    let tail = tailed(on, { kind: 'arrived', count: 3 });
    expect(tail).toEqual(on);
    tail = tailed(tail, { kind: 'moved', view: { from: 0, to: 100 }, edge: 100, by: 'user' });
    tail = tailed(tail, { kind: 'arrived', count: 12 });
    expect(tail).toEqual({ following: false, unseen: 12 });
    expect(tailed(tail, { kind: 'live' })).toEqual(on);
  });
  test('a pan to the edge turns it on, one short of it does not', () => {
    expect(tailed(off, { kind: 'moved', view: { from: 0, to: 100 }, edge: 100, by: 'edge' })).toEqual(on);
    expect(tailed(off, { kind: 'moved', view: { from: 0, to: 99 }, edge: 100, by: 'edge' })).toEqual(off);
  });
  test('the edge advances without a change of span', () => {
    expect(advanced({ from: 0, to: 1000 }, 5000)).toEqual({ from: 4020, to: 5020 });
  });
});
