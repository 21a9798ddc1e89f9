/** The one line at the foot of the page that says what was done and offers to undo it. */

interface Toast {
  text: string;
  /** Seconds left. */
  left: number;
  undo: (() => void) | null;
}

let toast = $state<Toast | null>(null);
let end: ((leaving: boolean) => void) | null = null;
let timer: ReturnType<typeof setInterval> | undefined;

export const toasts = {
  get shown(): Toast | null { return toast; },
};

/** Says `text` for a few seconds. */
export function say(text: string): void {
  show({ text, left: 5, undo: null }, null);
}

/** Says `text` and does `act` after 8 s, when something else is said, or when the page is left, unless it is undone. */
export function undoable(text: string, act: (leaving: boolean) => void, undo: () => void): void {
  show({ text, left: 8, undo }, act);
}

function show(next: Toast, act: typeof end): void {
  finish(false);
  toast = next;
  end = act;
  timer = setInterval(() => {
    if (toast && (toast.left -= 1) <= 0) finish(false);
  }, 1000);
}

function finish(leaving: boolean): void {
  clearInterval(timer);
  const act = end;
  end = null;
  toast = null;
  act?.(leaving);
}

/** Takes back what was said. */
export function undo(): void {
  const back = toast?.undo;
  end = null;
  finish(false);
  back?.();
}

addEventListener('pagehide', () => finish(true));
