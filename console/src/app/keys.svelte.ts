/** Keys of the page: who asks for one last has it. The map that `?` shows is made of what is bound. */
import { untrack } from 'svelte';
import type { Key } from './messages.svelte';
import { settings } from './settings.svelte';

export interface Binding {
  /** `event.key`, with `Shift+`, `Alt+` or `Mod+` (Ctrl, on a Mac Cmd) before it; several for the same act. */
  keys: string[];
  /** Description of its action in the map of keys; without it the map leaves it out. */
  says?: Key;
  act: (event: KeyboardEvent) => void;
  /** Acts in fields as well. */
  inFields?: boolean;
}

let bound = $state.raw<{ title: Key; bindings: Binding[] }[]>([]);

export const keyMap = {
  get groups() { return bound; },
};

/** Binds keys while a component is there: call it while the component is made. */
export function bindKeys(title: Key, bindings: Binding[]): void {
  $effect(() => {
    const group = { title, bindings };
    bound = [...untrack(() => bound), group];
    return () => (bound = untrack(() => bound).filter((other) => other !== group));
  });
}

function name(event: KeyboardEvent): string {
  const { key } = event;
  const letter = key.length === 1 && key.toLowerCase() !== key.toUpperCase();
  const shift = event.shiftKey && (key.length > 1 || letter) ? 'Shift+' : '';
  return `${event.ctrlKey || event.metaKey ? 'Mod+' : ''}${event.altKey ? 'Alt+' : ''}${shift}${letter ? key.toLowerCase() : key}`;
}

/** Something that takes text has the focus. */
function inField(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

addEventListener('keydown', (event) => {
  if (event.defaultPrevented || event.isComposing) return;
  const pressed = name(event);
  const field = inField(event.target);
  // Those of what is open over the page are its own, Escape first.
  if (document.querySelector('dialog[open], :popover-open')) return;
  if (!settings.keys && pressed.replace('Shift+', '').length === 1) return;
  for (const group of [...bound].reverse()) {
    for (const binding of group.bindings) {
      if (!binding.keys.includes(pressed) || (field && !binding.inFields)) continue;
      event.preventDefault();
      binding.act(event);
      return;
    }
  }
});
