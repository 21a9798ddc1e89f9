import { firstWhere } from './order';

/** Finds the intervals that meet a range: sorted by start, with the furthest end so far. */
export class IntervalIndex<T> {
  readonly items: readonly T[];
  private readonly starts: Float64Array;
  private readonly ends: Float64Array;
  private readonly furthest: Float64Array;

  constructor(items: readonly T[], startOf: (item: T) => number, endOf: (item: T) => number) {
    this.items = [...items].sort((a, b) => startOf(a) - startOf(b) || endOf(a) - endOf(b));
    this.starts = Float64Array.from(this.items, startOf);
    this.ends = Float64Array.from(this.items, endOf);
    this.furthest = new Float64Array(this.items.length);
    let far = -Infinity;
    this.ends.forEach((end, i) => (this.furthest[i] = far = Math.max(far, end)));
  }

  /** Number of items that start at `t` or before. */
  private upTo(t: number): number {
    return firstWhere(this.starts.length, (i) => this.starts[i]! > t);
  }

  /** Items that meet `from..=to`, by their start. */
  meeting(from: number, to: number): T[] {
    const found: T[] = [];
    for (let i = this.upTo(to) - 1; i >= 0 && this.furthest[i]! >= from; i--)
      if (this.ends[i]! >= from) found.push(this.items[i]!);
    return found.reverse();
  }

  /** The first item that starts after `t`. */
  after(t: number): T | undefined {
    return this.items[this.upTo(t)];
  }

  /** The last item that starts before `t`. */
  before(t: number): T | undefined {
    let at = this.upTo(t) - 1;
    while (at >= 0 && this.starts[at]! >= t) at--;
    return this.items[at];
  }

  /** The last item that has started at `t`. */
  at(t: number): T | undefined {
    return this.items[this.upTo(t) - 1];
  }
}
