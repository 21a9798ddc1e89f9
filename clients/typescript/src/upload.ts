import { SightlineError, UploadError } from "./errors.js";
import type { Http, Send } from "./http.js";
import type { Answer, KeyedOptions } from "./types.js";

/** A file that is read as it is sent, such as `{ name, stream: () => createReadStream(path) }`. */
export interface FileSource {
  name: string;
  /** Media type. */
  type?: string | undefined;
  /** Length in bytes, where it is known. */
  size?: number | undefined;
  /** Opens the file; called once for each attempt. */
  stream(): ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;
}

/** Bytes of a file that have been sent, and how many there are where that is known. */
export interface UploadProgress {
  loaded: number;
  total: number | undefined;
}

type OnProgress = (progress: UploadProgress) => void;

/** Uploads a file in bounded memory: a page by `XMLHttpRequest`, everything else by a streamed body. */
export async function upload(
  http: Http,
  file: Blob | FileSource,
  onProgress: OnProgress = () => {},
  options: KeyedOptions = {},
): Promise<Answer<"uploadFile">> {
  const isPage = typeof XMLHttpRequest === "function";
  const send = !isPage ? streamed(http, file, onProgress) : byForm(http, await blob(file), onProgress);
  try {
    return await http.json({ method: "POST", path: "/v1/upload", keyed: true, works: true, send }, options);
  } catch (error) {
    throw error instanceof SightlineError ? new UploadError(error.message, { cause: error }) : error;
  }
}

/** Sends the file as a form; a `fetch` that was given is used, and tells no progress but the end. */
function byForm(http: Http, file: Blob, onProgress: OnProgress): Send {
  const form = new FormData();
  form.append("file", file);
  if (!http.ownFetch) return (url, init) => byXhr(url, init, form, onProgress);
  const own = http.ownFetch;
  return async (url, init) => {
    const response = await own(url, { ...init, body: form });
    onProgress({ loaded: file.size, total: file.size });
    return response;
  };
}

function byXhr(url: string, init: RequestInit, form: FormData, onProgress: OnProgress): Promise<Response> {
  return new Promise((resolve, reject) => {
    const xhr = new XMLHttpRequest();
    const stop = () => xhr.abort();
    xhr.open("POST", url);
    for (const [name, value] of Object.entries(init.headers ?? {})) xhr.setRequestHeader(name, value);
    xhr.upload.onprogress = ({ loaded, total }) => onProgress({ loaded, total });
    xhr.onload = () => {
      const headers = xhr.getAllResponseHeaders().trim().split(/\r?\n/).map((line) => line.split(/:\s*(.*)/, 2));
      const { status, statusText } = xhr;
      resolve(new Response(xhr.responseText, { status, statusText, headers: headers as [string, string][] }));
    };
    xhr.onerror = () => reject(new TypeError("the file was not taken to its end"));
    xhr.onabort = () => reject(init.signal?.reason);
    xhr.onloadend = () => init.signal?.removeEventListener("abort", stop);
    init.signal?.addEventListener("abort", stop);
    xhr.send(form);
  });
}

/** Sends the file as a form that is made as it is sent. */
function streamed(http: Http, file: Blob | FileSource, onProgress: OnProgress): Send {
  const boundary = `sightline-${Math.random().toString(36).slice(2)}${Math.random().toString(36).slice(2)}`;
  const type = file.type || "application/octet-stream";
  const fileName = ("name" in file ? file.name : "upload").replace(/["\r\n]/g, (char) => encodeURIComponent(char));
  const head = `--${boundary}\r\ncontent-disposition: form-data; name="file"; filename="${fileName}"\r\ncontent-type: ${type}\r\n\r\n`;
  async function* parts(): AsyncGenerator<Uint8Array> {
    const text = new TextEncoder();
    let loaded = 0;
    yield text.encode(head);
    for await (const chunk of pieces(file.stream())) {
      yield chunk;
      loaded += chunk.byteLength;
      onProgress({ loaded, total: file.size });
    }
    yield text.encode(`\r\n--${boundary}--\r\n`);
  }
  const send = http.ownFetch ?? globalThis.fetch;
  return (url, init) => {
    const headers = { ...(init.headers as Record<string, string>), "content-type": `multipart/form-data; boundary=${boundary}` };
    return send(url, { ...init, headers, body: readable(parts()), duplex: "half" } as RequestInit);
  };
}

async function* pieces(stream: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  if (!("getReader" in stream)) return yield* stream;
  const reader = stream.getReader();
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value;
  } finally {
    await reader.cancel();
  }
}

function readable(parts: AsyncGenerator<Uint8Array>): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { value, done } = await parts.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      await parts.return(undefined);
    },
  });
}

/** A file that a page's form can hold. */
async function blob(file: Blob | FileSource): Promise<Blob> {
  if (file instanceof Blob) return file;
  const parts: BlobPart[] = [];
  for await (const piece of pieces(file.stream())) parts.push(new Uint8Array(piece));
  return new File(parts, file.name, file.type ? { type: file.type } : {});
}
