// Waits for scene cuts in every run and posts them to a chat's incoming webhook:
//   SIGHTLINE_SERVER=http://127.0.0.1:8080 SIGHTLINE_API_KEY=… CHAT_HOOK=https://… node scene-cuts.mjs
// Goes on where it stopped: the last event it has told of is in the file scene-cuts.seq.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { SightlineClient } from "sightline-client";

const { SIGHTLINE_SERVER, SIGHTLINE_API_KEY, CHAT_HOOK } = process.env;
const client = new SightlineClient(SIGHTLINE_SERVER, { apiKey: SIGHTLINE_API_KEY });
const after = existsSync("scene-cuts.seq") ? Number(readFileSync("scene-cuts.seq", "utf8")) : 0;

for await (const { seq, run_id, payload } of client.subscribeEvents({ kind: "marker_emitted", after })) {
  if (payload.event_type === "scene_cut") {
    const text = `Scene cut at ${(payload.start_pts_ms / 1000).toFixed(1)} s of ${run_id}`;
    const headers = { "content-type": "application/json" };
    const response = await fetch(CHAT_HOOK, { method: "POST", headers, body: JSON.stringify({ text }) });
    if (!response.ok) throw new Error(`the chat answers ${response.status}`);
  }
  writeFileSync("scene-cuts.seq", String(seq));
}
