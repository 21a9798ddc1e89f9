import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { NetworkError, ParseError, RetryExhaustedError } from "../../src/index.js";
import { Splitter } from "../../src/snapshot.js";
import { all, failure, json, pieces, refusal, scripted } from "../support/scripted.js";

const RUN = "run-0123456789abcdef0123456789abcdef";
const SSE = "text/event-stream";

beforeEach(() => void vi.useFakeTimers({ shouldAdvanceTime: true }));
afterEach(() => vi.useRealTimers());

const sse = (...seqs: number[]) => seqs.map((seq) => `id: ${seq}\nevent: vlm\ndata: {"seq":${seq},"kind":"vlm"}\n\n`).join("");

const ELEMENTS = [
  { seq: 1, payload: {} },
  { seq: 2, payload: { text: 'quotes " and \\ and \\" and {[}]', list: [[1], [{ a: [] }], []] } },
  { seq: 3, kind: "ä😀\u2028", "}": "{" },
];
test.each<[string, string, unknown[]]>([
  ["elements", JSON.stringify({ request_id: "req-1", run_id: 'r"un', events: ELEMENTS }), ELEMENTS],
  ["no element", '{"request_id":"a","events":[]}', []],
  ["white space", JSON.stringify({ a: 1, events: ELEMENTS }, undefined, 2), ELEMENTS],
  ["fields behind the array", JSON.stringify({ events: ELEMENTS, more: [{ b: 1 }], last: { events: [{}] } }), ELEMENTS],
  ["other arrays before", JSON.stringify({ other: [{ a: 1 }, 2], deep: { events: [{ a: 2 }] }, events: ELEMENTS }), ELEMENTS],
  ["a string that looks like the field", JSON.stringify({ a: '"events":[', events: ELEMENTS }), ELEMENTS],
])("a snapshot is cut at its elements, wherever the network cuts it: %s", (_, text, expected) => {
  for (let cut = 0; cut <= text.length; cut++) {
    const splitter = new Splitter("events");
    const found = [...splitter.push(text.slice(0, cut)), ...splitter.push(text.slice(cut))];
    expect(found.map((element) => JSON.parse(element))).toEqual(expected);
    expect(splitter.isComplete).toBe(true);
  }
  const byLetter = new Splitter("events");
  expect([...text].flatMap((letter) => [...byLetter.push(letter)]).map((element) => JSON.parse(element))).toEqual(expected);
});

test("a snapshot is yielded as it comes, and its end is checked", async () => {
  const whole = scripted([pieces(['{"events":[{"seq":1},', '{"seq":2}]', "}"])]);
  expect(await all(whole.client.streamEvents(RUN, "door"))).toEqual([{ seq: 1 }, { seq: 2 }]);
  expect(whole.sent[0]?.url).toContain("/events?index=door");
  const early = scripted([pieces(['{"events":[{"seq":1}', ","])]);
  expect(await failure(all(early.client.streamEvents(RUN)))).toBeInstanceOf(ParseError);
  const broken = scripted([pieces(['{"markers":[{"marker_id":"mk-1"},'], "breaks")]);
  const markers = broken.client.streamMarkers(RUN);
  expect((await markers.next()).value).toEqual({ marker_id: "mk-1" });
  expect(await failure(markers.next())).toBeInstanceOf(NetworkError);
  const page = scripted([new Response("<html>", { headers: { "content-type": "text/html" } })]);
  expect(String(await failure(all(page.client.streamEvents(RUN))))).toContain("check the base URL");
});

test("a snapshot's letters may be cut anywhere", async () => {
  const bytes = new TextEncoder().encode('{"events":[{"text":"ä😀"}]}');
  const body = new ReadableStream({
    start(controller) {
      for (const byte of bytes) controller.enqueue(Uint8Array.of(byte));
      controller.close();
    },
  });
  const { client } = scripted([new Response(body, { headers: { "content-type": "application/json" } })]);
  expect(await all(client.streamEvents(RUN))).toEqual([{ text: "ä😀" }]);
});

test("a snapshot that is left early is closed", async () => {
  let signal: AbortSignal | null | undefined;
  const { client } = scripted([(_, init) => ((signal = init.signal), pieces(['{"events":[{"seq":1},'], "stays"))]);
  for await (const event of client.streamEvents(RUN)) {
    expect(event.seq).toBe(1);
    break;
  }
  expect(signal?.aborted).toBe(true);
});

