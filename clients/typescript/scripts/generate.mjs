// Makes src/generated from spec/: `node scripts/generate.mjs`, or with --check says whether that is what is there.
import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";

const HEAD = "// Made by `npm run generate` from spec/; do not edit.\n\n";
const root = new URL("../", import.meta.url);

/** An AsyncAPI document's schemas are JSON Schema, as those of OpenAPI 3.1 are: one with no paths holds them. */
function asOpenApi(document) {
  if (document.openapi) return document;
  return { openapi: "3.1.0", info: document.info, paths: {}, components: { schemas: document.components.schemas } };
}

const SOURCES = {
  "aggregator.ts": "aggregator.openapi.json",
  "relayer.ts": "relayer.openapi.json",
  "messages.ts": "relayer.asyncapi.json",
};

let stale = 0;
for (const [name, source] of Object.entries(SOURCES)) {
  const document = JSON.parse(await readFile(new URL(`spec/${source}`, root), "utf8"));
  const made = HEAD + astToString(await openapiTS(asOpenApi(document), { defaultNonNullable: false }));
  const file = new URL(`src/generated/${name}`, root);
  if (!process.argv.includes("--check")) await writeFile(file, made);
  else if ((await readFile(file, "utf8")) !== made) {
    stale++;
    console.error(`src/generated/${name} is not what spec/${source} makes: run npm run generate`);
  }
}
process.exit(stale ? 1 : 0);
