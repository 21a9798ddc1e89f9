/** A model backend that answers as its script says, over the protocol of OpenAI. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface Finding {
  event_type: string;
  object_label: string;
  summary: string;
  description: string;
  confidence: number;
}

export interface Model {
  /** Its base URL, for `startServer({ model })`. */
  url: string;
  stop: () => void;
}

/** The model that it serves. */
export const MODEL = 'qwen3-vl-8b';

/** A finding that says `description`. */
export function finding(description: string, event_type = 'vehicle', confidence = 0.9): Finding {
  return { event_type, object_label: event_type, summary: description, description, confidence };
}

/** Answers question after question with what `answer` gives for its number. */
export async function startModel(answer: (number: number) => Finding | Promise<Finding>): Promise<Model> {
  let asked = 0;
  const server: Server = createServer((request, response) => {
    request.resume().on('end', async () => {
      response.setHeader('content-type', 'application/json');
      if (request.method === 'GET') {
        response.end(JSON.stringify({ object: 'list', data: [{ id: 'Qwen/Qwen3-VL-8B-Instruct', object: 'model' }] }));
        return;
      }
      const content = JSON.stringify(await answer(asked++));
      response.end(JSON.stringify({
        id: 'chatcmpl-1', object: 'chat.completion', created: 0, model: 'Qwen/Qwen3-VL-8B-Instruct',
        choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }],
        usage: { prompt_tokens: 120, completion_tokens: 30, total_tokens: 150 },
      }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, stop: () => { server.closeAllConnections(); server.close(); } };
}
