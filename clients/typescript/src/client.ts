import { ParseError, RetryExhaustedError } from "./errors.js";
import type { RunEvent, TimelineEvent } from "./events.js";
import { Http, type Request, isTransient, sleep } from "./http.js";
import type { PublishConfig, Job, JobDetails, Marker } from "./schema.js";
import { elements } from "./snapshot.js";
import { type SubscribeOptions, subscribe } from "./subscribe.js";
import type { Answer, Body, CallOptions, ClientOptions, KeyedOptions, Operation, Page, Query } from "./types.js";
import { type FileSource, type UploadProgress, upload } from "./upload.js";

/** Longest wait of one request for a job, and the wait between two reports of its progress. */
const JOB_WAIT_MS = 20_000;
const JOB_PROGRESS_MS = 500;
const WHIP = "/v1/stream/whip";

/** Options of `analyze`: a source, a model that the server knows, and those of `ingestRun` and `analyzeRun`. */
export interface AnalyzeOptions {
  source_uri: string;
  model: string;
  /** Name of the run. */
  label?: string | undefined;
  ingest?: Omit<Body<"ingestRun">, "source_uri"> | undefined;
  analysis?: Omit<Body<"analyzeRun">, "model"> | undefined;
}

/** A live session. */
export interface WhipSession {
  /** The server's answer, for `setRemoteDescription`. */
  sdp: string;
  session_id: string;
  run_id: string;
  /** Names the ICE session; a restart of ICE repeats it. */
  etag: string | undefined;
}

const segment = (text: string | number) => encodeURIComponent(text);
const run = (id: string, rest = "") => `/v1/runs/${segment(id)}${rest}`;

/**
 * Client of a Sightline server.
 *
 * Methods throw `HttpError` for a refusal, `NetworkError` where no answer came, `RetryExhaustedError` where neither
 * changed with retries, `ParseError` for an answer that no Sightline server gives, and the reason of an aborted `signal`.
 * Any refusal may be 401 (no valid key), 429 (too many requests) or 503 (not now); each method names its own.
 * Reads and requests with an idempotency key are sent again after a transient failure, others never.
 */
export class SightlineClient {
  readonly #http: Http;

  /**
   * Takes the server's address, with the path prefix of a proxy where there is one.
   * @throws TypeError where it begins with neither http:// nor https://
   */
  constructor(baseUrl: string, options: ClientOptions = {}) {
    this.#http = new Http(baseUrl, options);
  }

  /** Creates a run, ingests a source into it and analyzes it. @throws HttpError 409, 422 as the three calls */
  async analyze(body: AnalyzeOptions, options?: CallOptions): Promise<Answer<"analyzeRun">> {
    const { source_uri, model, label, ingest, analysis } = body;
    const { run_id } = await this.createRun({ label, model, mode: analysis?.mode }, options);
    await this.ingestRun(run_id, { ...ingest, source_uri }, options);
    return this.analyzeRun(run_id, { ...analysis, model }, options);
  }

  /** Creates a run. @throws HttpError 409 at the limit of active runs, 422 for a field */
  createRun(body: Body<"createRun"> = {}, options?: KeyedOptions): Promise<Answer<"createRun">> {
    return this.#post<"createRun">("/v1/runs", body, options, { keyed: true });
  }

  /** Lists the caller's runs. @throws HttpError 422 for a parameter */
  listRuns(query?: Query<"listRuns">, options?: CallOptions): Promise<Page<Answer<"listRuns">>> {
    return this.#list<"listRuns">("/v1/runs", query, options);
  }

  /** Reads a run. @throws HttpError 404, 422 for an id that is none */
  getRun(id: string, options?: CallOptions): Promise<Answer<"getRun">> {
    return this.#get<"getRun">(run(id), undefined, options);
  }

  /** Changes the label of a run. @throws HttpError 404, 422 for a label */
  updateRun(id: string, body: Body<"updateRun">, options?: CallOptions): Promise<Answer<"updateRun">> {
    return this.#http.json({ method: "PATCH", path: run(id), json: body }, options);
  }

