/** The first of `length` indices at which something holds that holds at all after it; `length` where it does at none. */
export function firstWhere(length: number, holds: (index: number) => boolean): number {
  let [low, high] = [0, length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The index of the sorted value that is nearest to `t`; -1 where there is none. */
export function nearestOf(length: number, valueAt: (index: number) => number, t: number): number {
  const at = firstWhere(length, (i) => valueAt(i) >= t);
  return at > 0 && (at === length || t - valueAt(at - 1) <= valueAt(at) - t) ? at - 1 : at < length ? at : -1;
}
