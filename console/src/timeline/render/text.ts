/** Text that fits: measured once, cut with an ellipsis, or broken into two lines. */

const widths = new Map<string, number>();
const MOST_KEPT = 20_000;

function widthOf(c: CanvasRenderingContext2D, text: string): number {
  const key = `${c.font} ${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size >= MOST_KEPT) widths.clear();
    widths.set(key, (width = c.measureText(text).width));
  }
  return width;
}

/** As much of a text as fits, with an ellipsis where it is cut; empty where nothing fits. */
export function fitText(c: CanvasRenderingContext2D, text: string, room: number): string {
  if (widthOf(c, text) <= room) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (widthOf(c, `${text.slice(0, middle)}…`) <= room) low = middle;
    else high = middle - 1;
  }
  return low > 0 ? `${text.slice(0, low).trimEnd()}…` : '';
}

/** Two lines of a text, broken between words. */
export function twoLines(c: CanvasRenderingContext2D, text: string, room: number): string[] {
  const words = text.split(/\s+/);
  let first = words[0] ?? '';
  let n = 1;
  while (n < words.length && widthOf(c, `${first} ${words[n]}`) <= room) first += ` ${words[n++]}`;
  const top = fitText(c, first, room);
  if (n >= words.length || top !== first) return top ? [top] : [];
  const rest = fitText(c, words.slice(n).join(' '), room);
  return rest ? [top, rest] : [top];
}
