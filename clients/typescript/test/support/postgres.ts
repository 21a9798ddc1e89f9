import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A port that the system gives nobody who asks for any, so that only another test may take it first. */
async function freePort(): Promise<number> {
  for (let number = process.pid; number < process.pid + 100; number++) {
    const port = 10_000 + (number % 20_000);
    const server = createServer();
    const isFree = await new Promise((resolve) => server.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => resolve(true)));
    await new Promise((resolve) => server.close(resolve));
    if (isFree) return port;
  }
  throw new Error("no port is free");
}

/** A PostgreSQL cluster of the tests' own on this machine. */
export async function startPostgres(): Promise<{ url: string; stop: () => Promise<void> }> {
  const versions = "/usr/lib/postgresql";
  const programs = join(versions, readdirSync(versions).sort((a, b) => Number(a) - Number(b)).at(-1) ?? "", "bin");
  const folder = mkdtempSync(join(tmpdir(), "sightline-client-pg-"));
  const isRoot = process.getuid?.() === 0;
  // PostgreSQL refuses to run as root.
  const as = isRoot ? ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"] : ["env"];
  if (isRoot) execFileSync("chown", ["postgres:", folder]);
  const [program = "", ...before] = as;
  const options = { cwd: folder, stdio: "ignore" as const };
  execFileSync(program, [...before, join(programs, "initdb"), "-D", join(folder, "data"), "-U", "sightline", "-A", "trust", "-E", "UTF8", "--no-sync"], options);
  const port = await freePort();
  const settings = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off", "-p", String(port)];
  const child = spawn(program, [...before, join(programs, "postgres"), "-D", join(folder, "data"), ...settings], options);
  const ended = new Promise((resolve) => child.once("exit", resolve));
  for (let attempt = 0; ; attempt++) {
    try {
      execFileSync(join(programs, "pg_isready"), ["-q", "-h", "127.0.0.1", "-p", String(port)]);
      break;
    } catch (error) {
      if (attempt === 300 || child.exitCode !== null) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
  const stop = async () => {
    child.kill("SIGINT");
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };
  return { url: `postgres://sightline@127.0.0.1:${port}/postgres`, stop };
}
