import { type World, equal, heapBytes, holds } from "./world.js";

/** Bytes that a reader may hold however long the timeline is: a tenth of what a million events are. */
const HEAP_MAX = 60e6;

/** Reads the first `wanted` events of a timeline of `world.crowd` and says the most of the heap that was in use. */
export async function readCrowd(world: World, wanted = world.crowd): Promise<number> {
  const before = heapBytes();
  let [count, last, most] = [0, -1, 0];
  for await (const { seq } of world.client("crowded").streamEvents(`run-${"0".repeat(32)}`)) {
    holds(seq > last, "events are in order");
    last = seq;
    if (wanted < world.crowd && count === wanted) break;
    if (++count % 10_000 === 0) most = Math.max(most, heapBytes() - before);
  }
  equal(count, wanted === world.crowd ? wanted + 1 : wanted);
  holds(most < HEAP_MAX, `the heap stays small: it grew by ${most} bytes`);
  return most;
}
