/** Addresses of stills and sources for `<img>` and `<video>`, which cannot send a key: with a ticket of ten minutes. */
import { SvelteMap } from 'svelte/reactivity';
import { client } from './client';
import { apiUrl, serverNow } from './connection.svelte';

/** A ticket is renewed when less than this is left of it. */
const MARGIN_MS = 60_000;

interface Ticket { ticket: string; until: number }

const tickets = new SvelteMap<string, Ticket>();
const asked = new Map<string, Promise<void>>();

/** Has a ticket for the media of `run`; `renew` where the one that there is was refused. */
export function haveTicket(run: string, { renew = false } = {}): Promise<void> {
  const has = tickets.get(run);
  if (!renew && has && has.until - serverNow() > MARGIN_MS) return Promise.resolve();
  const under = asked.get(run);
  if (under) return under;
  const request = client.createMediaTicket(run)
    .then(({ ticket, expires_at }) => { tickets.set(run, { ticket, until: Date.parse(expires_at) }); })
    .finally(() => asked.delete(run));
  asked.set(run, request);
  return request;
}

/** Forgets every ticket: they were another key's. */
export function forgetTickets(): void {
  tickets.clear();
}

/** The address of `path` beneath `run` (`source`, `keyframes/{sha256}`), or `null` until there is a ticket. Reactive. */
export function mediaUrl(run: string, path: string, query: Record<string, string | number> = {}): string | null {
  const has = tickets.get(run);
  return has ? apiUrl(`v1/runs/${run}/${path}`, { ...query, ticket: has.ticket }) : null;
}
