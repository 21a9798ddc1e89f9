import { expect, test, vi } from "vitest";
import { HttpError, NetworkError, UploadError } from "../../src/index.js";
import { type Step, failure, json, refusal, scripted } from "../support/scripted.js";

const ANSWER = { file_path: "/x/a.mp4" };

/** Reads the form of an upload. */
const received = async (init: RequestInit): Promise<File> => {
  const form = await new Response(init.body, { headers: init.headers as Record<string, string> }).formData();
  return form.get("file") as File;
};

async function* slices(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

const BYTES = Uint8Array.from({ length: 100_000 }, (_, index) => (index * index) % 256);
test.each([
  ["a source", { name: "clip.mp4", type: "video/mp4", size: BYTES.length, stream: () => slices(BYTES, 7001) }, "clip.mp4", "video/mp4", BYTES.length],
  ["one of unknown length", { name: "clip.mkv", stream: () => slices(BYTES, 7001) }, "clip.mkv", "application/octet-stream", undefined],
  ["a web stream", { name: "ä 😀.mp4", stream: () => new Blob([BYTES]).stream() }, "ä 😀.mp4", "application/octet-stream", undefined],
  ["a blob", new Blob([BYTES], { type: "video/webm" }), "upload", "video/webm", BYTES.length],
  ["a hostile name", { name: 'a"\r\nx: y', stream: () => slices(BYTES, 50_000) }, 'a"\r\nx: y', "application/octet-stream", undefined],
])("%s is sent whole, with progress", async (_, file, name, type, total) => {
  let form: File | undefined;
  const { client } = scripted([async (_url, init) => ((form = await received(init)), json(ANSWER))]);
  const progress: { loaded: number; total: number | undefined }[] = [];
  expect(await client.uploadFile(file, (told) => progress.push(told))).toEqual(ANSWER);
  // Undoing the escape, as the standard has it, is a matter of the parser.
  expect(decodeURIComponent(form?.name ?? "")).toBe(name);
  expect(form?.type).toBe(type);
  expect(Buffer.compare(Buffer.from(await (form as File).arrayBuffer()), Buffer.from(BYTES))).toBe(0);
  expect(progress.at(-1)).toEqual({ loaded: BYTES.length, total });
  const loaded = progress.map((told) => told.loaded);
  expect(loaded).toEqual([...loaded].sort((a, b) => a - b));
});

test("each attempt opens the file anew and repeats the key", async () => {
  const stream = vi.fn(() => slices(BYTES, 50_000));
  const take = (answer: Response) => async (_: string, init: RequestInit) => (await received(init), answer);
  const { client, sent } = scripted([take(refusal(503, "unavailable")), take(json(ANSWER))], { retryBaseDelayMs: 1 });
  await client.uploadFile({ name: "a", stream });
  expect(stream).toHaveBeenCalledTimes(2);
  expect(new Set(sent.map(({ init }) => init.headers["idempotency-key"])).size).toBe(1);
});

test.each<[string, Step[], unknown]>([
  ["a refusal", [refusal(422, "validation_error")], HttpError],
  ["no answer", [new TypeError("fetch failed")], NetworkError],
])("%s is an UploadError, whose cause says more", async (_, steps, cause) => {
  const { client } = scripted(steps, { maxRetries: 0 });
  const error = await failure(client.uploadFile(new Blob(["x"])));
  expect(error).toBeInstanceOf(UploadError);
  expect((error as UploadError).cause).toBeInstanceOf(cause);
});

test("an abort is no UploadError, and closes the file", async () => {
  const controller = new AbortController();
  let isClosed = false;
  async function* endless(): AsyncGenerator<Uint8Array> {
    try {
      for (;;) yield BYTES;
    } finally {
      isClosed = true;
    }
  }
  const read = async (_: string, init: RequestInit) => {
    const reader = (init.body as ReadableStream).getReader();
    init.signal?.addEventListener("abort", () => void reader.cancel());
    while (!(await reader.read()).done);
    throw new TypeError("aborted");
  };
  const { client } = scripted([read]);
  const stop = () => controller.abort(new Error("enough"));
  const error = await failure(client.uploadFile({ name: "a", stream: endless }, ({ loaded }) => loaded > 1e6 && stop(), { signal: controller.signal }));
  expect(String(error)).toBe("Error: enough");
  expect(isClosed).toBe(true);
});

test("a file that cannot be read is an UploadError", async () => {
  async function* broken(): AsyncGenerator<Uint8Array> {
    throw new Error("ENOENT: no such file");
  }
  const { client } = scripted([async (_, init) => (await received(init), json(ANSWER))], { maxRetries: 0 });
  const error = await failure(client.uploadFile({ name: "a", stream: broken }));
  expect(error).toBeInstanceOf(UploadError);
});
