/** Settings and choices that this browser keeps, under a name each. */

/** Returns what is kept at `place` over `fallback`, or that alone where nothing can be read. */
export function stored<T extends object>(place: string, fallback: T): T {
  try {
    return { ...fallback, ...(JSON.parse(localStorage.getItem(place) ?? '{}') as Partial<T>) };
  } catch {
    return { ...fallback };
  }
}

/** Keeps `value`; where the browser has no room or forbids it, it holds until the page is left. */
export function keepStored(place: string, value: object): void {
  try {
    localStorage.setItem(place, JSON.stringify(value));
  } catch {
    // As the doc says.
  }
}
