import { type IncomingMessage, type Server, type ServerResponse, createServer, request } from "node:http";
import type { AddressInfo } from "node:net";

/** Cuts of a proxy's next answers. */
export interface Cut {
  /** Bytes of the body after which the connection is cut. */
  afterBytes: number;
  /** Answers that are still to be cut. */
  times: number;
}

/** A reverse proxy before `target` that adds a path prefix, cuts answers and hides routes. */
export class Proxy {
  readonly cut: Cut = { afterBytes: 0, times: 0 };
  readonly #server: Server;

  private constructor(target: string, prefix: string, hides: RegExp | undefined) {
    this.#server = createServer((incoming, outgoing) => {
      const path = incoming.url ?? "/";
      if (!path.startsWith(prefix)) return void outgoing.writeHead(404, { "content-type": "text/html" }).end("<html>not here</html>");
      const rest = path.slice(prefix.length);
      const headers = { ...incoming.headers, ...(prefix ? { "x-forwarded-prefix": prefix } : {}) };
      // A server that is older than a route answers as to any path that it does not have.
      const sent = hides?.test(rest) ? "/v1/not-built-yet" : rest;
      const passed = request(`${target}${sent}`, { method: incoming.method, headers, agent: false }, (answer) => this.#pass(answer, outgoing));
      passed.on("error", () => outgoing.destroy());
      outgoing.on("close", () => passed.destroy());
      incoming.pipe(passed);
    });
  }

  static async start(target: string, { prefix = "", hides }: { prefix?: string; hides?: RegExp } = {}): Promise<Proxy> {
    const proxy = new Proxy(target, prefix, hides);
    await new Promise<void>((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  stop(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  #pass(answer: IncomingMessage, outgoing: ServerResponse): void {
    outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
    outgoing.flushHeaders();
    let left = this.cut.times > 0 ? this.cut.afterBytes : Infinity;
    this.cut.times -= 1;
    answer.on("data", (chunk: Buffer) => {
      outgoing.write(chunk.subarray(0, left));
      left -= chunk.length;
      if (left <= 0) setTimeout(() => outgoing.destroy(), 20);
    });
    answer.on("end", () => left > 0 && outgoing.end());
    answer.on("error", () => outgoing.destroy());
  }
}
