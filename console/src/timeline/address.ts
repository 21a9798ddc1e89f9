/** The state of a run page in its address, and back. */

export interface Place {
  /** Head. */
  t?: number;
  from?: number;
  to?: number;
  /** Selected marker or frame. */
  m?: string;
  f?: number;
  /** First frame of the selected episode. */
  e?: number;
  /** Shown and compared analysis. */
  a?: string;
  b?: string;
  /** Lanes that are shown although they are hidden by default. */
  lanes?: string[];
  clock?: boolean;
  stream?: string;
  /** Words of the search that led here. */
  q?: string;
}

const number = (text: string | null, whole = false): number | undefined => {
  if (text === null || !/^-?\d{1,15}(\.\d{1,6})?$/.test(text)) return undefined;
  const value = Number(text);
  return whole && !Number.isInteger(value) ? undefined : value;
};

const matching = (text: string | null, pattern: RegExp): string | undefined =>
  text !== null && pattern.test(text) ? text : undefined;

/** Reads an address; what it cannot mean is left out. */
export function readPlace(search: string): Place {
  const query = new URLSearchParams(search);
  const [from, to] = [number(query.get('from')), number(query.get('to'))];
  const lanes = query.get('lanes')?.split(',').filter((lane) => lane !== '');
  const place: Place = {
    t: number(query.get('t')),
    f: number(query.get('f'), true),
    e: number(query.get('e'), true),
    m: matching(query.get('m'), /^mk-[0-9a-f]{16}$/),
    a: matching(query.get('a'), /^an-[0-9a-f]{16}$/),
    b: matching(query.get('b'), /^an-[0-9a-f]{16}$/),
    lanes: lanes?.length ? lanes : undefined,
    clock: query.get('clock') === '1' || undefined,
    stream: query.get('stream') || undefined,
    q: query.get('q') || undefined,
    ...(from !== undefined && to !== undefined && from < to ? { from, to } : {}),
  };
  return Object.fromEntries(Object.entries(place).filter(([, value]) => value !== undefined));
}

/** The query of an address, times to the millisecond; null where a part is to be left out. */
export function writePlace(place: Place): Record<keyof Place, string | null> {
  const ms = (value: number | undefined) => (value === undefined ? null : String(Math.round(value * 1000) / 1000));
  const view = place.from !== undefined && place.to !== undefined;
  return {
    t: ms(place.t),
    from: view ? ms(place.from) : null,
    to: view ? ms(place.to) : null,
    m: place.m ?? null,
    f: place.f === undefined ? null : String(place.f),
    e: place.e === undefined ? null : String(place.e),
    a: place.a ?? null,
    b: place.b ?? null,
    lanes: place.lanes?.join(',') || null,
    clock: place.clock ? '1' : null,
    stream: place.stream ?? null,
    q: place.q ?? null,
  };
}
