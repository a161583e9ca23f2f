import assert from "node:assert/strict";
import { once } from "node:events";
import { afterEach, beforeEach, mock, test } from "node:test";
import { WebSocketServer } from "ws";
import { Hub } from "@millrace/client/hub";
import { readVectors } from "./support.mjs";

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
const frame = (topic, payload, sequence, marks = 0, id = "") => {
  const head = [...number(1, 1), ...number(2, sequence), ...number(3, 2)];
  const rest = [...(marks ? number(7, marks) : []), ...(id ? bytes(8, id) : [])];
  return Buffer.from([...head, ...bytes(4, payload), ...bytes(5, topic), ...rest]);
};
const named = (sequence, id) => frame("SaveBlock", [], sequence, 0, id);
const accepted = (head, journal = "") => {
  const name = journal ? bytes(6, journal) : [];
  return frame("subscribe", [...bytes(1, "client"), ...number(2, 1), ...number(4, head), ...number(5, 1), ...name], 0);
};
const refused = (reason, head) => frame("subscribe", [...bytes(1, "client"), ...bytes(3, reason), ...number(4, head)], 0);
const acknowledgement = (sequence) => Buffer.from([...number(2, sequence), ...number(3, 1)]).toString("hex");
const subscription = (after, id, handled = [], journal = "") => {
  const since = (count) => (count ? number(2, count) : []);
  const marks = handled.flatMap(([name, count]) => bytes(8, [...bytes(1, name), ...since(count)]));
  const place = [...(id ? bytes(7, id) : []), ...marks, ...(journal ? bytes(9, journal) : [])];
  const resume = after === undefined ? [] : number(6, after);
  return subscribed([...bytes(1, "All"), ...bytes(5, "client"), ...resume, ...place]);
};
const subscribed = (wish) => {
  return Buffer.from([...number(3, 2), ...bytes(4, wish), ...bytes(5, "subscribe")]).toString("hex");
};

let hub;
let other;
let frames;
let sockets;
let waiting;
async function notifier() {
  const server = new WebSocketServer({ host: "127.0.0.1", port: 0 });
  await once(server, "listening");
  server.on("connection", (socket) => {
    sockets.push(Object.assign(socket, { server }));
    socket.on("message", (data) => {
      frames.push(data.toString("hex"));
      socket.heard = true;
      for (const wake of waiting.splice(0)) wake();
    });
  });
  return server;
}
beforeEach(async () => {
  [frames, sockets, waiting] = [[], [], []];
  [hub, other] = [await notifier(), await notifier()];
});
afterEach(async () => {
  for (const socket of sockets) socket.terminate();
  await stop(hub);
  await stop(other);
});
async function stop(server) {
  if (server.address() === null) return;
  for (const socket of server.clients) socket.terminate();
  server.close();
  await once(server, "close");
}

async function received(count) {
  while (frames.length < count) await new Promise((resolve) => waiting.push(resolve));
}
const urlOf = (server) => `ws://127.0.0.1:${server.address().port}/hub/ws`;
const consumer = (options) => new Hub(urlOf(hub), options);
const sequences = async (events, count) => {
  const all = [];
  while (all.length < count) all.push((await events.next()).value.sequence);
  return all;
};
const send = (...all) => all.forEach((one) => sockets.at(-1).send(one));

