/** The routes over the history API. The whole state of a view is in its address; the page learns from its own where it is mounted. */
import { build, parse, type Query, type Route } from './address';

/** Path that the page is mounted at, with a slash at its end. Built modules lie in its `assets/`. */
export const base: string = import.meta.env.DEV ? '/' : new URL(/* @vite-ignore */ '..', import.meta.url).pathname;

function here(): { route: Route; query: URLSearchParams } {
  const { pathname, search } = location;
  return { route: parse(pathname.slice(base.length)), query: new URLSearchParams(search) };
}

let shown = $state.raw(here());
let left: Route | null = null;

export const router = {
  /** The route that Back or Forward has just left; null after a link. */
  get left(): Route | null { return left; },
  get route(): Route { return shown.route; },
  get query(): URLSearchParams { return shown.query; },
};

/** The address of `path` (`/runs`) with `query`. */
export function href(path: string, query: Query = {}): string {
  return build(base, path, query);
}

/** Goes to an address that `href` made. */
export function navigate(to: string, { replace = false } = {}): void {
  const { pathname } = location;
  left = null;
  history[replace ? 'replaceState' : 'pushState'](null, '', to);
  shown = here();
  if (location.pathname !== pathname) scrollTo(0, 0);
}

/** Changes a part of the view's state; `push` where it is a jump that Back undoes. */
export function setQuery(change: Query, { push = false } = {}): void {
  const query: Query = { ...Object.fromEntries(shown.query), ...change };
  const to = href(location.pathname.slice(base.length), query);
  if (to !== location.pathname + location.search) navigate(to, { replace: !push });
}

addEventListener('popstate', () => ([left, shown] = [shown.route, here()]));

/** Links to pages of ours act without a load; others, and those with a modifier key, as ever. */
document.addEventListener('click', (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target instanceof Element ? event.target.closest('a') : null;
  if (!link || link.target !== '' || link.hasAttribute('download') || link.origin !== location.origin || link.hash !== '') return;
  if (!link.pathname.startsWith(base) || link.pathname.startsWith(`${base}v1/`)) return;
  event.preventDefault();
  navigate(link.href);
});