test("a subscription resumes after the last event, whether the stream ends or breaks, and ends with 204", async () => {
  const { client, sent } = scripted([
    pieces([sse(1), ": quiet\n\n", sse(2).slice(0, 20), sse(2).slice(20)], "ends", SSE),
    pieces([sse(3), sse(4).slice(0, 30)], "breaks", SSE),
    new TypeError("fetch failed"),
    refusal(503, "unavailable", { "retry-after": "1" }),
    pieces([sse(4)], "ends", SSE),
    new Response(null, { status: 204 }),
  ]);
  const states: string[] = [];
  const events = await all(client.followRun(RUN, { after: 0, kind: "vlm", onConnection: (state) => states.push(state) }));
  expect(events).toEqual([1, 2, 3, 4].map((seq) => ({ seq, kind: "vlm", run_id: RUN })));
  expect(sent.map(({ init }) => init.headers["last-event-id"])).toEqual([undefined, "2", "3", "3", "3", "4"]);
  expect(sent[0]?.url).toBe(`http://server.test/v1/runs/${RUN}/events/stream?after=0&kind=vlm`);
  expect(states).toEqual(["open", "lost", "open", "lost", "lost", "lost", "open", "lost"]);
});

test("a subscription to all runs says what the server says", async () => {
  const { client, sent } = scripted([pieces(['id: 7\ndata: {"seq":7,"run_id":"run-x"}\n\n'], "stays", SSE)]);
  for await (const event of client.subscribeEvents({ index: "door" })) {
    expect(event).toEqual({ seq: 7, run_id: "run-x" });
    break;
  }
  expect(sent[0]?.url).toBe("http://server.test/v1/events/stream?index=door");
});

test("a silent connection is given up and made again", async () => {
  const { client, sent } = scripted([pieces([sse(1)], "stays", SSE), new Response(null, { status: 204 })]);
  const events = client.followRun(RUN);
  await events.next();
  const end = events.next();
  await vi.advanceTimersByTimeAsync(50_000);
  expect((await end).done).toBe(true);
  expect(sent).toHaveLength(2);
});

test("a subscription fails at once where it is refused or never stood, and after the longest outage", async () => {
  const refused = scripted([refusal(404, "not_found")]);
  expect(await failure(all(refused.client.followRun(RUN)))).toMatchObject({ status: 404 });
  expect(refused.sent).toHaveLength(1);
  const absent = scripted([new TypeError("fetch failed")], { maxRetries: 1, retryBaseDelayMs: 1 });
  expect(await failure(all(absent.client.followRun(RUN)))).toMatchObject({ name: "RetryExhaustedError", attempts: 2 });
  const lost = scripted([pieces([sse(1)], "ends", SSE), new TypeError("fetch failed")]);
  const error = failure(all(lost.client.followRun(RUN, { maxOutageMs: 60_000 })));
  await vi.advanceTimersByTimeAsync(100_000);
  expect(await error).toBeInstanceOf(RetryExhaustedError);
  expect(lost.sent.length).toBeGreaterThan(5);
  const page = scripted([new Response("<html>", { headers: { "content-type": "text/html" } })]);
  expect(String(await failure(all(page.client.followRun(RUN))))).toContain("check the base URL");
  const bad = scripted([pieces(["id: 1\ndata: {\n\n"], "stays", SSE)]);
  expect(await failure(all(bad.client.followRun(RUN)))).toBeInstanceOf(ParseError);
});

test("a stream that ends without a word each time is not asked without a pause", async () => {
  const { client, sent } = scripted([() => pieces([], "ends", SSE)], { maxRetries: 3 });
  expect(await failure(all(client.followRun(RUN)))).toBeInstanceOf(RetryExhaustedError);
  expect(sent).toHaveLength(4);
});

test("an abort ends a subscription with the signal's reason", async () => {
  const controller = new AbortController();
  let inner: AbortSignal | null | undefined;
  const { client } = scripted([(_, init) => ((inner = init.signal), pieces([sse(1)], "stays", SSE))]);
  const events = client.followRun(RUN, { signal: controller.signal });
  expect((await events.next()).value).toMatchObject({ seq: 1 });
  const next = failure(events.next());
  controller.abort(new Error("enough"));
  expect(String(await next)).toBe("Error: enough");
  expect(inner?.aborted).toBe(true);
});

test("an abort of a page's answer that is not read reaches its body", async () => {
  const controller = new AbortController();
  const { client, sent } = scripted([json({})]);
  await client.getSource(RUN, "bytes=0-9", { signal: controller.signal });
  expect(sent[0]?.init.headers["range"]).toBe("bytes=0-9");
  controller.abort();
  expect(sent[0]?.init.signal?.aborted).toBe(true);
});
