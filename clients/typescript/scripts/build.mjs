// Makes dist/: the modules for Node and browsers, their types, and the WebSocket of Node 20.
import { execFileSync } from "node:child_process";
import { rm } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("../", import.meta.url));
await rm(`${root}dist`, { recursive: true, force: true });
await build({
  absWorkingDir: root,
  entryPoints: ["src/index.ts", "src/ed25519.ts", "src/hub.ts"],
  outdir: "dist",
  bundle: true,
  splitting: true, // an error of one entry is the same class in the others
  chunkNames: "shared-[hash]",
  format: "esm",
  platform: "neutral",
  mainFields: ["module", "main"],
  target: "es2022",
  minify: true,
  keepNames: false,
  legalComments: "inline", // @noble/hashes asks for its notice
});
await build({
  absWorkingDir: root,
  stdin: { contents: 'module.exports = require("ws").WebSocket;', resolveDir: root },
  outfile: "dist/node-socket.cjs",
  bundle: true,
  format: "cjs",
  platform: "node",
  target: "node20",
  external: ["bufferutil", "utf-8-validate"], // optional to ws, native
  legalComments: "inline",
});
execFileSync(process.execPath, [`${root}node_modules/typescript/bin/tsc`, "--emitDeclarationOnly", "-p", root], { stdio: "inherit" });
