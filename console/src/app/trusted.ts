/** The one script that the page may start beside its own: a worker that was built with it. */
import { base } from './router.svelte';

interface Policy { createScriptURL(url: string): string }
interface Policies { createPolicy(name: string, rules: { createScriptURL: (url: string) => string }): Policy }

const policies = (globalThis as { trustedTypes?: Policies }).trustedTypes;
const policy = policies?.createPolicy('sightline-worker', {
  createScriptURL(url) {
    const { origin, pathname } = new URL(url, location.href);
    if (origin !== location.origin || !pathname.startsWith(base)) throw new TypeError(`not a worker of this page: ${pathname}`);
    return url;
  },
});

/** Starts a worker by the address of its module: `import url from './x.worker?worker&url'`. */
export function startWorker(url: string): Worker {
  return new Worker(policy ? policy.createScriptURL(url) : url, { type: 'module' });
}
