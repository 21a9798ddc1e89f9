/** Addresses of the page, as values: what a path shows, and what a view is called. */

export type Route =
  | { page: 'runs' | 'search' | 'machine' | 'settings' | 'lost' }
  | { page: 'run'; run: string }
  | { page: 'live'; run: string | null };

export type Query = Record<string, string | number | boolean | null | undefined>;

const RUN = /^run-[0-9a-f]{32}$/;

/** Returns the route of `path`, beneath where the page is mounted. */
export function parse(path: string): Route {
  const [page = '', id, ...more] = path.split('/').filter((part) => part !== '').map(decode);
  if (more.length > 0 || ((page === 'runs' || page === 'live') && id !== undefined && !RUN.test(id))) return { page: 'lost' };
  if (page === 'runs' && id !== undefined) return { page: 'run', run: id };
  if (page === 'live') return { page, run: id ?? null };
  if (id !== undefined) return { page: 'lost' };
  if (page === '' || page === 'runs') return { page: 'runs' };
  if (page === 'search' || page === 'machine' || page === 'settings') return { page };
  return { page: 'lost' };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** `path` beneath `base` with `query`; what is null, undefined, false or empty is left out. */
export function build(base: string, path: string, query: Query = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === false || value === '') continue;
    search.set(name, value === true ? '1' : String(value));
  }
  const text = search.toString();
  return base + path.replace(/^\//, '') + (text === '' ? '' : `?${text}`);
}
