/** Health of a live session in words: the server's figures, and advice about the one that is over. */
import type { Schemas } from '../api/client';
import type { Key } from '../app/messages.svelte';

export type Health = Schemas.SessionHealth;

/** Figures past these are said, as the server's rule has them. */
const BOUNDS = { lost_percent: 1, jitter_ms: 30, behind_ms: 1000 } as const;

/** Returns advice about the figure that is the most over its bound. */
export function advice(health: Health): Key {
  if (health.word === 'silent') return 'health.silent_do';
  const over = (Object.keys(BOUNDS) as (keyof typeof BOUNDS)[]).map((name) => ({ name, times: health[name] / BOUNDS[name] }));
  const worst = over.reduce((a, b) => (b.times > a.times ? b : a));
  if (worst.times < 1) return health.dropped > 0 ? 'health.behind_ms_do' : 'health.good_do';
  return `health.${worst.name}_do`;
}
