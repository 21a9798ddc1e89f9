import { SightlineClient } from "../../src/index.js";
import type { ClientOptions } from "../../src/index.js";

/** One answer: a response, a failure, or silence until the request is aborted. */
export type Step = Response | Error | "silence" | ((url: string, init: RequestInit) => Response | Promise<Response>);

/** A client whose requests are answered by `steps`, the last of them for good, and what it sent. */
export function scripted(steps: Step[], options: ClientOptions = {}) {
  const sent: { url: string; init: RequestInit & { headers: Record<string, string> } }[] = [];
  const fetch = async (url: unknown, init: unknown) => {
    const request = { url: String(url), init: init as (typeof sent)[number]["init"] };
    const step = steps[Math.min(sent.push(request), steps.length) - 1];
    if (typeof step === "function") return tied(await step(request.url, request.init), request.init.signal);
    if (step instanceof Error) throw step;
    if (step instanceof Response) return tied(step.clone(), request.init.signal);
    return new Promise<Response>((_, reject) => {
      request.init.signal?.addEventListener("abort", () => reject(request.init.signal?.reason));
    });
  };
  return { client: new SightlineClient("http://server.test", { fetch: fetch as typeof globalThis.fetch, ...options }), sent };
}

/** The answer, whose body breaks when `signal` is aborted, as that of a real `fetch` does. */
function tied(response: Response, signal: AbortSignal | null | undefined): Response {
  const reader = response.body?.getReader();
  if (!reader) return response;
  const aborted = new Promise<never>((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
  aborted.catch(() => {});
  const body = new ReadableStream(
    {
      async pull(controller) {
        const { value, done } = await Promise.race([reader.read(), aborted]);
        if (done) controller.close();
        else controller.enqueue(value);
      },
    },
    { highWaterMark: 0 },
  );
  return new Response(body, { status: response.status, headers: response.headers });
}

/** An answer with a JSON body. */
export function json(body: unknown, status = 200, headers: Record<string, string> = {}): Response {
  return new Response(JSON.stringify(body), { status, headers: { "content-type": "application/json", ...headers } });
}

/** A refusal in the API's envelope. */
export function refusal(status: number, code: string, headers: Record<string, string> = {}): Response {
  const error = { code, message: "why", request_id: "req-0123456789abcdef", details: [] };
  return json({ error }, status, headers);
}

/** An answer that comes in these pieces; after them the connection ends, breaks, or stays. */
export function pieces(texts: string[], end: "ends" | "breaks" | "stays" = "ends", type = "application/json"): Response {
  const bytes = new TextEncoder();
  const left = [...texts];
  const pull = (controller: ReadableStreamDefaultController) => {
    const text = left.shift();
    if (text !== undefined) controller.enqueue(bytes.encode(text));
    else if (end === "ends") controller.close();
    else if (end === "breaks") controller.error(new TypeError("terminated"));
    else return new Promise<void>(() => {});
    return undefined;
  };
  const body = new ReadableStream({ pull }, { highWaterMark: 0 });
  return new Response(body, { headers: { "content-type": type } });
}

/** Everything that an iterator yields. */
export async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

/** Returns the failure of a promise. */
export async function failure(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => new Error("it succeeded"),
    (error: unknown) => error,
  );
}
