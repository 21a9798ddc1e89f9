import { startModel as start } from "../../../../console/tests/support/model.js";

const FINDING = {
  event_type: "vehicle", object_label: "van", summary: "a white van", description: "A white van waits near the gate.", confidence: 0.9,
};

/** A model backend whose answers can be held back. */
export async function startModel() {
  let held = Promise.resolve();
  let release = () => {};
  const model = await start(() => held.then(() => FINDING));
  return { ...model, hold: () => void (held = new Promise((resolve) => (release = resolve))), release: () => ((held = Promise.resolve()), release()) };
}
