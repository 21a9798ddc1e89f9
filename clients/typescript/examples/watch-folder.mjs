// Uploads and analyzes every file that comes into a folder, once it has stopped growing:
//   SIGHTLINE_SERVER=http://127.0.0.1:8080 SIGHTLINE_API_KEY=… node watch-folder.mjs FOLDER
// Started again within a day it repeats nothing: each file's requests have a key of its name, size and time.
import { createReadStream, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { SightlineClient } from "sightline-client";

const { SIGHTLINE_SERVER, SIGHTLINE_API_KEY } = process.env;
const client = new SightlineClient(SIGHTLINE_SERVER, { apiKey: SIGHTLINE_API_KEY });
const [model] = (await client.listModels()).models;
const folder = process.argv[2];
const known = new Map();

for (;;) {
  for (const name of readdirSync(folder)) {
    const { size, mtimeMs } = statSync(join(folder, name));
    const state = `${size} ${mtimeMs}`;
    if (known.get(name) === "done") continue;
    const isWhole = known.get(name) === state;
    known.set(name, isWhole ? "done" : state);
    if (isWhole) await analyze(name, size, `${encodeURIComponent(name).slice(0, 200)}:${size}:${mtimeMs}`).catch(console.error);
  }
  await setTimeout(1000);
}

async function analyze(name, size, idempotencyKey) {
  const file = { name, size, stream: () => createReadStream(join(folder, name)) };
  const { file_path } = await client.uploadFile(file, undefined, { idempotencyKey });
  const { run_id } = await client.createRun({ label: name.slice(0, 128) }, { idempotencyKey });
  await client.ingestRun(run_id, { source_uri: file_path, max_frames: 500_000 }, { idempotencyKey });
  const { markers } = await client.analyzeRun(run_id, { model: model.id }, { idempotencyKey });
  console.log(`${name}: ${run_id}, ${markers.length} markers`);
}
