/** The view of a timeline: its limits, the ways it moves, the views before it, and the live edge. */

import { span, type View } from './scale';

export interface Limits {
  start: number;
  end: number;
  /** Length of a frame. */
  frameMs: number;
}

/** Share of the run that a view may show beyond its ends, both together. */
const BEYOND = 0.02;
const FEWEST_FRAMES = 6;

export function whole({ start, end, frameMs }: Limits): View {
  const length = Math.max(end - start, FEWEST_FRAMES * frameMs);
  return { from: start - (length * BEYOND) / 2, to: start + length * (1 + BEYOND / 2) };
}

/** The nearest view that the limits allow; its centre is kept where that is possible. */
export function clamped(view: View, limits: Limits): View {
  const all = whole(limits);
  const length = Math.min(Math.max(span(view), FEWEST_FRAMES * limits.frameMs), span(all));
  const from = (view.from + view.to - length) / 2;
  const shift = Math.max(all.from - from, Math.min(0, all.to - from - length));
  return { from: from + shift, to: from + shift + length };
}

/** Factor of the span for the distance that a wheel turned. */
export const wheelFactor = (delta: number): number =>
  Math.min(5, Math.max(0.2, 1.0015 ** delta));

/** A view `factor` times as long in which `about` stays where it is. */
export function zoomed(view: View, factor: number, about: number, limits: Limits): View {
  const longest = span(whole(limits)) / span(view);
  const shortest = (FEWEST_FRAMES * limits.frameMs) / span(view);
  const by = Math.min(Math.max(factor, Math.min(shortest, 1)), Math.max(longest, 1));
  return clamped(
    { from: about - (about - view.from) * by, to: about + (view.to - about) * by },
    limits,
  );
}

export function panned(view: View, by: number, limits: Limits): View {
  const all = whole(limits);
  const shift = Math.max(all.from - view.from, Math.min(by, all.to - view.to));
  return { from: view.from + shift, to: view.to + shift };
}

/** A view of a range with half its length around it. */
export function fitted(from: number, to: number, limits: Limits): View {
  const margin = Math.max((to - from) / 4, limits.frameMs * FEWEST_FRAMES);
  return clamped({ from: from - margin, to: to + margin }, limits);
}

/** A view of the same length that shows `t`, moved only where it must be. */
export function revealed(view: View, t: number, limits: Limits): View {
  const edge = span(view) * 0.05;
  if (t >= view.from + edge * 0.2 && t <= view.to - edge * 0.2) return view;
  const half = span(view) / 2;
  return clamped({ from: t - half, to: t + half }, limits);
}

export type Move = 'pan' | 'zoom' | 'jump';

/** Views before the present one. A pan replaces the present entry, a zoom or a jump adds one. */
export class ViewStack {
  private entries: View[];

  constructor(
    first: View,
    private readonly most = 64,
  ) {
    this.entries = [first];
  }

  get depth(): number {
    return this.entries.length - 1;
  }

  /** Takes the view that came to rest; tells whether it is an entry of its own. */
  settle(view: View, move: Move): 'push' | 'replace' {
    const last = this.entries[this.entries.length - 1];
    const same = Math.abs(last!.from - view.from) + Math.abs(last!.to - view.to) < 1e-6;
    if (same || move === 'pan') {
      this.entries[this.entries.length - 1] = view;
      return 'replace';
    }
    this.entries.push(view);
    if (this.entries.length > this.most) this.entries.shift();
    return 'push';
  }

  back(): View | null {
    if (this.depth === 0) return null;
    this.entries.pop();
    return this.entries[this.entries.length - 1]!;
  }
}

/** The live edge: held in view while `following`; otherwise what arrived is counted and nothing moves. */
export interface Tail {
  following: boolean;
  unseen: number;
}

type TailEvent =
  | { kind: 'arrived'; count: number }
  | { kind: 'moved'; view: View; edge: number; by: 'user' | 'edge' }
  | { kind: 'live' };

export function tailed(tail: Tail, event: TailEvent): Tail {
  switch (event.kind) {
    case 'arrived':
      return tail.following ? tail : { following: false, unseen: tail.unseen + event.count };
    case 'live':
      return { following: true, unseen: 0 };
    case 'moved':
      return event.by === 'edge' && event.view.to >= event.edge
        ? { following: true, unseen: 0 }
        : { following: false, unseen: tail.unseen };
  }
}

/** The view that shows a new live edge at its right side. */
export function advanced(view: View, edge: number): View {
  const room = span(view) * BEYOND;
  return { from: edge + room - span(view), to: edge + room };
}
