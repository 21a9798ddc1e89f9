import { execFileSync, spawn } from "node:child_process";
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import type { SightlineClient } from "../../src/index.js";
import { openPage, serveFiles } from "../support/page.js";
import { KEY, MODEL, clipPath, openServer } from "../support/stage.js";

const PACKAGE = fileURLToPath(new URL("../../", import.meta.url));
let site: Awaited<ReturnType<typeof serveFiles>>;
let server: Awaited<ReturnType<typeof openServer>>;

beforeAll(async () => {
  site = await serveFiles();
  server = await openServer({ SERVICE_CORS_ALLOWED_ORIGINS: site.origin, SERVICE_WEBRTC_PUBLIC_IPS: "127.0.0.1" });
});
afterAll(async () => {
  site.stop();
  await server.stop();
});

/** Runs an example until the test has finished; `line` waits for something that it prints. */
function example(name: string, folder: string, env: Record<string, string> = {}, ...args: string[]) {
  const settings = { SIGHTLINE_SERVER: server.url, SIGHTLINE_API_KEY: KEY, ...env };
  const child = spawn(process.execPath, [join(PACKAGE, "examples", name), ...args], { cwd: folder, env: { ...process.env, ...settings } });
  onTestFinished(() => void child.kill());
  let text = "";
  const line = (pattern: RegExp) =>
    new Promise<string>((resolve, reject) => {
      const look = (chunk: Buffer | string) => {
        text += chunk;
        const found = pattern.exec(text);
        if (found) resolve(found[0]);
      };
      child.stdout.on("data", look);
      child.stderr.on("data", look);
      child.once("exit", (code) => reject(new Error(`the example ended with ${code}: ${text}`)));
    });
  const stop = async () => {
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill();
    await ended;
  };
  return { line, stop };
}

function folder(): string {
  const made = mkdtempSync(join(tmpdir(), "sightline-example-"));
  onTestFinished(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

async function analysed(client: SightlineClient): Promise<string> {
  const { file_path: source_uri } = await client.uploadFile(new Blob([readFileSync(clipPath())]));
  return (await client.analyze({ source_uri, model: MODEL })).run_id;
}

test("scene-cuts.mjs posts scene cuts to a chat, and goes on where it stopped", async () => {
  const told: string[] = [];
  let wake = () => {};
  const chat = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    told.push(JSON.parse(body).text);
    response.end();
    wake();
  });
  await new Promise<void>((resolve) => chat.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void chat.close());
  const until = async (count: number) => {
    while (told.length < count) await new Promise<void>((resolve) => (wake = resolve));
  };
  const place = folder();
  const env = { CHAT_HOOK: `http://127.0.0.1:${(chat.address() as AddressInfo).port}` };
  const lines = (run: string) => [`Scene cut at 1.5 s of ${run}`, `Scene cut at 3.0 s of ${run}`];
  const script = example("scene-cuts.mjs", place, env);
  const first = await analysed(server.client);
  await until(2);
  // It has kept its place once it has told of the last marker.
  const last = (await server.client.getEvents(first)).events.filter(({ kind }) => kind === "marker_emitted").at(-1)?.seq;
  await expect.poll(() => readFileSync(join(place, "scene-cuts.seq"), "utf8")).toBe(String(last));
  await script.stop();
  example("scene-cuts.mjs", place, env);
  const second = await analysed(server.client);
  await until(4);
  expect(told).toEqual([...lines(first), ...lines(second)]);
});

test("watch-folder.mjs analyzes what comes into a folder", async () => {
  const place = folder();
  const watch = example("watch-folder.mjs", place, {}, place);
  copyFileSync(clipPath(), join(place, "Häuser.mp4"));
  const line = await watch.line(/.*markers/);
  const run_id = /run-\w+/.exec(line)?.[0] ?? "";
  expect((await server.client.getRun(run_id)).label).toBe("Häuser.mp4");
  const again = example("watch-folder.mjs", place, {}, place);
  expect(await again.line(/.*markers/)).toBe(line);
});

test("camera.html publishes a camera and shows what happens", async () => {
  site.files["/camera.html"] = readFileSync(join(PACKAGE, "examples/camera.html"));
  site.files["/browser.js"] = readFileSync(join(PACKAGE, "dist/browser.js"));
  const { page, stop } = await openPage();
  onTestFinished(stop);
  const problems: string[] = [];
  page.on("pageerror", (error) => problems.push(String(error)));
  await page.goto(`${site.origin}/camera.html#server=${server.url}&key=${KEY}`);
  await page.waitForFunction(() => document.querySelector("pre")?.textContent?.includes("keyframe_stored"));
  const runs = await server.client.listRuns({ status: "processing" });
  expect(runs.map(({ label }) => label)).toContain("Camera of a page");
  expect(problems).toEqual([]);
});

test.each([
  ["import", ["--input-type=module", "--eval", 'import { SightlineClient as C } from "sightline-client"; console.log(typeof C)']],
  ["require", ["--eval", 'console.log(typeof require("sightline-client").SightlineClient)']],
])("the package can be loaded by %s", (_, args) => {
  expect(execFileSync(process.execPath, args, { cwd: join(PACKAGE, "examples") }).toString().trim()).toBe("function");
});

test("the README's first example is the camera's script", () => {
  const readme = readFileSync(join(PACKAGE, "README.md"), "utf8");
  for (const line of readFileSync(join(PACKAGE, "examples/camera.html"), "utf8").split("\n")) {
    if (line.startsWith("  ") && !line.includes("//")) expect(readme).toContain(line.trim());
  }
});
