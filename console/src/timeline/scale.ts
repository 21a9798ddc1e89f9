/** Time axis: positions, semantic levels, ticks and times as text. All times are ms of media time. */

export interface View {
  from: number;
  to: number;
}

export const span = (view: View): number => view.to - view.from;

export const xOf = (view: View, width: number, t: number): number =>
  ((t - view.from) / span(view)) * width;

export const tOf = (view: View, width: number, x: number): number =>
  view.from + (x / width) * span(view);

type Level = 'density' | 'cluster' | 'bars' | 'frames';

/** Names what is drawn at a number of milliseconds a pixel. */
export function levelOf(msPerPx: number): Level {
  if (msPerPx > 2000) return 'density';
  if (msPerPx > 100) return 'cluster';
  return msPerPx >= 6 ? 'bars' : 'frames';
}

/** Distances of labelled ticks, each with that of the small ticks between them. */
const STEPS: readonly (readonly [number, number])[] = [
  [1, 1], [2, 1], [5, 1], [10, 2], [20, 5], [50, 10], [100, 20], [200, 50], [500, 100],
  [1e3, 200], [2e3, 500], [5e3, 1e3], [1e4, 2e3], [15e3, 5e3], [3e4, 5e3],
  [6e4, 1e4], [12e4, 3e4], [3e5, 6e4], [6e5, 12e4], [9e5, 3e5], [18e5, 3e5],
  [36e5, 6e5], [72e5, 18e5], [108e5, 36e5], [216e5, 36e5], [432e5, 72e5], [864e5, 216e5],
];

interface Ticks {
  step: number;
  major: number[];
  minor: number[];
}

/** Ticks of a view; `origin` is what media time 0 is on the clock that is shown, 0 for media time. */
export function ticks(view: View, width: number, origin = 0, room = 92): Ticks {
  const least = (span(view) / width) * room;
  const [step, small] = STEPS.find(([step]) => step >= least) ?? STEPS[STEPS.length - 1]!;
  const major: number[] = [];
  const minor: number[] = [];
  const first = Math.ceil((view.from + origin) / small);
  const last = Math.min(Math.floor((view.to + origin) / small), first + width);
  for (let n = first; n <= last; n++) {
    const at = n * small;
    (at % step === 0 ? major : minor).push(at - origin);
  }
  return { step, major, minor };
}

const two = (n: number): string => String(n).padStart(2, '0');

/** `1:02`, `1:02:03` or, with up to 3 digits, `1:02.500`; cut, not rounded, so that it never runs ahead. */
export function timeText(ms: number, digits = 0): string {
  const sign = ms < 0 ? '−' : '';
  const whole = Math.floor(Math.abs(ms) + 1e-6);
  const seconds = Math.floor(whole / 1000);
  const h = Math.floor(seconds / 3600);
  const m = Math.floor(seconds / 60) % 60;
  const rest = digits ? `.${String(whole % 1000).padStart(3, '0').slice(0, digits)}` : '';
  return `${sign}${h ? `${h}:${two(m)}` : m}:${two(seconds % 60)}${rest}`;
}

/** Digits after the second that tell ticks of a distance apart. */
export const digitsOf = (step: number): number =>
  step >= 1000 ? 0 : step >= 100 ? 1 : step >= 10 ? 2 : 3;

/** Length of a span in words: `96 s`, `12 min`, `2.5 h`, `400 ms`. */
export function spanText(ms: number): string {
  const shown = (n: number) => (n < 10 ? String(Math.round(n * 10) / 10) : String(Math.round(n)));
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 180e3) return `${shown(ms / 1e3)} s`;
  return ms < 5400e3 ? `${shown(ms / 6e4)} min` : `${shown(ms / 36e5)} h`;
}

/** Milliseconds that a zone is ahead of UTC at a moment. */
export function zoneOffset(epoch: number, zone: string | undefined): number {
  const parts = new Intl.DateTimeFormat('en-US', {
    timeZone: zone, hourCycle: 'h23', year: 'numeric', month: 'numeric', day: 'numeric',
    hour: 'numeric', minute: 'numeric', second: 'numeric',
  }).formatToParts(epoch);
  const of = (type: string) => Number(parts.find((part) => part.type === type)?.value);
  const local = Date.UTC(of('year'), of('month') - 1, of('day'), of('hour'), of('minute'), of('second'));
  return local - Math.floor(epoch / 1000) * 1000;
}

/** Clock time of an epoch moment shifted to its zone: `14:03:09`, with the digits of `timeText`. */
export function clockText(local: number, digits = 0, seconds = true): string {
  const day = ((local % 864e5) + 864e5) % 864e5;
  const text = `${two(Math.floor(day / 36e5))}:${two(Math.floor(day / 6e4) % 60)}`;
  const rest = digits ? `.${String(Math.floor(day % 1000)).padStart(3, '0').slice(0, digits)}` : '';
  return seconds || digits ? `${text}:${two(Math.floor(day / 1000) % 60)}${rest}` : text;
}

type Goal = { kind: 'time'; ms: number } | { kind: 'frame'; frame: number };

interface GoalContext {
  end: number;
  /** Time of the shown clock at media time 0, null without one. */
  origin: number | null;
  clock: boolean;
}

/** Reads what a person types to go to: `1:02`, `14:03`, `62.5`, `#620`, `frame 620`. */
export function readGoal(text: string, context: GoalContext): Goal | null {
  const said = text.trim().toLowerCase();
  const frame = /^(?:#|f|frame)\s*(\d{1,12})$/.exec(said);
  if (frame) return { kind: 'frame', frame: Number(frame[1]) };
  const parts = /^(?:(\d{1,3}):)?(?:(\d{1,5}):)?(\d{1,9}(?:[.,]\d{1,3})?)\s*s?$/.exec(said);
  if (!parts) return null;
  const fields = [parts[1], parts[2], parts[3]].filter((part) => part !== undefined);
  const numbers = fields.map((part) => Number(part.replace(',', '.')));
  if (numbers.slice(1).some((n) => n >= 60)) return null;
  const media = numbers.reduce((sum, n) => sum * 60 + n, 0) * 1000;
  const { end, origin, clock } = context;
  if (numbers.length > 1 && origin !== null && (clock || media > end)) {
    const daytime = numbers.length === 2 ? media * 60 : media;
    if (numbers[0]! > 23) return null;
    const start = ((origin % 864e5) + 864e5) % 864e5;
    return { kind: 'time', ms: (((daytime - start) % 864e5) + 864e5) % 864e5 };
  }
  return { kind: 'time', ms: media };
}
