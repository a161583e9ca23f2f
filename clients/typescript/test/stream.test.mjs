import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { Aggregator } from "@millrace/client";
import { FakeHttp, PATIENCE } from "./support.mjs";

const ASKED = { from: "A", to: "B", amountIn: 1n };
const event = (id, data, kind = "quote") => `event: ${kind}\nid: ${id}\ndata: ${JSON.stringify(data)}\n\n`;
let service;
afterEach(() => service?.stop());

/** A service that sends each connection the next of `parts`, then ends it, or keeps it where there is no next. */
async function serving(...parts) {
  service = await new FakeHttp().start((_, response) => {
    const part = parts.shift();
    if (typeof part === "object") return part;
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write(part);
    if (parts.length) response.end();
    return undefined;
  });
  return new Aggregator(service.url, PATIENCE);
}

async function take(stream, count) {
  const items = [];
  for await (const item of stream) {
    items.push(item);
    if (items.length === count) break;
  }
  return items;
}

test("quotes and errors come as they are sent, keep-alives not at all", async () => {
  const client = await serving(": keep-alive\n\n" + event("1", { amountOut: "5" }) + event("2", { error: "simulation failed" }, "error"));
  const items = await take(client.stream(ASKED, { policy: "drop" }), 2);
  assert.deepEqual(items, [
    { type: "quote", id: "1", quote: { amountOut: "5" } },
    { type: "error", id: "2", error: "simulation failed" },
  ]);
  assert.deepEqual(service.requests[0].query, { from: "A", to: "B", amountIn: "1" });
});

test("a stream that ends is opened again and says for how long nobody listened", async () => {
  const client = await serving(event("1", { n: 1 }), event("2", { n: 2 }));
  const [first, missed, second] = await take(client.stream(ASKED, { policy: "drop" }), 3);
  assert.deepEqual([first.id, second.id], ["1", "2"]);
  assert.deepEqual([missed.type, missed.reason], ["missed", "connection"]);
  assert.ok(missed.from <= missed.to);
});

test("events that are cut in the middle of a character are put together", async () => {
  const text = Buffer.from(event("1", { error: "größer" }, "error"));
  const at = text.indexOf("ö") + 1;
  service = await new FakeHttp().start((_, response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write(text.subarray(0, at), () => setImmediate(() => response.write(text.subarray(at))));
    return undefined;
  });
  const [item] = await take(new Aggregator(service.url).stream(ASKED), 1);
  assert.equal(item.error, "größer");
});

test("a question that is refused ends the stream with the refusal; a rate limit is waited for as told", async () => {
  const busy = { status: 429, headers: { "Retry-After": "0" }, body: { error: "rate limit exceeded: too many streams" } };
  const client = await serving(busy, event("1", {}), { status: 400, body: { error: "unknown token_in 'A'" } }, "");
  const stream = client.stream(ASKED, { policy: "drop" });
  assert.equal((await stream.next()).value.id, "1");
  await assert.rejects(stream.next(), { name: "Refused", code: "unknown_token_in" });
  assert.equal(service.requests.length, 3);
});

test("a service that names a very long time is asked again after a minute, neither at once nor never", async () => {
  const busy = { status: 429, headers: { "Retry-After": "100000000" }, body: { error: "rate limit exceeded: too many streams" } };
  const client = await serving(busy, event("1", {}));
  const { setTimeout: wait } = globalThis;
  const waits = [];
  globalThis.setTimeout = (work, ms, ...more) => {
    waits.push(ms);
    return wait(work, ms >= 60_000 ? 1 : ms, ...more);
  };
  try {
    await take(client.stream(ASKED), 1);
  } finally {
    globalThis.setTimeout = wait;
  }
  assert.equal(Math.max(...waits), 60_000);
});

test("leaving the iteration, or its signal, ends the connection", async () => {
  const client = await serving(event("1", {}));
  const closed = new Promise((resolve) => service.server.once("request", (request) => request.once("close", resolve)));
  await take(client.stream(ASKED), 1);
  await closed;
  const controller = new AbortController();
  controller.abort(new Error("enough"));
  await assert.rejects(client.stream(ASKED, { signal: controller.signal }).next(), /enough/);
});
