/** Differences between two analyses of one run. */

import type { Marker } from './lanes';

export interface Comparison {
  added: Marker[];
  gone: Marker[];
  same: number;
  /** Ids of markers of either that the other lacks. */
  differs: ReadonlySet<string>;
}

const keyOf = (marker: Marker): string =>
  `${marker.event_type} ${marker.start_frame} ${marker.end_frame} ${marker.status}`;

/** `before` is the analysis that is compared with, `after` the one that is shown. */
export function compared(before: readonly Marker[], after: readonly Marker[]): Comparison {
  const lacking = (of: readonly Marker[], other: readonly Marker[]) => {
    const keys = new Set(other.map(keyOf));
    return of.filter((marker) => !keys.has(keyOf(marker)));
  };
  const added = lacking(after, before);
  const gone = lacking(before, after);
  const differs = new Set([...added, ...gone].map((marker) => marker.marker_id));
  return { added, gone, same: after.length - added.length, differs };
}
