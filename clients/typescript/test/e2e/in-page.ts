/** Cases that a page of the browser tests runs, by name. */
import { type ClientOptions, SightlineClient } from "../../src/index.js";
import { failures, methods } from "./cases.js";
import { readCrowd } from "./crowd.js";
import type { Places, World } from "./world.js";

declare global {
  interface Window {
    places: Places;
    control: World["control"];
    runCase: (name: string) => Promise<void>;
    readCrowd: (wanted?: number) => Promise<number>;
    timeToFirstEvent: () => Promise<number>;
  }
}

const client = (place: keyof Places = "main", options: ClientOptions = {}) =>
  new SightlineClient(String(window.places[place]), { apiKey: window.places.key, ...options });

async function offer(): Promise<string> {
  const peer = new RTCPeerConnection();
  peer.addTransceiver("video", { direction: "sendonly" });
  await peer.setLocalDescription();
  return peer.localDescription?.sdp ?? "";
}

const clip = async () => (await fetch("/clip.mp4")).blob();
const world = (): World => ({ ...window.places, client, clip, offer, control: window.control });
let one: World | undefined;

window.runCase = async (name) => {
  one ??= world();
  const run = methods[name] ?? failures[name];
  if (!run) throw new Error(`no case ${name}`);
  await run(one);
};
window.readCrowd = (wanted) => readCrowd((one ??= world()), wanted);

/** Milliseconds from asking for a run to its first event, in a page that has just been opened. */
window.timeToFirstEvent = async () => {
  const { run_id } = await client().createRun();
  const asked = performance.now();
  await client().followRun(run_id).next();
  return performance.now() - asked;
};
