import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { HttpError, NetworkError, ParseError, RetryExhaustedError, SightlineClient, SightlineError } from "../../src/index.js";
import { type Step, failure, json, refusal, scripted } from "../support/scripted.js";

const RUN = "run-0123456789abcdef0123456789abcdef";
const BUSY = refusal(503, "unavailable");
const broken = () => new TypeError("fetch failed", { cause: new Error("connect ECONNREFUSED 127.0.0.1:1") });

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

/** Runs the clock until a call has ended. */
async function settled(promise: Promise<unknown>): Promise<unknown> {
  let result: { value: unknown } | undefined;
  void failure(promise.then((value) => void (result = { value }))).then((error) => (result ??= { value: error }));
  for (let step = 0; step < 1000 && !result; step++) await vi.advanceTimersByTimeAsync(100);
  return result?.value;
}

test.each<[string, (client: SightlineClient) => Promise<unknown>, Step[], number]>([
  ["a read after 503", (client) => client.getRun(RUN), [BUSY, json({})], 2],
  ["a read after 429", (client) => client.getRun(RUN), [refusal(429, "rate_limited"), json({})], 2],
  ["a read without an answer", (client) => client.getRun(RUN), [broken(), json({})], 2],
  ["a read that times out", (client) => client.getRun(RUN, { timeoutMs: 50 }), ["silence", json({})], 2],
  ["a query", (client) => client.query({ run_id: RUN }), [BUSY, json({})], 2],
  ["a search", (client) => client.search({ query: "red" }), [BUSY, json({})], 2],
  ["a keyed creation", (client) => client.createRun(), [BUSY, broken(), json({})], 3],
  ["a keyed ingest", (client) => client.ingestRun(RUN, { source_uri: "a" }), [BUSY, json({})], 2],
  ["a refusal for good", (client) => client.getRun(RUN), [refusal(404, "not_found")], 1],
  ["a failure of the server", (client) => client.getRun(RUN), [refusal(500, "internal_error")], 1],
  ["an action without a key", (client) => client.stopRun(RUN), [BUSY], 1],
  ["a deletion", (client) => client.deleteRun(RUN), [broken()], 1],
  ["feedback", (client) => client.submitFeedback(RUN, { rating: 1, category: "a" }), [broken()], 1],
])("requests sent for %s", async (_, call, steps, expected) => {
  const { client, sent } = scripted(steps);
  const result = await settled(call(client));
  expect(sent).toHaveLength(expected);
  expect(result).toBeInstanceOf(expected === steps.length && steps.at(-1) instanceof Response && (steps.at(-1) as Response).ok ? Object : SightlineError);
});

test("attempts share an idempotency key, requests do not, and a caller may name one", async () => {
  const { client, sent } = scripted([BUSY, json({})]);
  await settled(client.createRun());
  await settled(client.createRun());
  await settled(client.createRun({}, { idempotencyKey: "mine" }));
  const keys = sent.map(({ init }) => init.headers["idempotency-key"]);
  expect(keys[0]).toMatch(/^[!-~]{20,255}$/);
  expect(keys[1]).toBe(keys[0]);
  expect(keys[2]).not.toBe(keys[0]);
  expect(keys[3]).toBe("mine");
});

test("keys differ where there is no crypto", async () => {
  vi.stubGlobal("crypto", undefined);
  const { client, sent } = scripted([json({})]);
  await client.createRun();
  await client.createRun();
  const [first, second] = sent.map(({ init }) => init.headers["idempotency-key"]);
  expect(first).toMatch(/^[!-~]{20,255}$/);
  expect(second).not.toBe(first);
});

