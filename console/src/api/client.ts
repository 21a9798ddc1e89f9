/** The client library with the key of this tab, and the names of what it answers. */
import { HttpError, NetworkError, RetryExhaustedError, SightlineClient, UploadError, type Schemas } from 'sightline-client';
import { base } from '../app/router.svelte';
import { t } from '../app/messages.svelte';
import { connection, observedFetch } from './connection.svelte';

export type { Schemas } from 'sightline-client';
export type Run = Schemas.Run;
export type Model = Schemas.Model;

const address = location.origin + base.replace(/\/$/, '');
const apiKey = (): string | undefined => connection.key ?? undefined;

/** Every call tells the status strip and the key gate how it went; waiting for a server that is away is the strip's. */
export const client = new SightlineClient(address, { apiKey, fetch: observedFetch, maxRetries: 1 });

/** For uploads, which tell how far they have come. */
export const uploader = new SightlineClient(address, { apiKey, maxRetries: 0 });

/** Returns the innermost cause of a failure: uploads and retries wrap it.  */
export function causeOf(error: unknown): unknown {
  return error instanceof UploadError || error instanceof RetryExhaustedError ? causeOf(error.cause) : error;
}

/** The failure in words for a person. */
export function reasonOf(error: unknown): string {
  const cause = causeOf(error);
  if (cause instanceof HttpError) return cause.reason;
  if (cause instanceof NetworkError) return t('status.offline');
  return cause instanceof Error ? cause.message : t('error.unknown');
}

/** A run that is unknown, deleted or another key's. */
export function isGone(error: unknown): boolean {
  const cause = causeOf(error);
  return cause instanceof HttpError && cause.status === 404;
}
