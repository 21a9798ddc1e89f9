import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type Page, chromium } from "playwright-core";

const TYPES: Record<string, string> = { html: "text/html", js: "text/javascript", mp4: "video/mp4" };

/** Serves files to pages, from an origin that is not a Sightline server's. */
export async function serveFiles(): Promise<{ origin: string; files: Record<string, string | Buffer>; stop: () => void }> {
  const files: Record<string, string | Buffer> = { "/": "<!doctype html><title>tests</title>" };
  const server = createServer((request, response) => {
    const path = new URL(request.url ?? "/", "http://page").pathname;
    const body = files[path];
    const type = TYPES[path.split(".").pop() ?? ""] ?? "text/html";
    response.writeHead(body === undefined ? 404 : 200, { "content-type": type }).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const origin = `http://localhost:${(server.address() as AddressInfo).port}`;
  return { origin, files, stop: () => (server.closeAllConnections(), void server.close()) };
}

/** A page of Chromium's with a camera that is drawn. */
export async function openPage(): Promise<{ page: Page; stop: () => Promise<void> }> {
  const quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"];
  const camera = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"];
  const browser = await chromium.launch({
    executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", ...quiet, ...camera],
  });
  return { page: await browser.newPage(), stop: () => browser.close() };
}