  /** Deletes a run; what it recorded is removed. @throws HttpError 404, also the second time */
  deleteRun(id: string, options?: CallOptions): Promise<Answer<"deleteRun">> {
    return this.#http.json({ method: "DELETE", path: run(id) }, options);
  }

  /** Cancels a run. @throws HttpError 404, 409 where it has ended */
  stopRun(id: string, options?: CallOptions): Promise<Answer<"stopRun">> {
    return this.#post<"stopRun">(run(id, "/stop"), undefined, options);
  }

  /** Completes a run. @throws HttpError 404, 409 where it has ended */
  finishRun(id: string, options?: CallOptions): Promise<Answer<"finishRun">> {
    return this.#post<"finishRun">(run(id, "/finish"), undefined, options);
  }

  /** Begins a run's idle time anew. @throws HttpError 404, 409 where it has ended */
  keepaliveRun(id: string, options?: CallOptions): Promise<Answer<"keepaliveRun">> {
    return this.#post<"keepaliveRun">(run(id, "/keepalive"), undefined, options);
  }

  /** Reads the state of a run. @throws HttpError 404 */
  getRunState(id: string, options?: CallOptions): Promise<Answer<"getRunState">> {
    return this.#get<"getRunState">(run(id, "/state"), undefined, options);
  }

  /** Decodes a source into a run; answers at its end. @throws HttpError 404, 409 beside another job, 422 for a field or a source */
  ingestRun(id: string, body: Body<"ingestRun">, options?: KeyedOptions): Promise<Answer<"ingestRun">> {
    return this.#post<"ingestRun">(run(id, "/ingest"), body, options, { keyed: true, works: true });
  }

  /** Derives markers from a run's signals. @throws HttpError 404, 409 where the run has ended, 422 for a field or no frames */
  analyzeRun(id: string, body: Body<"analyzeRun">, options?: KeyedOptions): Promise<Answer<"analyzeRun">> {
    return this.#post<"analyzeRun">(run(id, "/analyze"), body, options, { keyed: true, works: true });
  }

  /** Decodes a source and asks models about it; answers at its end. @throws HttpError 404, 409 beside another job, 422 for a field or a source */
  reason(id: string, body: Body<"reason">, options?: KeyedOptions): Promise<Answer<"reason">> {
    return this.#post<"reason">(run(id, "/reason"), body, options, { keyed: true, works: true });
  }

  /** Starts what `ingestRun` does as a job that goes on by itself. @throws HttpError as `ingestRun` */
  startIngest(id: string, body: Body<"ingestRun">, options?: KeyedOptions): Promise<JobDetails> {
    return this.#start(run(id, "/ingest"), body, options);
  }

  /** Starts what `analyzeRun` does as a job. @throws HttpError as `analyzeRun` */
  startAnalyze(id: string, body: Body<"analyzeRun">, options?: KeyedOptions): Promise<JobDetails> {
    return this.#start(run(id, "/analyze"), body, options);
  }

  /** Starts what `reason` does as a job. @throws HttpError as `reason` */
  startReason(id: string, body: Body<"reason">, options?: KeyedOptions): Promise<JobDetails> {
    return this.#start(run(id, "/reason"), body, options);
  }

  /** Reads a job, after `wait_ms` at most if it ends later. @throws HttpError 404 */
  getJob(id: string, jobId: string, query?: Query<"getJob">, options?: CallOptions): Promise<JobDetails> {
    const path = run(id, `/jobs/${segment(jobId)}`);
    return this.#http.json({ method: "GET", path, query, waitMs: query?.wait_ms }, options);
  }

  /**
   * Waits for the end of a job and reads it: `status` says how it ended, `result` and `error` what came of it.
   * @throws HttpError 404
   */
  async waitForJob(
    id: string,
    jobId: string,
    { onProgress, ...options }: CallOptions & { onProgress?: ((job: JobDetails) => void) | undefined } = {},
  ): Promise<JobDetails> {
    const wait_ms = onProgress ? JOB_PROGRESS_MS : JOB_WAIT_MS;
    for (;;) {
      const job = await this.getJob(id, jobId, { wait_ms }, options);
      onProgress?.(job);
      if (job.status !== "queued" && job.status !== "running") return job;
    }
  }

