/** One case a method, by its name, and one a failure: run as they are in Node.js and in a page of another origin. */
import { HttpError, NetworkError, SightlineClient, UploadError } from "../../src/index.js";
import { type World, equal, first, holds, said } from "./world.js";

type Case = (world: World) => Promise<void>;

const MODEL = "qwen3-vl-8b";
const UNKNOWN = `run-${"0".repeat(31)}1`;
/** A target that is never sent anything: the runs have no event of this kind. */
const HOOK = { url: "https://1.1.1.1/hook", kinds: ["token_budget_low" as const] };
const made = new WeakMap<World, Promise<{ run_id: string; source_uri: string }>>();

/** A run with an analysed clip and a description, made once for the cases that only read. */
function recorded(world: World): Promise<{ run_id: string; source_uri: string }> {
  const make = async () => {
    const client = world.client();
    const { file_path: source_uri } = await client.uploadFile(await world.clip());
    const { run_id } = await client.createRun({ label: "recorded" });
    await client.reason(run_id, { source_uri, model: MODEL, semantic_prompt: "What is there?", chunk_size: 15, index_name: "door" });
    return { run_id, source_uri };
  };
  const run = made.get(world) ?? make();
  made.set(world, run);
  return run;
}

/** A fresh run. */
async function fresh(client: SightlineClient): Promise<string> {
  return (await client.createRun()).run_id;
}

/** A run whose clip is decoded. */
async function ingested(world: World): Promise<{ client: SightlineClient; run_id: string }> {
  const { source_uri } = await recorded(world);
  const client = world.client();
  const run_id = await fresh(client);
  await client.ingestRun(run_id, { source_uri });
  return { client, run_id };
}

