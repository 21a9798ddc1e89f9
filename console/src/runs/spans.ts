/** Runs of buckets that hold something, as starts and ends in buckets. */
export function spans(counts: readonly number[]): [number, number][] {
  const found: [number, number][] = [];
  counts.forEach((count, at) => {
    const last = found[found.length - 1];
    if (count === 0) return;
    if (last && last[1] === at) last[1] = at + 1;
    else found.push([at, at + 1]);
  });
  return found;
}
