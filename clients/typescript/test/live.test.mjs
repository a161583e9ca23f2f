import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { Relayer } from "@millrace/client";
import { FakeSockets, PATIENCE } from "./support.mjs";

let service;
let relayer;
beforeEach(async () => {
  service = await new FakeSockets().start();
  relayer = new Relayer("http://127.0.0.1:1", service.url, { ...PATIENCE, attempts: 1 });
});
afterEach(async () => {
  relayer.close();
  await service.stop();
});

const account = (address, nonce) => ({ type: "accountDelta", data: { address, nonce } });
const value = async (items) => (await items.next()).value;

test("messages come to the topics they are of", async () => {
  const [one, two, gas] = await Promise.all(["address/erd1a", "address/erd1b", "gasStats"].map((topic) => relayer.subscribe(topic)));
  service.push(account("erd1b", 1));
  service.push({ type: "gasStats", data: { shard: 2 } });
  service.push(account("erd1a", 2));
  assert.equal((await value(two)).data.nonce, 1);
  assert.equal((await value(gas)).data.shard, 2);
  assert.equal((await value(one)).data.nonce, 2);
  assert.equal(service.sockets.length, 1);
  assert.equal(service.sockets[0].path, "/ws");
});

test("after a lost connection every topic is subscribed to again, and each reader is told since when", async () => {
  const gas = await relayer.subscribe("gasStats");
  const one = await relayer.subscribe("address/erd1a");
  service.push(account("erd1a", 1));
  assert.equal((await value(one)).data.nonce, 1);
  service.drop();
  for (const items of [gas, one]) {
    const missed = await value(items);
    assert.deepEqual([missed.type, missed.reason], ["missed", "connection"]);
    assert.ok(missed.from <= missed.to && missed.to <= Date.now());
  }
  service.push(account("erd1a", 2));
  assert.equal((await value(one)).data.nonce, 2);
  assert.deepEqual(service.sent("subscribe").map(({ topic }) => topic).sort(), ["address/erd1a", "address/erd1a", "gasStats", "gasStats"]);
});

for (const [told, unanswered] of [["asked again", 1], ["and the connection is made anew", 2]]) {
  test(`a subscription after a lost connection that nobody answers is ${told}`, async () => {
    relayer.close();
    relayer = new Relayer("http://127.0.0.1:1", service.url, { timeoutMs: 300, attempts: 1 });
    const gas = await relayer.subscribe("gasStats");
    const one = await relayer.subscribe("address/erd1a");
    let silent = unanswered;
    service.control = ({ topic }) => (topic === "gasStats" && silent-- > 0 ? undefined : { status: "ok" });
    const lost = Date.now();
    service.drop();
    assert.equal((await value(one)).type, "missed");
    service.push({ type: "gasStats", data: { shard: 1 } });
    service.push(account("erd1a", 1));
    assert.equal((await value(one)).data.nonce, 1);
    assert.equal((await value(gas)).data.shard, 1);
    const missed = await Promise.race([value(gas), new Promise((resolve) => setTimeout(resolve, 10_000, "nothing").unref())]);
    assert.deepEqual([missed.type, missed.reason], ["missed", "connection"]);
    assert.ok(missed.from <= lost);
    assert.equal(service.sockets.length, unanswered + 1);
  });
}

test("a topic that alone is never answered ends after a few connections, and the others stay on the last", { timeout: 20_000 }, async () => {
  relayer.close();
  relayer = new Relayer("http://127.0.0.1:1", service.url, { timeoutMs: 100, attempts: 1 });
  const gas = await relayer.subscribe("gasStats");
  const one = await relayer.subscribe("address/erd1a");
  service.control = ({ topic }) => (topic === "gasStats" ? undefined : { status: "ok" });
  service.drop();
  await assert.rejects(gas.next(), { name: "Unreachable" });
  assert.equal(service.sockets.length, 4);
  service.push(account("erd1a", 1));
  assert.equal((await value(one)).type, "missed");
  assert.equal((await value(one)).data.nonce, 1);
  assert.equal(service.sockets.length, 4);
});

