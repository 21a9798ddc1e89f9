// Builds `dist`: ESM and CommonJS with types, and one file for a page without a bundler.
import { execFileSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

process.chdir(import.meta.dirname ?? new URL(".", import.meta.url).pathname);
rmSync("dist", { recursive: true, force: true });
const compile = (...options) => execFileSync(process.execPath, ["node_modules/typescript/bin/tsc", ...options], { stdio: "inherit" });
compile("--outDir", "dist/esm");
compile("--outDir", "dist/cjs", "--module", "CommonJS", "--moduleResolution", "Node10", "--verbatimModuleSyntax", "false");
writeFileSync("dist/cjs/package.json", '{ "type": "commonjs" }\n');
await build({ entryPoints: ["src/index.ts"], bundle: true, minify: true, format: "esm", target: "es2022", outfile: "dist/browser.js" });
