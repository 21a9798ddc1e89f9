import type { Event, QueryMatch } from "./schema.js";

/** A type of its own among strings, so that comparing `kind` with a known kind rules the open arm out. */
declare enum OtherKind {
  any = "",
}

/** An event of a kind that this client does not know; assign `kind` to a `string` to compare it. */
export interface UnknownEvent {
  seq: number;
  pts_ms: number;
  kind: OtherKind;
  payload: Record<string, unknown>;
}

/** An event of a timeline; `kind` tells the kinds apart, and a server may know more of them than this client. */
export type TimelineEvent = Event | UnknownEvent;

/** An event that says its run. */
export type RunEvent = QueryMatch | (UnknownEvent & { run_id: string });