test("a service that acknowledges no more but tells is used all the same, and readers hear what they missed", { timeout: 20_000 }, async () => {
  relayer.close();
  relayer = new Relayer("http://127.0.0.1:1", service.url, { timeoutMs: 100, attempts: 1 });
  const gas = await relayer.subscribe("gasStats", { policy: "latest" });
  const one = await relayer.subscribe("address/erd1a");
  service.control = (_, socket) => void service.push({ type: "gasStats", data: { shard: 1 } }, socket);
  service.drop();
  const missed = await value(one);
  assert.deepEqual([missed.type, missed.reason], ["missed", "connection"]);
  service.push(account("erd1a", 1));
  assert.equal((await value(one)).data.nonce, 1);
  assert.equal(service.sockets.length, 4);
  await gas.return();
});

test("connections over which nothing comes are given up for ever, and end no subscription", { timeout: 20_000 }, async () => {
  relayer.close();
  relayer = new Relayer("http://127.0.0.1:1", service.url, { timeoutMs: 20, attempts: 1 });
  const gas = await relayer.subscribe("gasStats");
  service.control = () => undefined;
  service.drop();
  await service.until(() => service.sockets.length === 6);
  service.control = () => ({ status: "ok" });
  assert.equal((await value(gas)).type, "missed");
});

test("what was missed is told once, also when the connection is lost while a topic waits to be asked for again", { timeout: 20_000 }, async () => {
  relayer.close();
  relayer = new Relayer("http://127.0.0.1:1", service.url, PATIENCE);
  const gas = await relayer.subscribe("gasStats");
  let refusals = 1;
  const busy = { status: "fail", reason: "relayer busy", code: "relayer_busy", retryAfterMs: 500 };
  service.control = () => (refusals-- > 0 ? busy : { status: "ok" });
  service.drop();
  await service.until(() => service.sent("subscribe", "gasStats").length === 2);
  service.drop();
  assert.equal((await value(gas)).type, "missed");
  await service.until(() => service.sent("subscribe", "gasStats").length === 4);
  for (const shard of [1, 2]) {
    service.push({ type: "gasStats", data: { shard } });
    assert.equal((await value(gas)).data?.shard, shard);
  }
});

test("what is no message of the interface is passed over", async () => {
  const gas = await relayer.subscribe("gasStats");
  for (const word of [5, null, "text", [], { type: 5 }, { type: null }, { type: "address" }, { type: "tx-status", data: null }, { type: {} }]) service.push(word);
  service.push({ type: "gasStats", data: { shard: 2 } });
  assert.equal((await value(gas)).data.shard, 2);
});

test("a topic that several read is subscribed to once, and left with the last of them", async () => {
  const [one, two] = await Promise.all([relayer.subscribe("accounts"), relayer.subscribe("accounts")]);
  service.push(account("erd1a", 1));
  assert.equal((await value(one)).data.nonce, 1);
  assert.equal((await value(two)).data.nonce, 1);
  await one.return();
  await two.return();
  await service.until(() => service.sent("unsubscribe").length);
  assert.equal(service.sent("subscribe").length, 1);
  assert.equal(service.sent("unsubscribe").length, 1);
});

test("a refused topic is an exception with reason and code, also when it is refused after a lost connection", async () => {
  service.control = ({ topic }) => (topic === "bad" ? { status: "fail", reason: "unknown topic", code: "unknown_topic" } : { status: "ok" });
  await assert.rejects(relayer.subscribe("bad"), { name: "Refused", reason: "unknown topic", code: "unknown_topic" });
  const gas = await relayer.subscribe("gasStats");
  service.control = () => ({ status: "fail", reason: "unknown topic", code: "unknown_topic" });
  service.drop();
  await assert.rejects(gas.next(), { code: "unknown_topic" });
});