  /** Lists the jobs of a run. @throws HttpError 404 */
  listJobs(id: string, options?: CallOptions): Promise<Answer<"listJobs">> {
    return this.#get<"listJobs">(run(id, "/jobs"), undefined, options);
  }

  /** Cancels a job, and answers when it has stopped; its run goes on. @throws HttpError 404 */
  cancelJob(id: string, jobId: string, options?: CallOptions): Promise<JobDetails> {
    return this.#http.json({ method: "DELETE", path: run(id, `/jobs/${segment(jobId)}`), works: true }, options);
  }

  /** Reads the events of a run, all of them or those of a `kind` or an `index`; see `streamEvents` for many. @throws HttpError 404 */
  getEvents(id: string, query?: string | Query<"getEvents">, options?: CallOptions): Promise<Page<Answer<"getEvents">>> {
    return this.#list<"getEvents">(run(id, "/events"), indexed(query), options);
  }

  /** Reads the markers of a run, in order. @throws HttpError 404, 422 for a filter */
  getMarkers(id: string, query?: Query<"getMarkers">, options?: CallOptions): Promise<Page<Answer<"getMarkers">>> {
    return this.#list<"getMarkers">(run(id, "/markers"), query, options);
  }

  /** Reads what models said about a run. @throws HttpError 404 */
  getInteractions(
    id: string,
    query?: string | Query<"getInteractions">,
    options?: CallOptions,
  ): Promise<Page<Answer<"getInteractions">>> {
    return this.#list<"getInteractions">(run(id, "/interactions"), indexed(query), options);
  }

  /** Reads the episodes of activity of a run, in order. @throws HttpError 404 */
  getActivity(id: string, query?: Query<"getActivity">, options?: CallOptions): Promise<Page<Answer<"getActivity">>> {
    return this.#list<"getActivity">(run(id, "/activity"), query, options);
  }

