/** Joins marks of one lane that would touch on the screen into one bar with a count. */

export interface Mark {
  x0: number;
  x1: number;
  /** Place in the order of reasons; the strongest of a cluster gives it its colour. */
  rank: number;
  /** Stays a mark of its own, as a cut does. */
  alone?: boolean;
}

export interface Cluster {
  x0: number;
  x1: number;
  /** Indices of the first and last mark in it. */
  first: number;
  last: number;
  count: number;
  rank: number;
}

/** Bars wider than this keep their edges however near they lie. */
const NARROW = 4;

/** Clusters of marks that are sorted by `x0`; `gap` is the least distance that keeps two apart. */
export function clusters(marks: readonly Mark[], gap: number): Cluster[] {
  const made: Cluster[] = [];
  marks.forEach((mark, i) => {
    const last = made[made.length - 1];
    const before = last && marks[last.last];
    const joins =
      last && !mark.alone && !before!.alone && mark.x0 - last.x1 < gap &&
      (mark.x1 - mark.x0 < NARROW || before!.x1 - before!.x0 < NARROW);
    if (joins) {
      last.x1 = Math.max(last.x1, mark.x1);
      last.last = i;
      last.count++;
      last.rank = Math.max(last.rank, mark.rank);
    } else {
      made.push({ x0: mark.x0, x1: mark.x1, first: i, last: i, count: 1, rank: mark.rank });
    }
  });
  return made;
}
