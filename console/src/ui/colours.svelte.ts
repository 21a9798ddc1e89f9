/** The colours of the tokens as a canvas takes them. */
import { shownTheme } from '../app/settings.svelte';

const NAMES = [
  'bg', 'panel', 'raise', 'hover', 'line', 'edge', 'ink', 'ink2', 'ink3', 'accent', 'on-accent', 'tint',
  'cut', 'art', 'seen', 'loop', 'curve', 'area', 'strip', 'live', 'bad',
] as const;
export type Colour = (typeof NAMES)[number];

/** Every colour as the theme has it now; reactive on the theme. */
export function colours(): Record<Colour, string> {
  void shownTheme();
  const probe = document.createElement('i');
  document.body.append(probe);
  const found = Object.fromEntries(NAMES.map((name) => {
    probe.style.color = `var(--${name})`;
    return [name, getComputedStyle(probe).color];
  }));
  probe.remove();
  return found as Record<Colour, string>;
}
