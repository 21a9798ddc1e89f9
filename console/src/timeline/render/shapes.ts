/** A rectangle with round corners. */
export function rounded(x: number, y: number, wide: number, high: number, radius: number): Path2D {
  const path = new Path2D();
  path.roundRect(x, y, wide, high, radius);
  return path;
}