  /** Yields the events of one snapshot of a run as they arrive: in memory is one event. @throws HttpError 404 */
  streamEvents(id: string, query?: string | Query<"getEvents">, options?: CallOptions): AsyncGenerator<TimelineEvent, void, undefined> {
    return elements(this.#http, run(id, "/events"), indexed(query), "events", options);
  }

  /** Yields the markers of one snapshot of a run as they arrive. @throws HttpError 404, 422 for a filter */
  streamMarkers(id: string, query?: Query<"getMarkers">, options?: CallOptions): AsyncGenerator<Marker, void, undefined> {
    return elements(this.#http, run(id, "/markers"), query, "markers", options);
  }

  /**
   * Yields the events of every run of the caller, or of `runId`, as they happen, from the first or after `after` on.
   * A connection that is lost is made again, and nothing is missed or told twice.
   * @throws HttpError 404; RetryExhaustedError after an outage of `maxOutageMs`
   */
  subscribeEvents({ runId, ...options }: SubscribeOptions & { runId?: string | undefined } = {}): AsyncGenerator<RunEvent, void, undefined> {
    return subscribe(this.#http, runId, options);
  }

  /** Yields the events of a run from its first on, and ends with the run. @throws as `subscribeEvents` */
  followRun(id: string, options: SubscribeOptions = {}): AsyncGenerator<RunEvent, void, undefined> {
    return subscribe(this.#http, id, options);
  }

  /** Reads recorded signals with the gate's decisions, at most `max_points` of them. @throws HttpError 404, 422 for a range */
  signals(id: string, query?: Query<"getSignals">, options?: CallOptions): Promise<Answer<"getSignals">> {
    return this.#get<"getSignals">(run(id, "/signals"), query, options);
  }

  /** Reads why one frame was kept or not. @throws HttpError 404 */
  getFrame(id: string, frameIndex: number, query?: Query<"getFrame">, options?: CallOptions): Promise<Answer<"getFrame">> {
    return this.#get<"getFrame">(run(id, `/frames/${segment(frameIndex)}`), query, options);
  }

  /** Lists the stored stills of a run. @throws HttpError 404 */
  getKeyframes(id: string, query?: Query<"getKeyframes">, options?: CallOptions): Promise<Page<Answer<"getKeyframes">>> {
    return this.#list<"getKeyframes">(run(id, "/keyframes"), query, options);
  }

  /** Reads a still, a JPEG. @throws HttpError 404, 422 for a hash that is none */
  async getKeyframe(id: string, sha256: string, query?: Query<"getKeyframe">, options?: CallOptions): Promise<Blob> {
    const request = { method: "GET", path: run(id, `/keyframes/${segment(sha256)}`), query };
    return this.#http.send(request, options, (response) => response.blob());
  }

  /** Makes a ticket that opens a run's source and stills to URLs for ten minutes. @throws HttpError 404 */
  createMediaTicket(id: string, options?: CallOptions): Promise<Answer<"createMediaTicket">> {
    return this.#post<"createMediaTicket">(run(id, "/media-ticket"), undefined, options);
  }

  /** URL of a still, for an `<img>` with a ticket. */
  keyframeUrl(id: string, sha256: string, query?: Query<"getKeyframe">): string {
    return this.#http.url(run(id, `/keyframes/${segment(sha256)}`), query);
  }

  /** URL of a run's source, for a `<video>` with a ticket. */
  sourceUrl(id: string, query?: Query<"getSource">): string {
    return this.#http.url(run(id, "/source"), query);
  }

  /** Opens the source of a run, or the range of it that a `Range` header names. @throws HttpError 404, 416 for a range */
  getSource(id: string, range?: string, options?: CallOptions): Promise<Response> {
    return this.#http.raw({ method: "GET", path: run(id, "/source"), headers: { range } }, options);
  }

  /** Opens a part of the run's file as MP4 or Matroska. @throws HttpError 404, 422 for a range or a damaged source */
  getClip(id: string, query: Query<"getClip">, options?: CallOptions): Promise<Response> {
    return this.#http.raw({ method: "GET", path: run(id, "/clip"), query }, options);
  }

  /** Reads events of a run from `from_seq` on, after `wait_ms` at most if there are none. @throws HttpError 404, 422 for a field */
  query(body: Body<"query">, options?: CallOptions): Promise<Answer<"query">> {
    return this.#post<"query">("/v1/query", body, options, { safe: true, waitMs: body.wait_ms });
  }

  /** Searches what models described. @throws HttpError 404 for a run, 422 for a field */
  search(body: Body<"search">, options?: CallOptions): Promise<Answer<"search">> {
    return this.#post<"search">("/v1/search", body, options, { safe: true });
  }

  /** Asks a model. @throws HttpError 404 for a run, 422 for a field, 500 where no backend answers */
  infer(body: Body<"infer">, options?: KeyedOptions): Promise<Answer<"infer">> {
    return this.#post<"infer">("/v1/infer", body, options, { keyed: true, works: true });
  }

  /** Asks models; failures are in the answer, each by its question. @throws HttpError 422 for a field, with nothing asked */
  inferBatch(body: Body<"inferBatch">, options?: KeyedOptions): Promise<Answer<"inferBatch">> {
    return this.#post<"inferBatch">("/v1/infer/batch", body, options, { keyed: true, works: true });
  }

  /** Uploads a media file in bounded memory. @throws UploadError, whose `cause` is one of the others: HttpError 413, 422 for what is no video */
  uploadFile(
    file: Blob | FileSource,
    onProgress?: (progress: UploadProgress) => void,
    options?: KeyedOptions,
  ): Promise<Answer<"uploadFile">> {
    return upload(this.#http, file, onProgress, options);
  }

  /** Lists the caller's uploads. @throws HttpError 422 for a parameter */
  listFiles(query?: Query<"listFiles">, options?: CallOptions): Promise<Page<Answer<"listFiles">>> {
    return this.#list<"listFiles">("/v1/files", query, options);
  }

  /** Opens an upload, or the range of it that a `Range` header names. @throws HttpError 404, 416 for a range */
  getFile(name: string, range?: string, options?: CallOptions): Promise<Response> {
    return this.#http.raw({ method: "GET", path: `/v1/files/${segment(name)}`, headers: { range } }, options);
  }

  /** Removes an upload. @throws HttpError 404 */
  deleteFile(name: string, options?: CallOptions): Promise<Answer<"deleteFile">> {
    return this.#http.json({ method: "DELETE", path: `/v1/files/${segment(name)}` }, options);
  }

  /** Says what the caller thinks of a run. @throws HttpError 404, 422 for a field, 500 without a database */
  submitFeedback(id: string, body: Body<"submitFeedback">, options?: CallOptions): Promise<Answer<"submitFeedback">> {
    return this.#post<"submitFeedback">(run(id, "/feedback"), body, options);
  }

  /** Lists feedback on the caller's runs. @throws HttpError 500 without a database */
  listFeedback(query?: Query<"listFeedback">, options?: CallOptions): Promise<Page<Answer<"listFeedback">>> {
    return this.#list<"listFeedback">("/v1/feedback", query, options);
  }

  /** Lists the caller's runs on every server of the fleet. @throws HttpError 422 for a parameter, 500 without a database */
  listFleetRuns(query?: Query<"listFleetRuns">, options?: CallOptions): Promise<Answer<"listFleetRuns">> {
    return this.#get<"listFleetRuns">("/v1/fleet/runs", query, options);
  }

  /** Finds descriptions of the caller's runs on every server of the fleet. @throws HttpError 422 for a field, 500 without a database */
  searchFleet(body: Body<"searchFleet">, options?: CallOptions): Promise<Answer<"searchFleet">> {
    return this.#post<"searchFleet">("/v1/fleet/search", body, options, { safe: true });
  }

  /** Sends a run's events to a URL from now on. @throws HttpError 404, 409 at the limit, 422 for a field */
  createWebhook(id: string, body: Body<"createWebhook">, options?: CallOptions): Promise<Answer<"createWebhook">> {
    return this.#post<"createWebhook">(run(id, "/webhooks"), body, options);
  }

  /** Lists the webhooks of a run. @throws HttpError 404 */
  listWebhooks(id: string, options?: CallOptions): Promise<Answer<"listWebhooks">> {
    return this.#get<"listWebhooks">(run(id, "/webhooks"), undefined, options);
  }

  /** Removes a webhook. @throws HttpError 404 */
  deleteWebhook(id: string, webhookId: string, options?: CallOptions): Promise<Answer<"deleteWebhook">> {
    return this.#http.json({ method: "DELETE", path: run(id, `/webhooks/${segment(webhookId)}`) }, options);
  }

  /** Lists the events that a webhook's target never took. @throws HttpError 404 */
  listDeadLetters(id: string, webhookId: string, options?: CallOptions): Promise<Answer<"listDeadLetters">> {
    return this.#get<"listDeadLetters">(run(id, `/webhooks/${segment(webhookId)}/dead-letters`), undefined, options);
  }

  /** Sends those events again. @throws HttpError 404 */
  redeliverDeadLetters(id: string, webhookId: string, options?: CallOptions): Promise<Answer<"redeliverDeadLetters">> {
    return this.#post<"redeliverDeadLetters">(run(id, `/webhooks/${segment(webhookId)}/redeliver`), undefined, options);
  }

  /** Sends the events of all runs of the caller, later ones too, to a URL. @throws HttpError 409 at the limit, 422 for a field */
  createWebhookOfAll(body: Body<"createWebhookOfAll">, options?: CallOptions): Promise<Answer<"createWebhookOfAll">> {
    return this.#post<"createWebhookOfAll">("/v1/webhooks", body, options);
  }

  /** Lists the webhooks of all runs. */
  listWebhooksOfAll(options?: CallOptions): Promise<Answer<"listWebhooksOfAll">> {
    return this.#get<"listWebhooksOfAll">("/v1/webhooks", undefined, options);
  }

  /** Removes a webhook of all runs. @throws HttpError 404 */
  deleteWebhookOfAll(webhookId: string, options?: CallOptions): Promise<Answer<"deleteWebhookOfAll">> {
    return this.#http.json({ method: "DELETE", path: `/v1/webhooks/${segment(webhookId)}` }, options);
  }

  /** Lists the events that the target of a webhook of all runs never took. @throws HttpError 404 */
  listDeadLettersOfAll(webhookId: string, options?: CallOptions): Promise<Answer<"listDeadLettersOfAll">> {
    return this.#get<"listDeadLettersOfAll">(`/v1/webhooks/${segment(webhookId)}/dead-letters`, undefined, options);
  }

  /** Sends those events again. @throws HttpError 404 */
  redeliverDeadLettersOfAll(webhookId: string, options?: CallOptions): Promise<Answer<"redeliverDeadLettersOfAll">> {
    return this.#post<"redeliverDeadLettersOfAll">(`/v1/webhooks/${segment(webhookId)}/redeliver`, undefined, options);
  }

  /** Reads how the live session of a run is doing. @throws HttpError 404, 409 where none is live */
  getSessionHealth(id: string, options?: CallOptions): Promise<Answer<"getSessionHealth">> {
    return this.#get<"getSessionHealth">(run(id, "/health"), undefined, options);
  }

  /** Reads the key figures of the last minutes, of the caller's own work and the machine's. @throws HttpError 422 for a field */
  getStats(query?: Query<"getStats">, options?: CallOptions): Promise<Answer<"getStats">> {
    return this.#get<"getStats">("/v1/stats", query, options);
  }

  /** Publishes live video: sends an SDP offer. @throws HttpError 400, 409 at the limit of active runs, 422 without a codec that is served */
  whipOffer(sdp: string, { attach, ...options }: CallOptions & { attach?: PublishConfig | undefined } = {}): Promise<WhipSession> {
    const headers = { "content-type": "application/sdp", "x-attach-config": attach && base64url(JSON.stringify(attach)) };
    return this.#http.send({ method: "POST", path: WHIP, body: sdp, headers }, options, async (response, what) => {
      const session_id = response.headers.get("location")?.split("/").pop();
      const run_id = response.headers.get("x-service-run-id");
      if (!session_id || !run_id) throw new ParseError(`${what}: the answer names no session: check the base URL`);
      return { sdp: await response.text(), session_id, run_id, etag: response.headers.get("etag") ?? undefined };
    });
  }

  /**
   * Sends a candidate, a fragment of SDP, or the empty string for their end. A restart of ICE repeats the session's
   * `etag` and is answered with the server's side of it.
   * @throws HttpError 400, 404, 412 and 428 for a restart of another ICE session
   */
  whipIce(
    sessionId: string,
    fragment: string,
    { etag, ...options }: CallOptions & { etag?: string | undefined } = {},
  ): Promise<{ sdp: string | undefined; etag: string | undefined }> {
    const headers = { "content-type": "application/trickle-ice-sdpfrag", "if-match": etag };
    const request = { method: "PATCH", path: `${WHIP}/${segment(sessionId)}`, body: fragment, headers };
    return this.#http.send(request, options, async (response) => ({
      sdp: (await response.text()) || undefined,
      etag: response.headers.get("etag") ?? undefined,
    }));
  }