test.each<[string, Record<string, string>, number, number[]]>([
  ["half of a doubling back-off", {}, 0.5, [125, 250, 500]],
  ["all of it, at the worst", {}, 1, [250, 500, 1000]],
  ["no less than the seconds that the server said", { "retry-after": "2" }, 0.5, [2125, 2250, 2500]],
])("waits: %s", async (_, headers, random, expected) => {
  vi.spyOn(Math, "random").mockReturnValue(random);
  const times: number[] = [];
  const { client } = scripted([() => (times.push(Date.now()), refusal(503, "unavailable", headers))]);
  const error = await settled(client.getRun(RUN));
  expect(times.slice(1).map((time, index) => time - (times[index] ?? 0))).toEqual(expected);
  expect(error).toBeInstanceOf(RetryExhaustedError);
  expect(error).toMatchObject({ attempts: 4, cause: { status: 503 } });
  expect(String(error)).toBe(`RetryExhaustedError: GET http://server.test/v1/runs/${RUN}: 503 unavailable: why (req-0123456789abcdef), after 4 attempts`);
});

test("a date in Retry-After is waited for, and an hour is not", async () => {
  vi.setSystemTime(new Date("2026-01-01T00:00:00Z"));
  vi.spyOn(Math, "random").mockReturnValue(0);
  const dated = scripted([refusal(503, "unavailable", { "retry-after": "Thu, 01 Jan 2026 00:00:07 GMT" }), json({})]);
  await settled(dated.client.getRun(RUN));
  expect(Date.now()).toBeGreaterThanOrEqual(Date.parse("2026-01-01T00:00:07Z"));
  const long = scripted([refusal(503, "unavailable", { "retry-after": "3600" })]);
  expect(await settled(long.client.getRun(RUN))).toMatchObject({ name: "HttpError", retryAfterMs: 3_600_000 });
  expect(long.sent).toHaveLength(1);
});

test("a back-off ends at ten seconds, and maxRetries and retryBaseDelayMs are obeyed", async () => {
  vi.spyOn(Math, "random").mockReturnValue(1);
  const { client, sent } = scripted([BUSY], { maxRetries: 5, retryBaseDelayMs: 4000 });
  const before = Date.now();
  await settled(client.getRun(RUN));
  expect(sent).toHaveLength(6);
  expect(Date.now() - before).toBeGreaterThanOrEqual(4000 + 8000 + 10_000 * 3);
  const never = scripted([BUSY], { maxRetries: 0 });
  expect(await settled(never.client.getRun(RUN))).toBeInstanceOf(HttpError);
  expect(never.sent).toHaveLength(1);
});

test.each<[string, (client: SightlineClient) => Promise<unknown>, string | undefined]>([
  ["a read", (client) => client.health(), "no answer within 60000 ms"],
  ["a call with its own", (client) => client.health({ timeoutMs: 70 }), "no answer within 70 ms"],
  ["a long poll, on top of its wait", (client) => client.query({ run_id: RUN, wait_ms: 20_000 }), "no answer within 80000 ms"],
  ["work, which has none", (client) => client.reason(RUN, { source_uri: "a", model: "b" }), undefined],
])("the timeout of %s", async (_, call, message) => {
  const { client } = scripted(["silence"], { maxRetries: 0 });
  const error = await settled(call(client));
  if (message === undefined) return expect(error).toBeUndefined();
  expect(error).toBeInstanceOf(NetworkError);
  expect(String(error)).toContain(message);
});

test("a timeout of the client holds for work too", async () => {
  const { client } = scripted(["silence"], { maxRetries: 0, timeoutMs: 30 });
  expect(String(await settled(client.infer({ model: "a", prompt: "b" })))).toContain("no answer within 30 ms");
});

test.each<[string, Step[]]>([
  ["under way", ["silence"]],
  ["waiting to be sent again", [BUSY]],
])("an abort ends a call that is %s with the signal's reason", async (_, steps) => {
  vi.spyOn(Math, "random").mockReturnValue(1);
  const { client, sent } = scripted(steps);
  const controller = new AbortController();
  const call = failure(client.getRun(RUN, { signal: controller.signal }));
  await vi.advanceTimersByTimeAsync(10);
  const reason = new Error("enough");
  controller.abort(reason);
  expect(await call).toBe(reason);
  expect(await failure(client.getRun(RUN, { signal: controller.signal }))).toBe(reason);
  expect(sent).toHaveLength(1);
});

