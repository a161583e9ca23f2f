import assert from "node:assert/strict";
import { test } from "node:test";
import { build } from "esbuild";

// The queue is no entry of its own: it is loaded from its source.
const { outputFiles: [{ text }] } = await build({
  entryPoints: [new URL("../src/queue.ts", import.meta.url).pathname], bundle: true, format: "esm", write: false,
});
const { Queue } = await import(`data:text/javascript,${encodeURIComponent(text)}`);

async function all(queue) {
  const items = [];
  for await (const item of queue) items.push(item);
  return items;
}

test("items come in their order, those that wait before the end included", async () => {
  const queue = new Queue();
  const first = queue.next();
  queue.push(1);
  queue.push(2);
  queue.end();
  queue.push(3);
  assert.deepEqual(await first, { value: 1, done: false });
  assert.deepEqual(await all(queue), [2]);
});

test("a full queue forgets the oldest and says how many, where they were", async () => {
  const queue = new Queue({ size: 2 });
  for (const item of [1, 2, 3, 4, 5]) queue.push(item);
  queue.end();
  assert.deepEqual(await all(queue), [{ type: "missed", reason: "overflow", count: 3 }, 4, 5]);
});

test("latest keeps the newest alone, and what was missed for other reasons", async () => {
  const queue = new Queue({ policy: "latest" });
  queue.push(1);
  queue.push({ type: "missed", reason: "connection", from: 10, to: 20 });
  queue.push(2);
  queue.push({ type: "missed", reason: "connection", from: 30, to: 40 });
  queue.push(3);
  queue.end();
  assert.deepEqual(await all(queue), [{ type: "missed", reason: "connection", from: 10, to: 40 }, 3]);
});

test("close ends the iteration with SlowReader behind what was there, and leaves", async () => {
  let left = 0;
  const queue = new Queue({ size: 1, policy: "close" }, () => left++);
  queue.push(1);
  queue.push(2);
  assert.deepEqual(await queue.next(), { value: 1, done: false });
  await assert.rejects(queue.next(), { name: "SlowReader" });
  assert.equal((await queue.next()).done, true);
  assert.equal(left, 1);
});

test("notices never outnumber items by more than their kinds", async () => {
  const queue = new Queue({ size: 3 });
  for (let i = 0; i < 1000; i++) {
    queue.push(i);
    queue.push({ type: "missed", reason: i % 2 ? "sender" : "connection", count: 1 });
  }
  queue.end();
  const items = await all(queue);
  assert.equal(items.filter((item) => typeof item === "number").length, 3);
  assert.ok(items.length <= 2 * 3 + 6, String(items.length));
});

test("notices alone are one of each reason, however many come and whatever the queue does when it is full", async () => {
  for (const policy of ["drop", "latest", "close"]) {
    const queue = new Queue({ size: 2, policy });
    queue.push(1);
    for (let i = 0; i < 10_000; i++) {
      queue.push({ type: "missed", reason: "connection", from: i, to: i + 1 });
      queue.push({ type: "missed", reason: "sender", count: 1 });
    }
    queue.end();
    assert.deepEqual(await all(queue), [
      1, { type: "missed", reason: "connection", from: 0, to: 10_000 }, { type: "missed", reason: "sender", count: 10_000 },
    ]);
  }
});