  /** Changes what models are asked about a live session. @throws HttpError 400 for a field, 404, 409 where it has ended */
  whipUpdatePrompt(
    sessionId: string,
    body: Body<"whipUpdatePrompt">,
    options?: CallOptions,
  ): Promise<Answer<"whipUpdatePrompt">> {
    return this.#http.json({ method: "PATCH", path: `${WHIP}/${segment(sessionId)}/prompt`, json: body }, options);
  }

  /** Ends a live session, whose run is then complete. @throws HttpError 404 */
  whipTerminate(sessionId: string, options?: CallOptions): Promise<void> {
    return this.#http.send({ method: "DELETE", path: `${WHIP}/${segment(sessionId)}` }, options, async () => {});
  }

  /** Reads which models can be asked now, and what decodes and measures. */
  listModels(options?: CallOptions): Promise<Answer<"listModels">> {
    return this.#get<"listModels">("/v1/models", undefined, options);
  }

  /** Reads the limits of the server. */
  getLimits(options?: CallOptions): Promise<Answer<"getLimits">> {
    return this.#get<"getLimits">("/v1/limits", undefined, options);
  }

  /** Reads metrics in Prometheus' text format. @throws HttpError 503 where no key of the server opens them */
  getMetrics(options?: CallOptions): Promise<string> {
    return this.#http.send({ method: "GET", path: "/v1/metrics" }, options, (response) => response.text());
  }