test("too many control messages: it is asked again after the time that was told", async () => {
  const busy = { status: "fail", reason: "rate limit exceeded", code: "rate_limit_exceeded", retryAfterMs: 1 };
  const patient = new Relayer("http://127.0.0.1:1", service.url, PATIENCE);
  let refusals = 2;
  service.control = () => (refusals-- > 0 ? busy : { status: "ok" });
  await patient.subscribe("gasStats");
  assert.equal(service.sent("subscribe").length, 3);
  patient.close();
});

test("a reader who takes too little loses the oldest and is told how many", async () => {
  const accounts = await relayer.subscribe("accounts", { size: 2 });
  const behind = await relayer.subscribe("address/erd1a");
  for (let nonce = 1; nonce <= 5; nonce++) service.push(account("erd1a", nonce));
  for (let nonce = 1; nonce <= 5; nonce++) await behind.next();
  assert.deepEqual(await value(accounts), { type: "missed", reason: "overflow", count: 3 });
  assert.equal((await value(accounts)).data.nonce, 4);
});

test("more than 64 topics take a second connection", async () => {
  await Promise.all(Array.from({ length: 65 }, (_, i) => relayer.subscribe(`address/erd1${i}`)));
  assert.equal(service.sockets.length, 2);
});

test("a service that does not acknowledge topics is used all the same", async () => {
  service.control = () => undefined;
  relayer = new Relayer("http://127.0.0.1:1", service.url, { timeoutMs: 50, attempts: 6 });
  const gas = await relayer.subscribe("gasStats");
  service.push({ type: "gasStats", data: { shard: 0 } });
  assert.equal((await value(gas)).data.shard, 0);
});

test("nobody there: Unreachable within the patience", async () => {
  const nobody = new Relayer("http://127.0.0.1:1", "ws://127.0.0.1:1", { timeoutMs: 50, attempts: 2 });
  await assert.rejects(nobody.subscribe("gasStats"), { name: "Unreachable" });
  nobody.close();
});

test("closing ends every iteration", async () => {
  const gas = await relayer.subscribe("gasStats");
  const waiting = gas.next();
  relayer.close();
  assert.equal((await waiting).done, true);
});

test("network statistics: what the service left out is counted, and a new connection begins a new count", async () => {
  const stats = relayer.networkStats({ policy: "drop" });
  const push = (sequence) => service.push({ type: "networkStats", schemaVersion: "1.1.0", sequence, ts: 0, data: {} });
  await service.until(() => service.live);
  assert.equal(service.live.path, "/ws/stats");
  push(1);
  push(5);
  assert.equal((await value(stats)).sequence, 1);
  assert.deepEqual(await value(stats), { type: "missed", reason: "sender", count: 3 });
  assert.equal((await value(stats)).sequence, 5);
  service.drop();
  await service.until(() => service.sockets.length === 2);
  push(1);
  assert.equal((await value(stats)).reason, "connection");
  assert.equal((await value(stats)).sequence, 1);
  await stats.return();
});

test("an API key goes with the handshake in Node", async () => {
  const known = new Relayer("http://127.0.0.1:1", service.url, { ...PATIENCE, apiKey: "k" });
  await known.subscribe("gasStats");
  assert.equal(service.sockets[0].headers.authorization, "Bearer k");
  known.close();
});