const page = (body: string, status: number, type: string, id?: string) => () =>
  new Response(body, { status, headers: { "content-type": type, ...(id ? { "x-request-id": id } : {}) } });
test.each<[string, Step, string]>([
  ["the envelope", refusal(422, "validation_error"), "HttpError: GET URL: 422 validation_error: why (req-0123456789abcdef)"],
  ["plain text", page("no such file\n", 404, "text/plain; charset=utf-8", "req-1"), "HttpError: GET URL: 404 no such file (req-1)"],
  ["a route that is missing", page("", 404, "", "req-1"), "HttpError: GET URL: 404 this server has no such route: it is older than this client, or the base URL has a wrong path (req-1)"],
  ["another server's page", page("<html>", 404, "text/html"), "HttpError: GET URL: 404 no Sightline server answers here: check the base URL, and the path prefix where a proxy has one"],
  ["a page that is no failure", page("<html>", 200, "text/html"), "ParseError: GET URL: the answer is not JSON but text/html: check the base URL"],
  ["no server", broken(), "NetworkError: GET URL: connect ECONNREFUSED 127.0.0.1:1"],
])("what is said of %s", async (_, step, expected) => {
  const { client } = scripted([step], { maxRetries: 0 });
  const error = await settled(client.getRun(RUN));
  expect(String(error).replace(`http://server.test/v1/runs/${RUN}`, "URL")).toBe(expected);
  expect(error).toBeInstanceOf(SightlineError);
});

test("an error has the envelope's fields", async () => {
  const details = [{ field: "model", message: "names no model" }];
  const envelope = { error: { code: "validation_error", message: "model: names no model", request_id: "req-1", details } };
  const { client } = scripted([json(envelope, 422)]);
  expect(await failure(client.createRun())).toMatchObject({ status: 422, code: "validation_error", requestId: "req-1", details });
});

test("an answer that breaks off is no answer", async () => {
  const cut = () => new Response(new ReadableStream({ pull: (controller) => controller.error(new TypeError("terminated")) }));
  const { client, sent } = scripted([cut, json({ status: "ok" })]);
  expect(await settled(client.health())).toEqual({ status: "ok" });
  expect(sent).toHaveLength(2);
});

test.each([
  ["http://server.test", "http://server.test/v1/health"],
  ["http://server.test/", "http://server.test/v1/health"],
  ["https://server.test/v1", "https://server.test/v1/health"],
  ["https://server.test/some/prefix//", "https://server.test/some/prefix/v1/health"],
  ["https://server.test/some/prefix/v1/", "https://server.test/some/prefix/v1/health"],
])("the base URL %s", async (base, expected) => {
  const sent: string[] = [];
  const fetch = async (url: unknown) => (sent.push(String(url)), json({}));
  await new SightlineClient(base, { fetch: fetch as typeof globalThis.fetch }).health();
  expect(sent).toEqual([expected]);
});

test.each(["", "localhost:8080", "/prefix", "ftp://server.test"])("the base URL %j is refused", (base) => {
  expect(() => new SightlineClient(base)).toThrow(`the base URL is ${JSON.stringify(base)}: it must begin with http:// or https://`);
});

test("in a page the base URL may be a path", async () => {
  vi.stubGlobal("location", { origin: "http://page.test" });
  const { client } = scripted([json({})]);
  expect(new SightlineClient("").sourceUrl("run-1")).toBe("/v1/runs/run-1/source");
  expect(new SightlineClient("/prefix/").sourceUrl("run-1")).toBe("/prefix/v1/runs/run-1/source");
  expect(client.sourceUrl("run-1")).toBe("http://server.test/v1/runs/run-1/source");
});