export const methods: Record<string, Case> = {
  async health(world) {
    equal(await world.client("main", { apiKey: undefined }).health(), { status: "ok" });
  },
  async waitUntilHealthy(world) {
    await world.client().waitUntilHealthy();
  },
  async ready(world) {
    equal((await world.client().ready()).status, "ready");
  },
  async getLimits(world) {
    holds((await world.client().getLimits()).limits["ingest.max_frames"], "the limits have that of frames");
  },
  async getMetrics(world) {
    holds((await world.client().getMetrics()).includes("service_"), "the metrics are the service's");
  },
  async getOpenApi(world) {
    equal((await world.client().getOpenApi())["openapi"], "3.1.0");
  },
  async diagnose(world) {
    holds((await world.client().diagnose()).checks.length > 0, "something is checked");
  },
  async listModels(world) {
    const { models } = await world.client().listModels();
    equal(models.find(({ id }) => id === MODEL)?.availability, "ready");
  },
  async createRun(world) {
    const created = await world.client().createRun({ label: "a", mode: "detailed" }, { idempotencyKey: `create-${Math.random()}` });
    equal([created.status, created.mode], ["pending", "detailed"]);
  },
  async listRuns(world) {
    const client = world.client();
    const [one, two] = [await fresh(client), await fresh(client)];
    const found: string[] = [];
    for (let cursor: string | undefined, page; !page || page.nextCursor; cursor = page.nextCursor) {
      page = await client.listRuns({ limit: 1, cursor });
      holds(page.length <= 1, "a page is no longer than asked");
      found.push(...page.map(({ run_id }) => run_id));
    }
    holds(found.includes(one) && found.includes(two), "the pages have both runs");
    const { run_id } = await recorded(world);
    const summaries = await client.listRuns({ include: "summary" });
    holds(summaries.find((run) => run.run_id === run_id)?.summary, "a summary comes with a run");
  },
  async getRun(world) {
    const { run_id } = await recorded(world);
    equal((await world.client().getRun(run_id)).label, "recorded");
  },
  async updateRun(world) {
    const client = world.client();
    equal((await client.updateRun(await fresh(client), { label: "named" })).label, "named");
  },
  async deleteRun(world) {
    const client = world.client();
    const id = await fresh(client);
    equal((await client.deleteRun(id)).run_id, id);
    holds((await said(client.deleteRun(id))).includes("404 not_found"), "a second deletion finds nothing");
  },
  async stopRun(world) {
    const client = world.client();
    const id = await fresh(client);
    equal((await client.stopRun(id)).status, "cancelled");
    holds((await said(client.stopRun(id))).includes("409 conflict"), "a second stop is a conflict");
  },
  async finishRun(world) {
    const client = world.client();
    equal((await client.finishRun(await fresh(client))).status, "completed");
  },
  async keepaliveRun(world) {
    const client = world.client();
    equal((await client.keepaliveRun(await fresh(client))).state, "processing");
  },
  async getRunState(world) {
    const client = world.client();
    equal((await client.getRunState(await fresh(client))).state, "pending");
  },
  async analyze(world) {
    const { source_uri } = await recorded(world);
    const client = world.client();
    const answer = await client.analyze({ source_uri, model: MODEL, label: "at once", ingest: { max_frames: 20 }, analysis: { mode: "detailed" } });
    equal(answer.metadata.length, 20);
    equal((await client.getRun(answer.run_id)).label, "at once");
  },
  async ingestRun(world) {
    const { client, run_id } = await ingested(world);
    equal((await client.getRun(run_id)).status, "processing");
  },
  async analyzeRun(world) {
    const { client, run_id } = await ingested(world);
    holds((await client.analyzeRun(run_id, { model: MODEL })).markers.some(({ event_type }) => event_type === "scene_cut"), "cuts are found");
  },
  async reason(world) {
    const { run_id } = await recorded(world);
    equal((await world.client().getRun(run_id)).semantic?.chunks_failed, 0);
  },
  async startIngest(world) {
    const { source_uri } = await recorded(world);
    const client = world.client();
    const run_id = await fresh(client);
    const job = await client.startIngest(run_id, { source_uri });
    const fractions: (number | null)[] = [];
    const done = await client.waitForJob(run_id, job.job_id, { onProgress: ({ fraction }) => fractions.push(fraction) });
    equal([done.status, done.result?.["decoded_frames"], fractions.at(-1)], ["succeeded", 45, 1]);
  },
  async startAnalyze(world) {
    const { client, run_id } = await ingested(world);
    const job = await client.startAnalyze(run_id, { model: MODEL });
    equal((await client.waitForJob(run_id, job.job_id)).status, "succeeded");
  },
  async startReason(world) {
    const { source_uri } = await recorded(world);
    const client = world.client();
    const run_id = await fresh(client);
    const job = await client.startReason(run_id, { source_uri, model: MODEL, semantic_prompt: "What?" });
    equal((await client.waitForJob(run_id, job.job_id)).kind, "reason");
  },
  async getJob(world) {
    const { client, run_id } = await ingested(world);
    const [job] = (await client.listJobs(run_id)).jobs;
    equal((await client.getJob(run_id, job?.job_id ?? "")).status, "succeeded");
  },
  async waitForJob(world) {
    const { source_uri } = await recorded(world);
    const client = world.client();
    const run_id = await fresh(client);
    const { job_id } = await client.startIngest(run_id, { source_uri, max_frames: 5 });
    const done = await client.waitForJob(run_id, job_id);
    equal([done.status, done.result?.["more_frames"], done.error], ["succeeded", true, null]);
  },
  async listJobs(world) {
    const { client, run_id } = await ingested(world);
    equal((await client.listJobs(run_id)).jobs.map(({ kind }) => kind), ["ingest"]);
  },
  async cancelJob(world) {
    const { client, run_id } = await ingested(world);
    const [job] = (await client.listJobs(run_id)).jobs;
    holds((await said(client.cancelJob(run_id, job?.job_id ?? ""))).includes("succeeded"), "what has ended stays as it ended");
  },
  async getEvents(world) {
    const { run_id } = await recorded(world);
    const client = world.client();
    const { events } = await client.getEvents(run_id);
    const page = await client.getEvents(run_id, { limit: 2 });
    const next = await client.getEvents(run_id, { limit: 2, cursor: page.nextCursor });
    equal([...page.events, ...next.events], events.slice(0, 4));
    const door = await client.getEvents(run_id, "door");
    holds(door.events.length > 0 && door.events.length < events.length, "an index is fewer events");
  },
  async streamEvents(world) {
    const { run_id } = await recorded(world);
    const client = world.client();
    const found = [];
    for await (const event of client.streamEvents(run_id)) found.push(event);
    equal(found, (await client.getEvents(run_id)).events);
  },
  async getMarkers(world) {
    const { run_id } = await recorded(world);
    const { markers } = await world.client().getMarkers(run_id, { event_type: "vehicle", origin: "model" });
    holds(markers.length > 0, "the model's markers are found");
  },
  async streamMarkers(world) {
    const { run_id } = await recorded(world);
    const client = world.client();
    const found = [];
    for await (const marker of client.streamMarkers(run_id, { origin: "all" })) found.push(marker);
    equal(found, (await client.getMarkers(run_id, { origin: "all" })).markers);
  },
  async getInteractions(world) {
    const { run_id } = await recorded(world);
    equal((await world.client().getInteractions(run_id, "door")).interactions[0]?.object_label, "van");
  },
  async getActivity(world) {
    const { run_id } = await recorded(world);
    const client = world.client();
    const { episodes } = await client.getActivity(run_id);
    const { events } = await client.getEvents(run_id, { kind: "activity_started" });
    equal(episodes.map(({ start_frame }) => start_frame), events.map((event) => "start_frame" in event.payload && event.payload.start_frame));
  },
  async subscribeEvents(world) {
    const client = world.client();
    const run_id = await fresh(client);
    for await (const event of client.subscribeEvents({ kind: "run_created" })) if (event.run_id === run_id) return;
  },
  async followRun(world) {
    const client = world.client();
    const run_id = await fresh(client);
    const seen: string[] = [];
    for await (const event of client.followRun(run_id)) {
      seen.push(event.kind);
      if (event.kind === "run_created") await client.keepaliveRun(run_id);
      if (event.kind === "keepalive_refreshed") await client.finishRun(run_id);
    }
    equal(seen, ["run_created", "keepalive_refreshed", "run_completed"]);
  },
  async signals(world) {
    const { run_id } = await recorded(world);
    const client = world.client();
    equal((await client.signals(run_id)).signals?.length, 45);
    equal((await client.signals(run_id, { max_points: 5 })).buckets?.length, 5);
  },
  async getFrame(world) {
    const { run_id } = await recorded(world);
    equal((await world.client().getFrame(run_id, 0)).reason, "initial_frame");
  },
  async getKeyframes(world) {
    const { run_id } = await recorded(world);
    holds((await world.client().getKeyframes(run_id)).keyframes.length >= 3, "each shot has a still");
  },
  async getKeyframe(world) {
    const { run_id } = await recorded(world);
    const client = world.client();
    const [still] = (await client.getKeyframes(run_id, { limit: 1 })).keyframes;
    const whole = await client.getKeyframe(run_id, still?.image_sha256 ?? "");
    equal([whole.type, whole.size], ["image/jpeg", still?.image_bytes]);
    const small = await client.getKeyframe(run_id, still?.image_sha256 ?? "", { max_edge: 32 });
    holds(small.size < whole.size, "a smaller picture is smaller");
  },
  async createMediaTicket(world) {
    const { run_id } = await recorded(world);
    const client = world.client();
    const { ticket } = await client.createMediaTicket(run_id);
    const [still] = (await client.getKeyframes(run_id, { limit: 1 })).keyframes;
    const urls = [client.sourceUrl(run_id, { ticket }), client.keyframeUrl(run_id, still?.image_sha256 ?? "", { ticket, max_edge: 64 })];
    equal(await Promise.all(urls.map(async (url) => (await fetch(url)).status)), [200, 200]);
  },
  async getSource(world) {
    const { run_id } = await recorded(world);
    const client = world.client();
    const clip = await world.clip();
    equal((await (await client.getSource(run_id)).arrayBuffer()).byteLength, clip.size);
    const part = await client.getSource(run_id, "bytes=10-19");
    equal([part.status, (await part.arrayBuffer()).byteLength, part.headers.get("content-range")], [206, 10, `bytes 10-19/${clip.size}`]);
  },
  async query(world) {
    const client = world.client();
    const run_id = await fresh(client);
    const { next_from_seq } = await client.query({ run_id });
    const waiting = client.query({ run_id, from_seq: next_from_seq, wait_ms: 20_000 });
    await client.keepaliveRun(run_id);
    equal((await waiting).matches.map(({ kind }) => kind), ["keepalive_refreshed"]);
  },
  async search(world) {
    const { run_id } = await recorded(world);
    const client = world.client();
    // The index follows the log.
    while ((await client.search({ query: "WHITE van", run_id })).total_hits === 0) await new Promise((resolve) => setTimeout(resolve, 50));
  },
  async infer(world) {
    const answer = await world.client().infer({ model: MODEL, prompt: "What is it?" });
    holds(answer.output_text.includes("white van"), "the model's answer comes back");
  },
  async inferBatch(world) {
    const requests = [{ model: MODEL, prompt: "One?" }, { model: MODEL, prompt: "Two?" }];
    equal((await world.client().inferBatch({ requests })).succeeded, 2);
  },
  async uploadFile(world) {
    const clip = await world.clip();
    const progress: number[] = [];
    const file = await world.client().uploadFile(clip, ({ loaded }) => progress.push(loaded));
    equal([file.bytes, file.media_type], [clip.size, "video/mp4"]);
    holds((progress.at(-1) ?? 0) >= clip.size, "progress ends at the whole file");
    equal(progress, [...progress].sort((a, b) => a - b), "progress");
  },
  async listFiles(world) {
    await recorded(world);
    holds((await world.client().listFiles({ limit: 1 })).files.length === 1, "a page has one file");
  },
  async getFile(world) {
    const client = world.client();
    const { file_name, bytes } = await client.uploadFile(await world.clip());
    equal((await (await client.getFile(file_name)).arrayBuffer()).byteLength, bytes);
    equal((await client.getFile(file_name, "bytes=0-0")).status, 206);
  },
  async deleteFile(world) {
    const client = world.client();
    const { file_name } = await client.uploadFile(await world.clip());
    await client.deleteFile(file_name);
    holds((await said(client.getFile(file_name))).includes("404"), "the file is gone");
  },
  async submitFeedback(world) {
    const { run_id } = await recorded(world);
    equal((await world.client().submitFeedback(run_id, { rating: 9, category: "accuracy" })).status, "submitted");
  },
  async listFeedback(world) {
    const { run_id } = await recorded(world);
    const client = world.client();
    const { feedback_id } = await client.submitFeedback(run_id, { rating: 1, category: "speed" });
    equal((await client.listFeedback({ limit: 1 })).feedback[0]?.feedback_id, feedback_id);
  },
  async listFleetRuns(world) {
    const client = world.client();
    const run_id = await fresh(client);
    const isThere = async () => (await client.listFleetRuns({ limit: 100 })).runs.some((run) => run.run_id === run_id);
    // Its server mirrors it within a moment.
    for (let left = 200; left > 0 && !(await isThere()); left--) await new Promise((done) => setTimeout(done, 100));
    holds(await isThere(), "the run is listed for the fleet");
  },
  async searchFleet(world) {
    equal((await world.client().searchFleet({ query: "nobody ever said this" })).hits.length, 0);
  },
  async createWebhook(world) {
    const client = world.client();
    const hook = await client.createWebhook(await fresh(client), HOOK);
    equal(hook.kinds, HOOK.kinds);
  },
  async listWebhooks(world) {
    const client = world.client();
    const run_id = await fresh(client);
    await client.createWebhook(run_id, HOOK);
    equal((await client.listWebhooks(run_id)).webhooks.length, 1);
  },
  async deleteWebhook(world) {
    const client = world.client();
    const run_id = await fresh(client);
    const { webhook_id } = await client.createWebhook(run_id, HOOK);
    await client.deleteWebhook(run_id, webhook_id);
    equal((await client.listWebhooks(run_id)).webhooks, []);
  },
  async listDeadLetters(world) {
    const client = world.client();
    const run_id = await fresh(client);
    const { webhook_id } = await client.createWebhook(run_id, HOOK);
    equal((await client.listDeadLetters(run_id, webhook_id)).dead_letters, []);
  },
  async redeliverDeadLetters(world) {
    const client = world.client();
    const run_id = await fresh(client);
    const { webhook_id } = await client.createWebhook(run_id, HOOK);
    equal((await client.redeliverDeadLetters(run_id, webhook_id)).queued, 0);
  },
  async createWebhookOfAll(world) {
    const client = world.client();
    const hook = await client.createWebhookOfAll(HOOK);
    equal(hook.kinds, HOOK.kinds);
    await client.deleteWebhookOfAll(hook.webhook_id);
  },
  async listWebhooksOfAll(world) {
    const client = world.client();
    const { webhook_id } = await client.createWebhookOfAll(HOOK);
    holds((await client.listWebhooksOfAll()).webhooks.some((hook) => hook.webhook_id === webhook_id), "it is listed");
    await client.deleteWebhookOfAll(webhook_id);
  },
  async deleteWebhookOfAll(world) {
    const client = world.client();
    const { webhook_id } = await client.createWebhookOfAll(HOOK);
    await client.deleteWebhookOfAll(webhook_id);
    holds(!(await client.listWebhooksOfAll()).webhooks.some((hook) => hook.webhook_id === webhook_id), "it is gone");
  },
  async listDeadLettersOfAll(world) {
    const client = world.client();
    const { webhook_id } = await client.createWebhookOfAll(HOOK);
    equal((await client.listDeadLettersOfAll(webhook_id)).dead_letters, []);
    await client.deleteWebhookOfAll(webhook_id);
  },
  async redeliverDeadLettersOfAll(world) {
    const client = world.client();
    const { webhook_id } = await client.createWebhookOfAll(HOOK);
    equal((await client.redeliverDeadLettersOfAll(webhook_id)).queued, 0);
    await client.deleteWebhookOfAll(webhook_id);
  },
  async getSessionHealth(world) {
    const client = world.client();
    const session = await client.whipOffer(await world.offer());
    equal((await client.getSessionHealth(session.run_id)).word, "silent");
    await client.whipTerminate(session.session_id);
  },
  async getStats(world) {
    const { points } = await world.client().getStats({ minutes: 1 });
    holds(points.length >= 1, "there is the minute under way");
  },
  async getClip(world) {
    const { run_id } = await recorded(world);
    const clip = await world.client().getClip(run_id, { from_ms: 0, to_ms: 500 });
    equal(clip.headers.get("content-type"), "video/mp4");
    holds((await clip.arrayBuffer()).byteLength > 1000, "there are pictures in it");
  },
  async whipOffer(world) {
    const client = world.client();
    const session = await client.whipOffer(await world.offer(), { attach: { label: "Tür ☃" } });
    holds(session.sdp.startsWith("v=0") && session.etag, "the answer is SDP with a tag");
    equal((await client.getRun(session.run_id)).label, "Tür ☃");
    await client.whipTerminate(session.session_id);
  },
  async whipIce(world) {
    const client = world.client();
    const { session_id, etag } = await client.whipOffer(await world.offer());
    const candidate = "a=candidate:1 1 udp 2130706431 127.0.0.1 50000 typ host";
    equal(await client.whipIce(session_id, candidate), { sdp: undefined, etag: undefined });
    await client.whipIce(session_id, "");
    const restart = "a=ice-ufrag:abcd\r\na=ice-pwd:76543210fedcba9876543210\r\n";
    holds((await said(client.whipIce(session_id, restart))).includes("428"), "a restart names its session");
    holds((await client.whipIce(session_id, restart, { etag })).sdp?.includes("ice-ufrag"), "a restart is answered");
    await client.whipTerminate(session_id);
  },
  async whipUpdatePrompt(world) {
    const client = world.client();
    const { session_id } = await client.whipOffer(await world.offer(), { attach: { prompt: "First?" } });
    equal((await client.whipUpdatePrompt(session_id, { prompt: "Second?" })).prompt, "Second?");
    await client.whipTerminate(session_id);
  },
  async whipTerminate(world) {
    const client = world.client();
    const { session_id } = await client.whipOffer(await world.offer());
    await client.whipTerminate(session_id);
    await client.whipTerminate(session_id);
    holds((await said(client.whipTerminate("sess-none"))).includes("404"), "an unknown session is not found");
  },
};

