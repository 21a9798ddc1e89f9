import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Server, freePort } from "../../../../console/tests/support/server.js";
import { type ClientOptions, SightlineClient } from "../../src/index.js";
import type { Places, World } from "../e2e/world.js";
import { startModel } from "./model.js";
import { startPostgres } from "./postgres.js";
import { Proxy } from "./proxy.js";

const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));
const FOLDER = join(ROOT, "target/client-tests");
export const KEY = "a-key-of-the-client-tests";
export const MODEL = "qwen3-vl-8b";
const CROWD = 1_000_000;
const OFFER = [
  "v=0", "o=- 1 1 IN IP4 0.0.0.0", "s=-", "t=0 0", "a=group:BUNDLE 0", "m=video 9 UDP/TLS/RTP/SAVPF 96", "c=IN IP4 0.0.0.0", "a=mid:0",
  "a=sendonly", "a=rtcp-mux", "a=setup:actpass", "a=ice-ufrag:efgh", "a=ice-pwd:0123456789abcdef01234567",
  `a=fingerprint:sha-256 ${Array.from({ length: 32 }, () => "AB").join(":")}`, "a=rtpmap:96 VP8/90000", "a=rtcp-fb:96 nack pli", "",
].join("\r\n");

/** Servers, proxies, a model and a database for the end-to-end tests. */
export class Stage {
  readonly places: Places;
  readonly clipPath = clipPath();
  readonly #ends: (() => unknown)[];
  readonly #controls: Record<string, (...details: number[]) => unknown>;

  private constructor(places: Places, ends: (() => unknown)[], controls: Record<string, (...details: number[]) => unknown>) {
    this.places = places;
    this.#ends = ends;
    this.#controls = controls;
  }

  static async start(origin: string): Promise<Stage> {
    const [model, held, postgres] = await Promise.all([startModel(), startModel(), startPostgres()]);
    const common = { SERVICE_CORS_ALLOWED_ORIGINS: origin, SERVICE_ACTIVE_STREAM_LIMIT: "1024", SERVICE_WEBRTC_PUBLIC_IPS: "127.0.0.1" };
    const one = { SERVICE_INFERENCE_GLOBAL_LIMIT: "1", SERVICE_INFERENCE_WAIT_TIMEOUT_MS: "100" };
    const [main, limited, narrow, open, mortal, crowded] = await Promise.all([
      server({ ...common, SERVICE_VLLM_BASE_URL: model.url, SERVICE_DB_URL: postgres.url, SERVICE_DB_MIRROR: "all" }),
      server({ ...common, SERVICE_RATE_LIMIT_TENANT_RPS: "3" }),
      server({ ...common, ...one, SERVICE_VLLM_BASE_URL: held.url }),
      server({ ...common, SERVICE_REQUIRE_API_KEY: "false" }),
      server(common),
      server({ ...common, SERVICE_DATA_DIR: crowdPath() }),
    ]);
    const prefix = await Proxy.start(main.url, { prefix: "/some/prefix" });
    const old = await Proxy.start(main.url, { hides: /\/signals/ });
    const cutting = await Proxy.start(main.url);
    const places = {
      main: main.url, limited: limited.url, narrow: narrow.url, open: open.url, mortal: mortal.url, crowded: crowded.url,
      prefix: `${prefix.url}/some/prefix`, old: old.url, cutting: cutting.url, crowd: CROWD, key: KEY,
    };
    const controls = {
      kill: () => mortal.stop("SIGKILL"),
      start: () => mortal.start(),
      hold: () => held.hold(),
      release: () => held.release(),
      cut: (afterBytes: number, times: number) => Object.assign(cutting.cut, { afterBytes, times }),
    };
    const servers = [main, limited, narrow, open, mortal, crowded];
    const ends = [prefix, old, cutting, model, held].map((part) => () => part.stop());
    return new Stage(places, [...ends, ...servers.map((part) => () => part.remove()), () => postgres.stop()], controls);
  }

  async control(what: string, ...details: number[]): Promise<void> {
    await this.#controls[what]?.(...details);
  }

  /** The tests' world in this process; `fetch` sees every request. */
  world(fetch: typeof globalThis.fetch = globalThis.fetch): World {
    const client = (place: keyof Places = "main", options: ClientOptions = {}) =>
      new SightlineClient(String(this.places[place]), { apiKey: KEY, fetch, ...options });
    const clip = async () => new Blob([readFileSync(this.clipPath)], { type: "video/mp4" });
    return { ...this.places, client, clip, offer: async () => OFFER, control: (what, ...details) => this.control(what, ...details) };
  }

  async stop(): Promise<void> {
    for (const end of this.#ends) await end();
  }
}

async function server(env: Record<string, string>): Promise<Server> {
  const made = new Server(await freePort(), { names: ["bench"], env });
  made.keys.bench = KEY;
  await made.start();
  return made;
}

/** One server alone, and a client of it. */
export async function openServer(env: Record<string, string>) {
  const opened = await server(env);
  return { url: opened.url, client: new SightlineClient(opened.url, { apiKey: KEY }), stop: () => opened.remove() };
}

/** Three shots of fifteen frames, drawn once. */
export function clipPath(): string {
  const shots = ["testsrc2", "mandelbrot", "smptehdbars"];
  const inputs = shots.flatMap((shot) => ["-f", "lavfi", "-t", "1.5", "-i", `${shot}=s=320x180:r=10`]);
  const graph = "[0:v]setsar=1[a];[1:v]setsar=1[b];[2:v]setsar=1[c];[a][b][c]concat=n=3:v=1:a=0,format=yuv420p";
  return once("clip.mp4", (path) => {
    execFileSync("ffmpeg", ["-v", "error", "-y", ...inputs, "-filter_complex", graph, "-c:v", "libx264", "-preset", "ultrafast", path]);
  });
}

/** Data of a server with a run of many events, made once. */
function crowdPath(): string {
  const old = join(FOLDER, "crowd");
  // Its run expires an hour after it was made.
  if (existsSync(old) && Date.now() - statSync(old).birthtimeMs > 1_800_000) rmSync(old, { recursive: true });
  return once("crowd", (path) => {
    execFileSync(join(ROOT, "target/debug/examples/described_log"), [join(path, "log"), "1"]);
  });
}

function once(name: string, make: (path: string) => void): string {
  const path = join(FOLDER, name);
  if (existsSync(path)) return path;
  mkdirSync(FOLDER, { recursive: true });
  const unfinished = join(FOLDER, `${process.pid}-${name}`);
  make(unfinished);
  renameSync(unfinished, path);
  return path;
}
