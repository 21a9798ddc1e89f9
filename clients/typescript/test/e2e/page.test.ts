import { readFileSync } from "node:fs";
import { build } from "esbuild";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openPage, serveFiles } from "../support/page.js";
import { Stage } from "../support/stage.js";
import { failures, methods } from "./cases.js";

let page: Page;
let stage: Stage;
const ends: (() => unknown)[] = [];

beforeAll(async () => {
  const site = await serveFiles();
  ends.push(site.stop);
  stage = await Stage.start(site.origin);
  ends.push(() => stage.stop());
  const entry = new URL("in-page.ts", import.meta.url).pathname;
  const { outputFiles } = await build({ entryPoints: [entry], bundle: true, format: "esm", target: "es2022", write: false });
  site.files["/cases.js"] = outputFiles[0]?.text ?? "";
  site.files["/clip.mp4"] = readFileSync(stage.clipPath);
  const opened = await openPage();
  ends.push(opened.stop);
  page = opened.page;
  await page.exposeFunction("control", (what: string, ...details: number[]) => stage.control(what, ...details));
  await page.addInitScript((places) => void Object.assign(window, { places }), stage.places);
  await page.goto(site.origin);
  await page.addScriptTag({ type: "module", url: "/cases.js" });
});
afterAll(async () => {
  for (const end of ends.reverse()) await end();
});

describe("methods", () => {
  test.each(Object.keys(methods))("%s", (name) => page.evaluate((given) => window.runCase(given), name));
});

describe("failures", () => {
  test.each(Object.keys(failures))("%s", (name) => page.evaluate((given) => window.runCase(given), name));
});

// All of them in `make test-long`.
const wanted = process.env["SIGHTLINE_TEST_LONG"] ? undefined : 100_000;
test(`${wanted ?? "a million"} events are read in bounded memory`, async () => {
  const heap = await page.evaluate((given) => window.readCrowd(given), wanted);
  console.log(`streamEvents in Chromium: ${heap / 1e6} MB of heap for ${wanted ?? stage.places.crowd} events`);
});

test("the first event comes soon", async () => {
  const times = await page.evaluate(async () => [await window.timeToFirstEvent(), await window.timeToFirstEvent(), await window.timeToFirstEvent()]);
  console.log(`time to the first event in Chromium: ${times.map((time) => `${time.toFixed(0)} ms`).join(", ")}`);
  expect(times).toHaveLength(3);
});
