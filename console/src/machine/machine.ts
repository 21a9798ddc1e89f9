/** Findings of the Machine page from the server's answers, in words, the worst first. */
import type { Schemas } from '../api/client';
import { t } from '../app/messages.svelte';

export type Check = Schemas.DoctorCheck;
export type Point = Schemas.StatsMinute;

/** Something that needs a person. */
interface Trouble {
  what: string;
  todo: string | null;
}

/** Returns the problems: those that stop the server, then the doctor's, then models that do not answer. */
export function troubles(ready: Schemas.Readiness | undefined, models: Schemas.Models | undefined, checks: readonly Check[]): Trouble[] {
  const found: Trouble[] = [];
  for (const reason of ready?.reasons ?? []) found.push({ what: reason, todo: null });
  for (const check of checks) if (check.status === 'problem') found.push({ what: `${check.name.replaceAll('_', ' ')}: ${check.message}`, todo: check.advice });
  const told = found.map(({ what }) => what).join('\n');
  for (const provider of models?.providers ?? []) {
    if (!provider.reachable && !told.includes(provider.name)) found.push({ what: t('machine.unreachable', { name: provider.name, error: provider.last_error ?? '' }), todo: t('machine.unreachable_todo') });
  }
  if (ready && ready.sandbox !== 'full' && !checks.some((check) => check.status !== 'ok' && /sandbox/i.test(check.name))) {
    found.push({ what: t('machine.sandbox_less', { level: ready.sandbox }), todo: ready.sandbox_detail });
  }
  return found;
}

/** A text with a full stop. */
export function ended(text: string): string {
  const trimmed = text.trim();
  return trimmed === '' || /[.!?…]$/.test(trimmed) ? trimmed : `${trimmed}.`;
}

/** A text as a sentence: a capital letter and a full stop. */
export function sentence(text: string): string {
  const whole = ended(text);
  return whole.charAt(0).toUpperCase() + whole.slice(1);
}
