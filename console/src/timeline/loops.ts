/** Spans in which pictures repeat, as `gate::loops` finds their start. */

interface Loop {
  /** Places of the first frame of the repetition and of the last frame of it. */
  first: number;
  last: number;
  /** Times that the pictures have been shown. */
  repeats: number;
}

const RING = 8;
const SAME_PICTURE_BITS = 6;

export function bitsBetween(a: bigint, b: bigint): number {
  let [rest, bits] = [a ^ b, 0];
  for (; rest > 0n; rest &= rest - 1n) bits++;
  return bits;
}

const same = (a: bigint, b: bigint): boolean => bitsBetween(a, b) <= SAME_PICTURE_BITS;

/** Loops of consecutive frames by their hashes. */
export function loopsOf(hashes: ArrayLike<bigint>): Loop[] {
  const found: Loop[] = [];
  const pictures: { hash: bigint; at: number }[] = [];
  let open: { loop: Loop; period: number; pictures: number } | null = null;
  for (let i = 0; i < hashes.length; i++) {
    const newest = pictures[0];
    if (newest && same(newest.hash, hashes[i]!)) {
      if (open) open.loop.last = i;
      continue;
    }
    pictures.unshift({ hash: hashes[i]!, at: i });
    if (pictures.length > RING) pictures.pop();
    const period = periodOf(pictures.map((picture) => picture.hash));
    if (period === 0) open = null;
    else if (open) {
      open.pictures++;
      open.loop.last = i;
      open.loop.repeats = Math.floor(open.pictures / open.period);
    } else {
      const first = pictures[Math.min(period + 1, pictures.length - 1)]!.at;
      open = { loop: { first, last: i, repeats: 1 }, period, pictures: period + 2 };
      open.loop.repeats = Math.floor(open.pictures / period);
      found.push(open.loop);
    }
  }
  return found;
}

function periodOf(pictures: bigint[]): number {
  for (let period = 2; period + 1 < pictures.length; period++)
    if (same(pictures[0]!, pictures[period]!) && same(pictures[1]!, pictures[period + 1]!)) return period;
  return 0;
}
