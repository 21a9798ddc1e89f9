import { type ServerResponse, createServer } from "node:http";
import type { AddressInfo } from "node:net";

const NAME = "Qwen/Qwen3-VL-8B-Instruct";
const FINDING = {
  event_type: "vehicle", object_label: "van", summary: "a white van", description: "A white van waits near the gate.", confidence: 0.9,
};

/** A model backend over the protocol of OpenAI whose answers can be held back. */
export async function startModel() {
  let isHeld = false;
  const held: ServerResponse[] = [];
  const answer = (response: ServerResponse, content: string) => {
    const usage = { prompt_tokens: 120, completion_tokens: 30, total_tokens: 150 };
    const choices = [{ index: 0, message: { role: "assistant", content }, finish_reason: "stop" }];
    response.end(JSON.stringify({ id: "chatcmpl-1", object: "chat.completion", created: 0, model: NAME, choices, usage }));
  };
  const server = createServer((request, response) => {
    request.resume().on("end", () => {
      response.setHeader("content-type", "application/json");
      if (request.method === "GET") response.end(JSON.stringify({ object: "list", data: [{ id: NAME, object: "model" }] }));
      else if (isHeld) held.push(response);
      else answer(response, JSON.stringify(FINDING));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    hold: () => void (isHeld = true),
    release: () => {
      isHeld = false;
      for (const response of held.splice(0)) answer(response, JSON.stringify(FINDING));
    },
    stop: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
