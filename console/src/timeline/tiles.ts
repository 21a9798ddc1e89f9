/** Windows of data on a grid of 2^k ms, and a store of them that forgets what was used longest ago. */

interface Tile {
  from: number;
  to: number;
}

export const keyOfTile = (tile: Tile): string => `${tile.from}:${tile.to}`;

/** Tiles that cover a view and as much on each side, of a length between one and two views. */
export function tilesOf(from: number, to: number, start: number, end: number): Tile[] {
  const length = 2 ** Math.ceil(Math.log2(Math.max(to - from, 1)));
  const first = Math.floor(Math.max(start, from - (to - from)) / length);
  const last = Math.floor(Math.min(end, to + (to - from)) / length);
  const tiles: Tile[] = [];
  for (let n = first; n <= last; n++) tiles.push({ from: n * length, to: (n + 1) * length });
  const centre = (from + to) / 2;
  const away = (tile: Tile) => Math.abs((tile.from + tile.to) / 2 - centre);
  return tiles.sort((a, b) => away(a) - away(b));
}

/** Holds values up to a total size; the least recently used go first. */
export class Lru<V> {
  private readonly held = new Map<string, { value: V; size: number }>();
  private total = 0;

  constructor(
    private readonly most: number,
    private readonly dropped: (value: V) => void = () => {},
  ) {}

  get size(): number {
    return this.total;
  }

  get(key: string): V | undefined {
    const entry = this.held.get(key);
    if (!entry) return undefined;
    this.held.delete(key);
    this.held.set(key, entry);
    return entry.value;
  }

  has(key: string): boolean {
    return this.held.has(key);
  }

  values(): V[] {
    return [...this.held.values()].map((entry) => entry.value);
  }

  set(key: string, value: V, size = 1): void {
    this.delete(key);
    this.held.set(key, { value, size });
    this.total += size;
    for (const [oldest] of this.held) {
      if (this.total <= this.most || oldest === key) break;
      this.delete(oldest);
    }
  }

  delete(key: string): void {
    const entry = this.held.get(key);
    if (!entry) return;
    this.held.delete(key);
    this.total -= entry.size;
    this.dropped(entry.value);
  }

  clear(): void {
    for (const key of [...this.held.keys()]) this.delete(key);
  }
}