test("an event is acknowledged when the next is asked for, and not before", async () => {
  const events = consumer();
  await received(1);
  assert.equal(frames[0], subscription());
  send(accepted(1000), frame("SaveBlock", [7, 7], 2n ** 40n, 5), frame("FinalizedBlock", [], 2n ** 40n + 2n));
  const { value } = await events.next();
  assert.deepEqual(value, { type: "event", topic: "SaveBlock", sequence: 2n ** 40n, payload: Uint8Array.of(7, 7), marks: 5, id: "" });
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

test("before any event came it says of which journal the sequence is at which it began", async () => {
  const events = consumer();
  await received(1);
  send(accepted(30, "5d"));
  sockets[0].terminate();
  await received(2);
  assert.equal(frames[1], subscription(30, undefined, [], "5d"));
  await events.return();
});

test("what is gone for good comes as a gap, before the next event", async () => {
  const events = consumer({ resumeAfter: 5n });
  await received(1);
  send(accepted(30), frame("gap", [...number(1, 6), ...number(2, 20), ...number(4, 1)], 0), frame("SaveBlock", [], 21));
  assert.deepEqual((await events.next()).value, { type: "gap", first: 6n, last: 20n, uncounted: true });
  assert.equal((await events.next()).value.sequence, 21n);
  assert.equal(events.last, 20n);
  await events.return();
});

test("a connection lost behind a gap: on behind it, or where a journal that was put back goes on", async () => {
  for (const [more, place] of [[[], 500], [number(3, 450), 450]]) {
    frames = [];
    sockets = [];
    const events = consumer();
    await received(1);
    send(accepted(500, "5d"), frame("gap", [...number(1, 451), ...number(2, 500), ...more], 0));
    assert.deepEqual((await events.next()).value, { type: "gap", first: 451n, last: 500n, uncounted: false });
    sockets[0].terminate();
    await received(2);
    assert.equal(frames[1], subscription(place, undefined, [], "5d"));
    await events.return();
  }
});

test("another journal than before: a gap, and on from its newest", async () => {
  const events = consumer({ resumeAfter: 500n });
  await received(1);
  send(refused("resume_after is beyond the head", 40));
  assert.deepEqual((await events.next()).value, { type: "gap", first: 501n, last: 40n, uncounted: true });
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
  const events = consumer({ resumeAfter: 0n, size: 2 });
  await received(1);
  const closed = once(sockets[0], "close");
  send(accepted(9), ...[1, 2, 3].map((sequence) => frame("SaveBlock", [], sequence)));
  await closed;
  assert.equal((await events.next()).value.sequence, 1n);
  assert.equal((await events.next()).value.sequence, 2n);
  await assert.rejects(events.next(), { name: "SlowReader" });
  assert.equal(events.last, 2n);
});

test("a message that cannot be read ends the iteration, and the place stays where to go on", async () => {
  const cutOff = Uint8Array.of(0xff);
  const typed = Uint8Array.of(0x0b);
  const noNumber = Buffer.from(bytes(3, "x"));
  const answer = Buffer.from([...number(3, 2), ...bytes(4, [0xff]), ...bytes(5, "subscribe")]);
  for (const spoilt of [cutOff, typed, noNumber, answer]) {
    frames = [];
    const events = consumer({ resumeAfter: 10n });
    await received(1);
    send(accepted(12), frame("SaveBlock", [1], 11), spoilt);
    assert.equal((await events.next()).value.sequence, 11n);
    await assert.rejects(events.next(), { name: "Unreachable", message: /cannot be read/ });
    assert.equal(events.last, 11n);
    assert.equal((await events.next()).done, true);
  }
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

test("when its notifier dies it goes on at the next, at its place; what that tells again is left out by its id", async () => {
  const events = new Hub([urlOf(hub), urlOf(other)], { resumeAfter: 0n });
  await received(1);
  assert.equal(frames[0], subscription(0));
  send(accepted(2, "a1"), named(1, "SaveBlock:0:aa:0"), named(2, "SaveBlock:0:bb:0"));
  assert.deepEqual(await sequences(events, 2), [1n, 2n]);
  assert.equal(events.place, '[1,"SaveBlock:0:aa:0",[["SaveBlock:0:aa:0",0]],"a1"]');
  await received(2);
  await stop(hub);
  await received(3);
  assert.equal(sockets.at(-1).server, other);
  assert.equal(frames[2], subscription(2, "SaveBlock:0:bb:0", [["SaveBlock:0:bb:0", 0], ["SaveBlock:0:aa:0", 1]], "a1"));
  send(accepted(72, "b2"), named(70, "SaveBlock:0:aa:0"), named(71, "SaveBlock:0:bb:0"), named(72, "SaveBlock:0:cc:0"));
  const { value } = await events.next();
  assert.deepEqual([value.sequence, value.id], [72n, "SaveBlock:0:cc:0"]);
  events.handled();
  assert.deepEqual([events.last, events.head], [72n, 72n]);
  assert.equal(events.place, '[72,"SaveBlock:0:cc:0",[["SaveBlock:0:cc:0",0],["SaveBlock:0:bb:0",1],["SaveBlock:0:aa:0",2]],"b2"]');
  while (frames.at(-1) !== acknowledgement(72)) await received(frames.length + 1);
  await events.return();
});

test("what one notifier lost is asked of the other, and is a gap where that has lost it, too", async () => {
  const events = new Hub([urlOf(hub), urlOf(other)], { place: '[5,"SaveBlock:1:aa:0",[["SaveBlock:1:aa:0",0]]]' });
  const lost = frame("gap", [...number(1, 6), ...number(2, 20), ...number(4, 1)], 0);
  for (const [count, server] of [[1, hub], [2, other], [3, hub]]) {
    await received(count);
    assert.equal(sockets.at(-1).server, server);
    assert.equal(frames.at(-1), subscription(5, "SaveBlock:1:aa:0", [["SaveBlock:1:aa:0", 0]]));
    send(accepted(21, "5d"), lost, named(21, "SaveBlock:1:bb:0"));
  }
  assert.deepEqual((await events.next()).value, { type: "gap", first: 6n, last: 20n, uncounted: true });
  assert.equal((await events.next()).value.id, "SaveBlock:1:bb:0");
  await events.return();
});

test("a notifier that is not there is passed over", async () => {
  const dead = urlOf(hub);
  await stop(hub);
  const events = new Hub([dead, urlOf(other)], { place: '[5,"SaveBlock:1:aa:0",[["SaveBlock:1:aa:0",0]]]' });
  await received(1);
  assert.equal(frames[0], subscription(5, "SaveBlock:1:aa:0", [["SaveBlock:1:aa:0", 0]]));
  assert.deepEqual([events.last, events.place], [5n, '[5,"SaveBlock:1:aa:0",[["SaveBlock:1:aa:0",0]],""]']);
  events.close();
});

test("events without ids: what came while another notifier was looked for is said to be missed", async () => {
  const events = new Hub([urlOf(hub), urlOf(other)]);
  await received(1);
  send(accepted(10), frame("SaveBlock", [], 11));
  assert.deepEqual(await sequences(events, 1), [11n]);
  await stop(hub);
  await received(2);
  assert.equal(frames[1], subscription());
  send(accepted(500), frame("SaveBlock", [], 501));
  assert.deepEqual((await events.next()).value, { type: "missed", reason: "connection" });
  assert.deepEqual(await sequences(events, 1), [501n]);
  events.close();
});

test("a sequence means nothing to several notifiers, and a place is one", () => {
  for (const [urls, options] of [
    [["ws://a", "ws://b"], { resumeAfter: 5n }],
    ["ws://a", { resumeAfter: 5n, place: '[5,"a",[]]' }],
    [[], {}],
    ...['{}', "[1]", '["1","a",[]]', '[1,"a",[["b"]]]', '[1,"a",[["b",-1]]]', '[1,"a",[],5]', "nonsense"].map((place) => ["ws://a", { place }]),
  ]) {
    assert.throws(() => new Hub(urls, options), RangeError, JSON.stringify([urls, options.place]));
  }
});

test("the Python client's places are this one's: a consumer may be replaced by one of the other language", async () => {
  for (const [index, { begun, events: told, number: handled, place, journal }] of readVectors("hub_places.json").entries()) {
    const events = consumer(begun ? { place: begun } : {});
    while (!sockets[index]?.heard) await received(frames.length + 1);
    send(accepted(0, journal), ...told.map(([, sequence, id]) => named(BigInt(sequence), id)));
    for (let count = 0; count < handled; count++) await events.next();
    events.handled();
    assert.equal(events.place, place);
    await events.return();
  }
});

test("a name of one's own, and an empty topic that stands for any", async () => {
  const events = consumer({ name: "mine", filter: { level: "Topics", topics: ["", "hex:00"] } });
  await received(1);
  assert.equal(frames[0], subscribed([...bytes(1, "Topics"), ...bytes(4, ""), ...bytes(4, "hex:00"), ...bytes(5, "mine")]));
  events.close();
});
