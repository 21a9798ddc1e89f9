import type { Event, Match } from "./schema.js";

declare const unknownKind: unique symbol;

/** An event of a kind that this client does not know yet. */
export interface UnknownEvent {
  seq: number;
  pts_ms: number;
  kind: string & { readonly [unknownKind]: true };
  payload: Record<string, unknown>;
}

/** An event of a timeline; `kind` tells the kinds apart, and a server may know more of them than this client. */
export type TimelineEvent = Event | UnknownEvent;

/** An event that says its run. */
export type RunEvent = Match | (UnknownEvent & { run_id: string });
