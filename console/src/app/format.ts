/** Times, lengths and sizes in words; numbers by the language. */
import { number, t } from './messages.svelte';
import { settings } from './settings.svelte';

/** A span in words: `9.8 s`, `5 min 38 s`, `3 h 08 min`, `12 d 7 h`. */
export function span(ms: number): string {
  if (ms < 10_000) return `${number(ms / 1000, { maximumFractionDigits: 1 })} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  const rest = seconds % 60;
  if (minutes < 60) return rest === 0 || minutes >= 10 ? `${minutes} min` : `${minutes} min ${rest} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${String(minutes % 60).padStart(2, '0')} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
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

type Moment = number | string | Date;

const made = new Map<string, Intl.DateTimeFormat>();
/** A moment in the zone of the settings; formats are costly to make, and lists ask for thousands. */
function written(at: Moment, options: Intl.DateTimeFormatOptions, language: string = settings.locale): string {
  const key = JSON.stringify([language, settings.zone, options]);
  let format = made.get(key);
  if (!format) made.set(key, (format = new Intl.DateTimeFormat(language, { timeZone: settings.zone, ...options })));
  return format.format(new Date(at));
}

/** Wall time of a day: `14:02` or `14:02:09`, in the zone of the settings. */
export function timeOfDay(at: Moment, seconds = false): string {
  return written(at, { hour: '2-digit', minute: '2-digit', hourCycle: 'h23', ...(seconds ? { second: '2-digit' } : {}) });
}

/** The day of a moment in the zone of the settings, `2026-11-24`: equal for moments of one day. */
export function dayKey(at: Moment): string {
  return written(at, {}, 'sv-SE');
}

/** `today` or `yesterday` where a day is one of them: by the calendar, since days of a change of the clocks are no 24 hours. */
function nearDay(key: string, now: number): 'today' | 'yesterday' | null {
  const today = dayKey(now);
  if (key === today) return 'today';
  return key === new Date(Date.parse(today) - 86_400_000).toISOString().slice(0, 10) ? 'yesterday' : null;
}

const yearOf = (key: string, now: number): Intl.DateTimeFormatOptions => (key.slice(0, 4) === dayKey(now).slice(0, 4) ? {} : { year: 'numeric' });

/** Name of a day: `Today`, `Yesterday`, `Monday, 23 November`. */
export function dayName(at: Moment, now: number = Date.now()): string {
  const key = dayKey(at);
  const near = nearDay(key, now);
  return near ? t(`time.${near}`) : written(at, { weekday: 'long', day: 'numeric', month: 'long', ...yearOf(key, now) });
}

/** A moment in words: `today 14:02`, `23 November 09:55`, with its year where that is another one. */
export function moment(at: Moment, now: number = Date.now()): string {
  const key = dayKey(at);
  const time = timeOfDay(at);
  const near = nearDay(key, now);
  return near ? t(`time.${near}_at`, { time }) : t('time.date_at', { date: written(at, { day: 'numeric', month: 'short', ...yearOf(key, now) }), time });
}
