import assert from "node:assert/strict";
import { once } from "node:events";
import { afterEach, beforeEach, mock, test } from "node:test";
import { WebSocketServer } from "ws";
import { HubConsumer } from "@millrace/client/hub";

// Frames by hand, so that this is no mirror of the code under test: field number, wire type, length, content.
const varint = (value) => {
  const bytes = [];
  let rest = BigInt(value);
  do {
    const low = Number(rest & 127n);
    rest >>= 7n;
    bytes.push(rest ? low | 128 : low);
  } while (rest);
  return bytes;
};
const number = (field, value) => [field << 3, ...varint(value)];
const bytes = (field, content) => [(field << 3) | 2, ...varint(content.length), ...Buffer.from(content)];
const frame = (topic, payload, sequence, marks = 0) => {
  const head = [...number(1, 1), ...number(2, sequence), ...number(3, 2)];
  return Buffer.from([...head, ...bytes(4, payload), ...bytes(5, topic), ...(marks ? number(7, marks) : [])]);
};
const accepted = (head) => frame("subscribe", [...bytes(1, "client"), ...number(2, 1), ...number(4, head), ...number(5, 1)], 0);
const refused = (reason, head) => frame("subscribe", [...bytes(1, "client"), ...bytes(3, reason), ...number(4, head)], 0);
const acknowledgement = (sequence) => Buffer.from([...number(2, sequence), ...number(3, 1)]).toString("hex");
const subscription = (after) => {
  const resume = after === undefined ? [] : number(6, after);
  const wish = [...bytes(1, "All"), ...bytes(5, "client"), ...resume];
  return Buffer.from([...number(3, 2), ...bytes(4, wish), ...bytes(5, "subscribe")]).toString("hex");
};

let hub;
let frames;
let sockets;
let waiting;
beforeEach(async () => {
  [frames, sockets, waiting] = [[], [], []];
  hub = new WebSocketServer({ host: "127.0.0.1", port: 0 });
  await once(hub, "listening");
  hub.on("connection", (socket) => {
    sockets.push(socket);
    socket.on("message", (data) => {
      frames.push(data.toString("hex"));
      for (const wake of waiting.splice(0)) wake();
    });
  });
});
afterEach(async () => {
  for (const socket of sockets) socket.terminate();
  hub.close();
  await once(hub, "close");
});

async function received(count) {
  while (frames.length < count) await new Promise((resolve) => waiting.push(resolve));
}
const consumer = (options) => new HubConsumer(`ws://127.0.0.1:${hub.address().port}/hub/ws`, options);
const send = (...all) => all.forEach((one) => sockets.at(-1).send(one));

test("an event is acknowledged when the next is asked for, and not before", async () => {
  const events = consumer();
  await received(1);
  assert.equal(frames[0], subscription());
  send(accepted(1000), frame("SaveBlock", [7, 7], 2n ** 40n, 5), frame("FinalizedBlock", [], 2n ** 40n + 2n));
  const { value } = await events.next();
  assert.deepEqual(value, { type: "event", topic: "SaveBlock", sequence: 2n ** 40n, payload: Uint8Array.of(7, 7), marks: 5 });
  assert.equal(frames.length, 1);
  assert.equal(events.last, 1000n);
  assert.equal((await events.next()).value.topic, "FinalizedBlock");
  await received(2);
  assert.equal(frames[1], acknowledgement(2n ** 40n));
  assert.equal(events.last, 2n ** 40n);
  await events.return();
});

test("resume names the last event handled, also where that is 0", async () => {
  for (const resumeAfter of [0n, 41n]) {
    frames = [];
    const events = consumer({ resumeAfter });
    await received(1);
    assert.equal(frames[0], subscription(resumeAfter));
    await events.return();
  }
});

test("after a lost connection it goes on after what came; what comes twice is handed out once", async () => {
  const events = consumer({ resumeAfter: 10n });
  await received(1);
  send(accepted(12), frame("SaveBlock", [1], 11), frame("SaveBlock", [2], 12));
  assert.equal((await events.next()).value.sequence, 11n);
  assert.equal((await events.next()).value.sequence, 12n);
  await received(2);
  sockets[0].terminate();
  await received(3);
  assert.equal(frames[2], subscription(12));
  send(accepted(13), frame("SaveBlock", [2], 12), frame("SaveBlock", [3], 13));
  assert.equal((await events.next()).value.sequence, 13n);
  await events.return();
});

test("what is gone for good comes as a gap, before the next event", async () => {
  const events = consumer({ resumeAfter: 5n });
  await received(1);
  send(accepted(30), frame("gap", [...number(1, 6), ...number(2, 20)], 0), frame("SaveBlock", [], 21));
  assert.deepEqual((await events.next()).value, { type: "gap", first: 6n, last: 20n });
  assert.equal((await events.next()).value.sequence, 21n);
  assert.equal(events.last, 20n);
  await events.return();
});

test("another journal than before: a gap, and on from its newest", async () => {
  const events = consumer({ resumeAfter: 500n });
  await received(1);
  send(refused("resume_after is beyond the head", 40));
  assert.deepEqual((await events.next()).value, { type: "gap", first: 501n, last: 40n });
  await received(2);
  assert.equal(frames[1], subscription(40));
  await events.return();
});

test("a filter that is refused ends with the hub's reason", async () => {
  const events = consumer({ filter: { level: "Address", address: "nobody" } });
  await received(1);
  send(refused("address: not a bech32 address", 40));
  await assert.rejects(events.next(), { name: "Refused", reason: "address: not a bech32 address" });
});

test("a reader too far behind is an exception, and can resume", async () => {
  const events = consumer({ resumeAfter: 0n, limit: 2 });
  await received(1);
  const closed = once(sockets[0], "close");
  send(accepted(9), ...[1, 2, 3].map((sequence) => frame("SaveBlock", [], sequence)));
  await closed;
  assert.equal((await events.next()).value.sequence, 1n);
  assert.equal((await events.next()).value.sequence, 2n);
  await assert.rejects(events.next(), { name: "QueueFull" });
  assert.equal(events.last, 2n);
});

test("a silent hub is asked a question that changes nothing, and left where it does not answer", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    const events = consumer({ resumeAfter: 7n });
    await received(1);
    mock.timers.tick(30_000);
    await received(2);
    const question = Buffer.from([...number(3, 2), ...bytes(4, bytes(5, "client-silence")), ...bytes(5, "unsubscribe")]);
    assert.equal(frames[1], question.toString("hex"));
    send(frame("unsubscribe", [...bytes(1, "client-silence"), ...bytes(3, "no such subscription")], 0), frame("SaveBlock", [], 8));
    assert.equal((await events.next()).value.sequence, 8n);
    mock.timers.tick(30_000);
    await received(3);
    mock.timers.tick(10_000);
    mock.timers.tick(1_000);
    await received(4);
    assert.equal(frames[3], subscription(8));
    await events.return();
  } finally {
    mock.timers.reset();
  }
});
