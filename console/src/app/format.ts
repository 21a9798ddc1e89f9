/** Times, lengths and sizes in words; numbers by the language. */
import { number, t } from './messages.svelte';
import { settings } from './settings.svelte';

/** A span in words: `9.8 s`, `5 min 38 s`, `3 h 08 min`. */
export function span(ms: number): string {
  const seconds = ms / 1000;
  if (seconds < 10) return `${number(seconds, { maximumFractionDigits: 1 })} s`;
  if (seconds < 60) return `${number(Math.round(seconds))} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) {
    const rest = Math.round(seconds % 60);
    return rest === 0 || minutes >= 10 ? `${minutes} min` : `${minutes} min ${rest} s`;
  }
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, '0')} min`;
}

export function percent(fraction: number): string {
  return `${number(Math.floor(fraction * 100))} %`;
}

/** A score or confidence: `0.84`. */
export function score(value: number): string {
  return number(value, { minimumFractionDigits: 2, maximumFractionDigits: 2 });
}

/** A share of the picture: `0.35 %`, `2.5 %`, `12 %`. */
export function share(value: number): string {
  return `${number(value * 100, { maximumFractionDigits: value < 0.00995 ? 2 : value < 0.0995 ? 1 : 0 })} %`;
}

export function bytes(value: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  const power = value < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(value) / 3));
  return `${number(value / 1000 ** power, { maximumFractionDigits: power > 2 ? 1 : 0 })} ${units[power]}`;
}

/** Wall time of a day: `14:02` or `14:02:09`, in the zone of the settings. */
export function timeOfDay(at: number | string | Date, seconds = false): string {
  return new Intl.DateTimeFormat(settings.language, {
    timeZone: settings.zone,
    hour: '2-digit',
    minute: '2-digit',
    hourCycle: 'h23',
    ...(seconds ? { second: '2-digit' } : {}),
  }).format(new Date(at));
}

/** The day of a moment in the zone of the settings, `2026-11-24`: equal for moments of one day. */
export function dayKey(at: number | string | Date): string {
  return new Intl.DateTimeFormat('sv-SE', { timeZone: settings.zone }).format(new Date(at));
}

/** Name of a day: `Today`, `Yesterday`, `Monday, 23 November`. */
export function dayName(at: number | string | Date, now: number = Date.now()): string {
  const key = dayKey(at);
  if (key === dayKey(now)) return t('time.today');
  if (key === dayKey(now - 86_400_000)) return t('time.yesterday');
  const sameYear = key.slice(0, 4) === dayKey(now).slice(0, 4);
  return new Intl.DateTimeFormat(settings.language, {
    timeZone: settings.zone,
    weekday: 'long',
    day: 'numeric',
    month: 'long',
    ...(sameYear ? {} : { year: 'numeric' }),
  }).format(new Date(at));
}

/** A moment in words: `today 14:02`, `23 November 09:55`. */
export function moment(at: number | string | Date, now: number = Date.now()): string {
  const key = dayKey(at);
  const time = timeOfDay(at);
  if (key === dayKey(now)) return t('time.today_at', { time });
  if (key === dayKey(now - 86_400_000)) return t('time.yesterday_at', { time });
  const date = new Intl.DateTimeFormat(settings.language, { timeZone: settings.zone, day: 'numeric', month: 'short' }).format(new Date(at));
  return t('time.date_at', { date, time });
}