  /** Checks what people get wrong: keys, addresses, ingest roots, disk, model backends, time, devices. */
  diagnose(options?: CallOptions): Promise<Answer<"diagnose">> {
    return this.#get<"diagnose">("/v1/doctor", undefined, options);
  }

  /** Reads the API's OpenAPI document. */
  getOpenApi(options?: CallOptions): Promise<Answer<"getOpenApi">> {
    return this.#get<"getOpenApi">("/v1/openapi.json", undefined, options);
  }

  /** Reads whether the server answers; needs no key. */
  health(options?: CallOptions): Promise<Answer<"health">> {
    return this.#get<"health">("/v1/health", undefined, options);
  }

  /** Reads whether the server can work, and why not. */
  ready(options?: CallOptions): Promise<Answer<"ready">> {
    return this.#http.json({ method: "GET", path: "/v1/ready", accepts: [503] }, options);
  }

  /** Waits until `health` answers. @throws RetryExhaustedError after `maxWaitMs`, 30,000 unless given */
  async waitUntilHealthy({ maxWaitMs = 30_000, ...options }: CallOptions & { maxWaitMs?: number | undefined } = {}): Promise<void> {
    const until = Date.now() + maxWaitMs;
    for (let attempt = 1; ; attempt++) {
      const left = until - Date.now();
      try {
        const request = { method: "GET", path: "/v1/health", once: true };
        await this.#http.json(request, { ...options, timeoutMs: Math.max(1, Math.min(left, options.timeoutMs ?? 5_000)) });
        return;
      } catch (error) {
        if (!isTransient(error)) throw error;
        const pause = this.#http.backoff(attempt, error);
        if (Date.now() + pause > until) throw new RetryExhaustedError(attempt, error);
        await sleep(pause, options.signal);
      }
    }
  }

  #get<K extends Operation>(path: string, query?: object, options?: CallOptions): Promise<Answer<K>> {
    return this.#http.json({ method: "GET", path, query }, options);
  }

  #list<K extends Operation>(path: string, query?: object, options?: CallOptions): Promise<Page<Answer<K>>> {
    return this.#http.page({ method: "GET", path, query }, options);
  }

  #post<K extends Operation>(path: string, json: unknown, options?: KeyedOptions, more?: Partial<Request>): Promise<Answer<K>> {
    return this.#http.json({ method: "POST", path, json, ...more }, options);
  }

  #start(path: string, json: unknown, options?: KeyedOptions): Promise<JobDetails> {
    const request = { method: "POST", path, json, keyed: true, headers: { prefer: "respond-async" } };
    return this.#http.send(request, options, async (response, what) => {
      if (response.status === 202) return response.json();
      throw new ParseError(`${what}: the work was done at once: this server is older than jobs`);
    });
  }
}

function indexed<T extends object>(query: string | T | undefined): T | { index: string } | undefined {
  return typeof query === "string" ? { index: query } : query;
}

function base64url(text: string): string {
  const bytes = String.fromCharCode(...new TextEncoder().encode(text));
  return btoa(bytes).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}
