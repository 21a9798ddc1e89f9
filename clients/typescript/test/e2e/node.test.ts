import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SightlineClient } from "../../src/index.js";
import { Stage } from "../support/stage.js";
import { failures, methods } from "./cases.js";
import { readCrowd } from "./crowd.js";
import type { World } from "./world.js";

const document = JSON.parse(readFileSync(new URL("../../../../schemas/openapi.json", import.meta.url), "utf8"));

/** Methods that are called otherwise than their operation; null is left to browsers, who ask it by themselves. */
const OTHERWISE: Record<string, string | null> = {
  getSignals: "signals",
  followEvents: "subscribeEvents",
  followRunEvents: "followRun",
  whipOptions: null,
};

let stage: Stage;
let world: World;
const sent = new Set<string>();

beforeAll(async () => {
  stage = await Stage.start("http://localhost:1");
  world = stage.world((input, init) => {
    sent.add(`${init?.method} ${new URL(String(input)).pathname}`);
    return fetch(input, init);
  });
});
afterAll(() => stage?.stop());

describe("methods", () => {
  test.each(Object.entries(methods))("%s", (_, run) => run(world));
});

describe("failures", () => {
  test.each(Object.entries(failures))("%s", (_, run) => run(world));
});

test("a million events are read in bounded memory", async () => {
  console.log(`streamEvents: ${(await readCrowd(world)) / 1e6} MB of heap for ${world.crowd} events`);
});

const operations = Object.entries<Record<string, { operationId?: string }>>(document.paths).flatMap(([path, item]) =>
  Object.entries(item).flatMap(([method, { operationId }]) => (operationId ? [{ path, method, operationId }] : [])),
);

test.each(operations)("the operation $operationId has a method, which a case calls", ({ path, method, operationId }) => {
  const name = operationId in OTHERWISE ? OTHERWISE[operationId] : operationId;
  if (name === null) return;
  expect(SightlineClient.prototype).toHaveProperty(name ?? "");
  const pattern = new RegExp(`^${method.toUpperCase()} ${path.replace(/\{\w+\}/g, "[^/]+")}$`);
  expect([...sent].filter((request) => pattern.test(request))).not.toEqual([]);
});

test("every method has a case of its name", () => {
  const urls = ["constructor", "keyframeUrl", "sourceUrl"];
  const names = Object.getOwnPropertyNames(SightlineClient.prototype).filter((name) => !urls.includes(name));
  expect(Object.keys(methods).sort()).toEqual(names.sort());
});