test("a service that ends sends its clients elsewhere, and readers are told what was missed", async () => {
  const other = await new FakeSockets().start();
  try {
    const gas = await relayer.subscribe("gasStats");
    service.control = ({ topic }) => (topic === "accounts" ? undefined : { status: "ok" });
    const asked = relayer.subscribe("accounts");
    await service.until(() => service.sent("subscribe", "accounts").length);
    const [from, { requestId }] = [service.live, service.sent("subscribe", "accounts")[0]];
    service.push({ type: "serverShutdown", moveTo: ["http://nowhere", other.url], afterMs: 1 }, from);
    await new Promise((resolve) => setTimeout(resolve, 60));
    assert.equal(from.readyState, 1, "it waits for its reply");
    service.push({ action: "subscribe", topic: "accounts", requestId, status: "ok" }, from);
    await asked;
    const missed = await value(gas);
    assert.deepEqual([missed.type, missed.reason], ["missed", "connection"]);
    await other.until(() => other.sent("subscribe").length === 2);
    assert.deepEqual(other.sent("subscribe").map(({ topic }) => topic), ["gasStats", "accounts"]);
    other.push({ type: "gasStats", data: { shard: 1 } });
    assert.equal((await value(gas)).data.shard, 1);
    assert.equal(service.sent("subscribe", "gasStats").length, 1);
  } finally {
    await other.stop();
  }
});

test("a word of an ended connection does not keep the next one from going where it is sent", async () => {
  const other = await new FakeSockets().start();
  try {
    const gas = await relayer.subscribe("gasStats");
    service.push({ type: "serverShutdown", moveTo: [service.url], afterMs: 3_600_000 });
    service.push({ type: "gasStats", data: { shard: 1 } });
    assert.equal((await value(gas)).data.shard, 1);
    service.drop();
    assert.equal((await value(gas)).type, "missed");
    service.push({ type: "serverShutdown", moveTo: [other.url], afterMs: 1 });
    assert.equal((await value(gas)).type, "missed");
    assert.equal(other.sent("subscribe", "gasStats").length, 1);
  } finally {
    await other.stop();
  }
});

test("where nobody is at the named place, the client comes back to its own", async () => {
  const gone = await new FakeSockets().start();
  const { url } = gone;
  await gone.stop();
  const gas = await relayer.subscribe("gasStats");
  service.push({ type: "serverShutdown", moveTo: [url], afterMs: 1 });
  const missed = await value(gas);
  assert.equal(missed.type, "missed");
  assert.equal(service.sent("subscribe", "gasStats").length, 2);
});

const BAD_WORDS = [
  { moveTo: ["ws://[x", "ws://one:99999", "ws:", "ws://"], afterMs: 1 },
  { moveTo: null, afterMs: 1 },
  { moveTo: "ws://one", afterMs: 1 },
  { moveTo: [null, 7, {}], afterMs: 1 },
];
for (const word of BAD_WORDS) {
  test(`a word that leads nowhere ends no client: ${JSON.stringify(word)}`, async () => {
    const gas = await relayer.subscribe("gasStats");
    service.push(null);
    service.push({ type: "serverShutdown", ...word });
    assert.equal((await value(gas)).type, "missed");
    assert.equal(service.sent("subscribe", "gasStats").length, 2);
  });
}

test("a moment that is too far away, or none, is not now", async () => {
  const gas = await relayer.subscribe("gasStats");
  for (const afterMs of [2 ** 40, null, "soon"]) service.push({ type: "serverShutdown", afterMs });
  for (let turn = 0; turn < 20; turn += 1) {
    service.push({ type: "gasStats", data: { shard: turn } });
    assert.equal((await value(gas)).data.shard, turn);
  }
  assert.equal(service.sent("subscribe", "gasStats").length, 1);
});

test("a service that sends everybody in a circle is asked again after a pause", async () => {
  const gas = await relayer.subscribe("gasStats");
  const pauses = [];
  const real = globalThis.setTimeout;
  globalThis.setTimeout = (call, ms, ...rest) => (pauses.push(ms), real(call, ms, ...rest));
  try {
    service.push({ type: "serverShutdown", moveTo: [service.url], afterMs: 1 });
    assert.equal((await value(gas)).type, "missed");
  } finally {
    globalThis.setTimeout = real;
  }
  assert.ok(!pauses.includes(0));
});
