// The surface of both clients is one table; a test of the Python client holds that one to it, too.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import * as client from "@millrace/client";
import { Hub } from "@millrace/client/hub";
import { readVectors } from "./support.mjs";

const { classes, errors, only, arguments: named } = readVectors("client_surface.json");
const all = { ...client, Hub };
const types = new URL("../dist/types/", import.meta.url);
const declared = readdirSync(types).filter((name) => name.endsWith(".d.ts")).map((name) => readFileSync(new URL(name, types), "utf8")).join("\n");
const alone = (name) => Object.keys(only.typescript).filter((key) => key.startsWith(`${name}.`)).map((key) => key.slice(name.length + 1));
const ITERATION = ["constructor", "next", "return", "options"];

/** An instance that asks nobody. */
const made = {
  Millrace: () => new client.Millrace({ aggregator: "http://x", relayer: "http://x", socket: "ws://x" }),
  Aggregator: () => new client.Aggregator("http://x"),
  Relayer: () => new client.Relayer("http://x", "ws://x"),
  Handle: () => new client.Handle({ clientHash: "" }, { [Symbol.asyncIterator]: () => ({ next: async () => ({ done: true }) }) }, {}),
};

for (const [name, members] of Object.entries(classes)) {
  test(`${name} has the methods and attributes of the table, and no others`, () => {
    const instance = made[name]?.() ?? {};
    const own = [...Object.getOwnPropertyNames(all[name].prototype), ...Object.keys(instance)];
    if (name === "Handle") own.push("accepted"); // declared, and set later
    const found = new Set(own.filter((member) => !ITERATION.includes(member)));
    assert.deepEqual([...found].sort(), [...members, ...alone(name)].sort());
  });
}

test("every exception is a ClientError, says what the table names, and has its own name; there are no others", () => {
  for (const [name, fields] of Object.entries(errors)) {
    const error = name === "Refused" ? new client.Refused({ reason: "", code: "" }) : new all[name]();
    assert.ok(error instanceof client.ClientError, name);
    assert.equal(error.name, name);
    assert.deepEqual(Object.keys(error).filter((field) => !["name", "cause"].includes(field)).sort(), [...fields, ...alone(name)].sort(), name);
  }
  const found = Object.keys(all).filter((name) => all[name].prototype instanceof Error);
  assert.deepEqual(found.sort(), Object.keys(errors).sort());
});

test("arguments have the names of the table", () => {
  for (const [name, words] of Object.entries(named)) {
    for (const word of words) assert.match(declared, new RegExp(`\\b${word}\\??:|\\b${word}\\??[,(]`), `${name}: ${word}`);
  }
});
