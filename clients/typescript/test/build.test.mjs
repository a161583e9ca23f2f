import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const dist = fileURLToPath(new URL("../dist/", import.meta.url));
const read = (name) => readFileSync(dist + name, "utf8");
/** Files that a file imports, and theirs. */
function closure(name, found = new Set()) {
  if (found.has(name)) return found;
  found.add(name);
  for (const [, other] of read(name).matchAll(/(?<!["'.\w])(?:from|import)\s*"\.\/([^"]+\.js)"/g)) closure(other, found);
  return found;
}

test("what a page loads for everything but signing is at most 30 KB compressed", (t) => {
  const files = [...closure("index.js")];
  const bytes = files.reduce((sum, name) => sum + gzipSync(read(name), { level: 9 }).length, 0);
  t.diagnostic(`${files.length} files, ${bytes} bytes compressed`);
  assert.ok(files.length > 1);
  assert.ok(bytes <= 30 * 1024, `${bytes} bytes`);
});

test("the built modules import each other and nothing else", () => {
  for (const name of readdirSync(dist).filter((file) => file.endsWith(".js"))) {
    for (const [, other] of read(name).matchAll(/(?<!["'.\w])(?:from|import)\s*"([^"]+)"/g)) assert.match(other, /^\.\//, `${name}: ${other}`);
  }
  const { dependencies } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
  assert.equal(dependencies, undefined);
});

test("every tool is of one version, in package.json and in its lock", () => {
  const { devDependencies } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
  const { packages } = JSON.parse(readFileSync(new URL("../package-lock.json", import.meta.url), "utf8"));
  for (const [name, version] of Object.entries(devDependencies)) assert.equal(packages[`node_modules/${name}`].version, version);
});
