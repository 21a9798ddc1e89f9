import { expectTypeOf, test } from "vitest";
import { type Answer, type Page, type RunEvent, type Schemas, SightlineClient, type TimelineEvent, type UnknownEvent, type UploadProgress } from "../src/index.js";

declare const client: SightlineClient;
declare const event: TimelineEvent;
declare const index: string | undefined;

test("events are told apart by their kind, and the arm for other kinds is open", () => {
  if (event.kind === "marker_emitted") expectTypeOf(event.payload).toEqualTypeOf<Schemas.Marker>();
  if (event.kind === "keyframe_stored") expectTypeOf(event.payload.image_sha256).toBeString();
  const other: string = event.kind;
  void other;
  if (event.kind !== "run_created") expectTypeOf<UnknownEvent>().toExtend<typeof event>();
  expectTypeOf<UnknownEvent["payload"]["anything"]>().toBeUnknown();
});

test("events that are followed say their run", () => {
  expectTypeOf(client.followRun("run")).toEqualTypeOf<AsyncGenerator<RunEvent, void, undefined>>();
  expectTypeOf<RunEvent["run_id"]>().toBeString();
});

test("answers and bodies are those of the OpenAPI document", () => {
  expectTypeOf(client.getRun("run")).resolves.toEqualTypeOf<Schemas.Run>();
  expectTypeOf(client.listRuns()).resolves.toEqualTypeOf<Page<Answer<"listRuns">>>();
  expectTypeOf(client.getKeyframe("run", "hash")).resolves.toEqualTypeOf<Blob>();
  expectTypeOf(client.ingestRun).parameter(1).toHaveProperty("source_uri").toBeString();
  expectTypeOf(client.uploadFile).parameter(1).toEqualTypeOf<((progress: UploadProgress) => void) | undefined>();
});

test("what is optional may be undefined, and what is not there is refused", () => {
  void client.getEvents("run", index);
  void client.getEvents("run", { index, limit: undefined });
  void client.createRun({ label: index });
  // @ts-expect-error a source is needed
  void client.ingestRun("run", {});
  // @ts-expect-error no such parameter
  void client.getMarkers("run", { from_frames: 1 });
  // @ts-expect-error no such mode
  void client.createRun({ mode: "fast" });
});

test("a key may be a function of either kind", () => {
  new SightlineClient("http://a", { apiKey: "k" });
  new SightlineClient("http://a", { apiKey: () => index });
  new SightlineClient("http://a", { apiKey: async () => "k" });
});