test("URLs carry tickets and sizes, and escape what they are given", () => {
  const client = new SightlineClient("http://server.test/p");
  expect(client.keyframeUrl("run-1", "ab", { ticket: "tk-1", max_edge: 320 })).toBe("http://server.test/p/v1/runs/run-1/keyframes/ab?ticket=tk-1&max_edge=320");
  expect(client.sourceUrl("../x?y", { ticket: "a&b" })).toBe("http://server.test/p/v1/runs/..%2Fx%3Fy/source?ticket=a%26b");
});

test("the key is asked for with each request, and further headers go along", async () => {
  let key: string | undefined = "first";
  const { client, sent } = scripted([json({})], { apiKey: async () => key, headers: { "x-tenant-id": "acme" } });
  await client.health();
  key = undefined;
  await client.health();
  expect(sent.map(({ init }) => init.headers)).toEqual([{ "x-api-key": "first", "x-tenant-id": "acme" }, { "x-tenant-id": "acme" }]);
});

test("the next page's cursor is read from the Link header and is no part of the body", async () => {
  const link = '</v1/runs?limit=2&status=completed&cursor=42>; rel="next"';
  const { client, sent } = scripted([json([{ run_id: RUN }], 200, { link }), json([])]);
  const runs = await client.listRuns({ limit: 2, status: undefined });
  expect(runs).toEqual([{ run_id: RUN }]);
  expect(runs.nextCursor).toBe("42");
  expect((await client.listRuns({ limit: 2, cursor: runs.nextCursor })).nextCursor).toBeUndefined();
  expect(sent[1]?.url).toBe("http://server.test/v1/runs?limit=2&cursor=42");
});

test("an offer's attach config is base64url of UTF-8, and its session is read from the headers", async () => {
  const headers = { location: "/prefix/v1/stream/whip/sess-1", "x-service-run-id": RUN, etag: '"e"' };
  const { client, sent } = scripted([new Response("v=0", { status: 201, headers }), new Response("v=0", { status: 201 })]);
  const attach = { prompt: "Wer läuft über die Straße? ÿÿ>>" };
  expect(await client.whipOffer("offer", { attach })).toEqual({ sdp: "v=0", session_id: "sess-1", run_id: RUN, etag: '"e"' });
  const text = sent[0]?.init.headers["x-attach-config"] ?? "";
  expect(text).toMatch(/^[\w-]+$/);
  expect(JSON.parse(Buffer.from(text, "base64url").toString())).toEqual(attach);
  expect(await failure(client.whipOffer("offer"))).toBeInstanceOf(ParseError);
});

test("a job that an old server does at once is said", async () => {
  const { client, sent } = scripted([json({ decoded_frames: 3 })]);
  expect(String(await failure(client.startIngest(RUN, { source_uri: "a" })))).toContain("this server is older than jobs");
  expect(sent[0]?.init.headers["prefer"]).toBe("respond-async");
});

test("a job is waited for to its end, with progress", async () => {
  const { client } = scripted([json({ status: "queued" }), json({ status: "running" }), json({ status: "failed" })]);
  const seen: string[] = [];
  const job = await client.waitForJob(RUN, "job-1", { onProgress: ({ status }) => seen.push(status) });
  expect(job.status).toBe("failed");
  expect(seen).toEqual(["queued", "running", "failed"]);
});

test("health is waited for, and a wrong address is told at once", async () => {
  const late = scripted([broken(), BUSY, json({ status: "ok" })]);
  expect(await settled(late.client.waitUntilHealthy())).toBeUndefined();
  const never = scripted([broken()]);
  expect(String(await settled(never.client.waitUntilHealthy({ maxWaitMs: 2000 })))).toMatch(/ECONNREFUSED.*, after \d+ attempts/);
  const wrong = scripted([page("<html>", 404, "text/html")]);
  expect(String(await settled(wrong.client.waitUntilHealthy()))).toContain("check the base URL");
});
