import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

test("the types are those of schemas/openapi.json: run make schemas", () => {
  const { scripts } = JSON.parse(readFileSync("package.json", "utf8"));
  const command = scripts.generate.replace("openapi-typescript", "node_modules/openapi-typescript/bin/cli.js").replace("--output src/schema.ts", "");
  const made = execFileSync(process.execPath, command.split(/\s+/), { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"], maxBuffer: 16 << 20 });
  expect(made === readFileSync("src/schema.ts", "utf8")).toBe(true);
});