export const failures: Record<string, Case> = {
  async "a wrong key is named"(world) {
    const text = await said(world.client("main", { apiKey: "not-a-key-of-this-server" }).listRuns());
    holds(/^HttpError: GET .*\/v1\/runs: 401 unauthorized: missing or invalid API key; `apiKey` must be .* before the colon \(req-\w{16}\)$/.test(text), text);
  },
  async "a server without keys needs none"(world) {
    const client = world.client("open", { apiKey: undefined });
    await client.uploadFile(await world.clip());
    await client.stopRun(await fresh(client));
  },
  async "a wrong path in the base URL is named"(world) {
    const text = await said(new SightlineClient(`${world.main}/somewhere`, { apiKey: world.key }).listRuns());
    holds(text.includes("no such route: it is older than this client, or the base URL has a wrong path"), text);
    const proxy = await said(new SightlineClient(world.prefix.replace("/some/prefix", "/other"), { apiKey: world.key }).health());
    holds(/no Sightline server answers here: check the base URL|SERVICE_CORS_ALLOWED_ORIGINS/.test(proxy), proxy);
  },
  async "a port that nothing listens on is named"(world) {
    const text = await said(new SightlineClient("http://127.0.0.1:9", { maxRetries: 0 }).health());
    holds(/^NetworkError: GET http:\/\/127.0.0.1:9\/v1\/health: .+/.test(text), text);
  },
  async "an old server is named"(world) {
    const { run_id } = await recorded(world);
    const client = world.client("old");
    await client.getRun(run_id);
    const text = await said(client.signals(run_id));
    holds(text.includes("404 this server has no such route: it is older than this client"), text);
  },
  async "a proxy with a path prefix changes nothing"(world) {
    const { run_id } = await recorded(world);
    const client = world.client("prefix");
    holds((await client.getEvents(run_id, { limit: 1 })).nextCursor, "pages are found");
    const session = await client.whipOffer(await world.offer());
    await client.whipTerminate(session.session_id);
    holds(client.sourceUrl(run_id).includes("/some/prefix/v1/runs/"), "URLs have the prefix");
    await first(client.followRun(session.run_id), "run_completed");
  },
  async "fields that are refused are listed"(world) {
    const client = world.client();
    const error = await client.ingestRun(await fresh(client), { source_uri: "x", max_frames: 0 }).catch((caught: unknown) => caught);
    holds(error instanceof HttpError && error.details[0]?.field === "max_frames", "the field is named");
  },
  async "an unknown run is not found, also by streams"(world) {
    const client = world.client();
    const calls = [() => client.getRun(UNKNOWN), () => client.followRun(UNKNOWN).next(), () => client.streamEvents(UNKNOWN).next()];
    for (const call of calls) holds((await said(call())).includes("404 not_found"), "it is not found");
  },
  async "429 is obeyed"(world) {
    const statuses: number[] = [];
    const counted: typeof fetch = async (input, init) => {
      const response = await fetch(input, init);
      statuses.push(response.status);
      return response;
    };
    const client = world.client("limited", { fetch: counted, maxRetries: 10 });
    await Promise.all(Array.from({ length: 8 }, () => client.getLimits()));
    holds(statuses.includes(429), "some were too many");
    const refused = world.client("limited", { maxRetries: 0 });
    const texts = await Promise.all(Array.from({ length: 8 }, () => said(refused.getLimits())));
    holds(texts.some((text) => text.includes("429 rate_limited")), "without retries the refusal is told");
  },
  async "503 is obeyed"(world) {
    const statuses: number[] = [];
    const counted: typeof fetch = async (input, init) => {
      const response = await fetch(input, init);
      statuses.push(response.status);
      if (response.status === 503) await world.control("release");
      return response;
    };
    await world.control("hold");
    const body = { model: MODEL, prompt: "Why?" };
    const held = world.client("narrow").infer(body);
    const waiting = world.client("narrow", { fetch: counted, maxRetries: 20 });
    const answers = await Promise.all([held, ...Array.from({ length: 3 }, () => waiting.infer(body))]);
    equal(answers.length, 4);
    holds(statuses.includes(503), "the model was busy");
  },
  async "a connection that is cut is made again, for what is safe"(world) {
    const { run_id } = await recorded(world);
    const client = world.client("cutting");
    await world.control("cut", 100, 1);
    holds((await client.getEvents(run_id)).events.length > 0, "a read is repeated");
    await world.control("cut", 100, 1);
    const events = client.streamEvents(run_id);
    const text = await said((async () => { for await (const _ of events); })());
    holds(text.startsWith("NetworkError"), `a snapshot that is cut says so: ${text}`);
  },
  async "a follow that is cut misses nothing and repeats nothing"(world) {
    const client = world.client("cutting", { retryBaseDelayMs: 1 });
    const { run_id } = await recorded(world);
    const whole = (await client.getEvents(run_id)).events.map(({ seq }) => seq);
    await world.control("cut", 3000, 3);
    const seen: number[] = [];
    for await (const { seq } of client.followRun(run_id)) {
      seen.push(seq);
      if (seq === whole.at(-1)) break;
    }
    equal(seen, whole);
  },
  async "a server that is killed in the middle of a follow and comes back"(world) {
    const client = world.client("mortal", { retryBaseDelayMs: 20 });
    const run_id = await fresh(client);
    const seen: string[] = [];
    const states: string[] = [];
    for await (const event of client.followRun(run_id, { onConnection: (state) => states.push(state) })) {
      seen.push(event.kind);
      if (event.kind === "run_created") {
        await world.control("kill");
        await world.control("start");
        await client.keepaliveRun(run_id);
      }
      if (event.kind === "keepalive_refreshed") await client.finishRun(run_id);
    }
    equal(seen, ["run_created", "keepalive_refreshed", "run_completed"]);
    holds(states.filter((state) => state === "open").length >= 2 && states.includes("lost"), "the loss was told");
  },
  async "an abort ends a wait, a follow and a retry at once"(world) {
    const client = world.client();
    const run_id = await fresh(client);
    const calls = [
      (signal: AbortSignal) => client.query({ run_id, from_seq: 1e15, wait_ms: 30_000 }, { signal }),
      (signal: AbortSignal) => first(client.followRun(run_id, { signal }), "run_completed"),
      (signal: AbortSignal) => new SightlineClient("http://127.0.0.1:9", { retryBaseDelayMs: 60_000 }).health({ signal }),
    ];
    for (const call of calls) {
      const controller = new AbortController();
      setTimeout(() => controller.abort(new Error("enough")), 100);
      equal(await said(call(controller.signal)), "Error: enough");
    }
  },
  async "an upload that is aborted leaves nothing"(world) {
    const client = world.client("narrow");
    const controller = new AbortController();
    const big = new Blob([await world.clip(), new Uint8Array(50 << 20)]);
    const upload = client.uploadFile(big, () => controller.abort(new Error("enough")), { signal: controller.signal });
    equal(await said(upload), "Error: enough");
    equal((await client.listFiles()).files, []);
  },
  async "an upload of what is no video says so"(world) {
    const error = await world.client().uploadFile(new Blob(["no video"])).catch((caught: unknown) => caught);
    holds(error instanceof UploadError && error.cause instanceof HttpError && error.cause.status === 422, String(error));
  },
  async "a timeout says how long it waited"(world) {
    await world.control("hold");
    const error = await world.client("narrow", { maxRetries: 0 }).infer({ model: MODEL, prompt: "When?" }, { timeoutMs: 50 }).catch((caught: unknown) => caught);
    await world.control("release");
    holds(error instanceof NetworkError && String(error).endsWith("/v1/infer: no answer within 50 ms"), String(error));
  },
};
