export { type AnalyzeOptions, SightlineClient, type WhipSession } from "./client.js";
export { HttpError, NetworkError, ParseError, RetryExhaustedError, SightlineError, UploadError } from "./errors.js";
export type { RunEvent, TimelineEvent, UnknownEvent } from "./events.js";
export type * as Schemas from "./schema.js";
export type { SubscribeOptions } from "./subscribe.js";
export type { Answer, Body, CallOptions, ClientOptions, KeyedOptions, Operation, Page, Query } from "./types.js";
export type { FileSource, UploadProgress } from "./upload.js";
