import type { operations } from "./schema.js";

type Json<T> = T extends { content: { "application/json": infer Body } } ? Body : never;
/** `T`, whose optional fields may also be undefined. */
type Given<T> = { [K in keyof T]: {} extends Pick<T, K> ? T[K] | undefined : T[K] };

/** Operation of the API, by its name in the OpenAPI document. */
export type Operation = keyof operations;
/** Query parameters of an operation. */
export type Query<K extends Operation> = Given<NonNullable<operations[K]["parameters"]["query"]>>;
/** JSON body that an operation takes. */
export type Body<K extends Operation> = Given<Json<NonNullable<operations[K]["requestBody"]>>>;
/** JSON body of an operation's success. */
export type Answer<K extends Operation> = operations[K]["responses"] extends { 200: infer Success } ? Json<Success> : never;

/** A page of a list that was asked for with `limit`; `nextCursor`, where there is one, asks for the next page. */
export type Page<T> = T & { readonly nextCursor?: string };

/** Options of every call. */
export interface CallOptions {
  /** Ends the call, which then throws the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Longest wait for this call's answer, instead of the client's. */
  timeoutMs?: number | undefined;
}

/** Options of a call that acts once however often it is sent. */
export interface KeyedOptions extends CallOptions {
  /** Names the request; made up where it is missing. */
  idempotencyKey?: string | undefined;
}

/** Settings of a client. */
export interface ClientOptions {
  /** Key of the caller, or a function that gives it for each request. */
  apiKey?: (string | (() => string | undefined | Promise<string | undefined>)) | undefined;
  /** Times that a request which is safe to repeat is sent again after a transient failure. Default 3. */
  maxRetries?: number | undefined;
  /** First back-off, which doubles with each retry; the wait is random below it. Default 250. */
  retryBaseDelayMs?: number | undefined;
  /** Longest wait for an answer. Default 60,000, and none where the answer takes as long as its work does. */
  timeoutMs?: number | undefined;
  /** Sends the requests instead of the global `fetch`. */
  fetch?: typeof fetch | undefined;
  /** Headers of every request, such as `x-tenant-id`. */
  headers?: Record<string, string> | undefined;
}
