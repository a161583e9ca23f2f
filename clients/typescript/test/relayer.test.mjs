import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { hashesOf, Refused, Relayer, shardOf } from "@millrace/client";
import { FakeHttp, FakeSockets, PATIENCE, SENDER, signedTransaction } from "./support.mjs";

let sockets;
let rest;
let known; // what the service says of a transaction
let relayer;
let tx;
let hash;

const state = (name, more = {}) => ({ hash, clientHash: hash, state: name, ...more });

beforeEach(async () => {
  known = undefined;
  sockets = await new FakeSockets().start();
  rest = await new FakeHttp().start((asked) => rest.answer?.(asked) || (known ? { body: known } : { status: 404, body: { error: "transaction not known" } }));
  relayer = new Relayer(rest.url, sockets.url, PATIENCE);
  tx = await signedTransaction();
  hash = hashesOf(tx).clientHash;
});
afterEach(async () => {
  relayer.close();
  await sockets.stop();
  await rest.stop();
});

const refusal = (index, code, more = {}) => ({ index, reason: code.replaceAll("_", " "), code, ...more });
const reply = (...failed) => ({ status: failed.length ? "failed" : "completed", hashes: [], results: [], failed });

test("the status is subscribed to before anything is sent, and awaited by the handle", async () => {
  const handle = await relayer.relay(tx);
  assert.deepEqual(sockets.messages.map(({ action, topic }) => [action, topic]), [["subscribe", `tx-status/${hash}`], ["relay", undefined]]);
  assert.deepEqual(sockets.messages[1].tx, tx);
  assert.deepEqual([handle.clientHash, handle.hash, handle.accepted, handle.last.state], [hash, hash, true, "pending"]);
  const final = handle.final();
  sockets.status(hash, "fail", { reason: "execution failed: slippage", chainHash: "c".repeat(64) });
  assert.deepEqual(await final, { hash, state: "fail", reason: "execution failed: slippage", chainHash: "c".repeat(64) });
  assert.deepEqual(await handle.final(), handle.last);
  assert.equal(handle.hash, "c".repeat(64));
  await sockets.until(() => sockets.sent("unsubscribe").length);
});

test("a status that comes before the reply is not lost", async () => {
  sockets.submitted = () => {
    sockets.status(hash);
    return reply();
  };
  assert.equal((await (await relayer.relay(tx)).final()).state, "success");
});

test("refused is an exception with reason, code, detail and when to come again", async () => {
  sockets.submitted = () => reply(refusal(0, "budget_exhausted", { detail: "of shard 1", retryAfterMs: 60_000 }));
  await assert.rejects(relayer.relay(tx), {
    name: "Refused", reason: "budget exhausted", code: "budget_exhausted", detail: "of shard 1", retryAfterMs: 60_000, index: 0,
  });
  assert.equal(sockets.sent("relay").length, 1);
  await sockets.until(() => sockets.sent("unsubscribe").length);
});

test("the service's own trouble: the same bytes are sent again after the time that was told", async () => {
  const answers = [
    { status: "fail", reason: "rate limit exceeded", code: "rate_limit_exceeded", retryAfterMs: 1 },
    reply(refusal(0, "relayer_busy", { retryAfterMs: 1 })),
    reply(),
  ];
  sockets.submitted = () => answers.shift();
  await relayer.relay(tx);
  assert.deepEqual(sockets.sent("relay").map((message) => message.tx), [tx, tx, tx]);
});

test("of a batch each has its own handle or refusal; what only has to wait is sent again alone", async () => {
  const three = await Promise.all([7, 8, 9].map((nonce) => signedTransaction({ nonce })));
  const answers = [{ ...reply(refusal(0, "nonce_too_low"), refusal(2, "relayer_busy", { retryAfterMs: 1 })), status: "partial" }, reply()];
  sockets.submitted = () => answers.shift();
  const [first, second, third] = await relayer.relayAll(three);
  assert.ok(first instanceof Refused && first.code === "nonce_too_low" && first.index === 0);
  assert.deepEqual([second.accepted, third.accepted], [true, true]);
  assert.deepEqual(sockets.sent("relay").map((message) => message.txs ?? message.tx), [three, three[2]]);
  await assert.rejects(relayer.relayAll([]), RangeError);
});

test("what was accepted stays so when the rest is refused as a whole afterwards", async () => {
  const two = await Promise.all([7, 8].map((nonce) => signedTransaction({ nonce })));
  const later = { status: "fail", reason: "not ready", code: "not_ready", retryAfterMs: 1e9 };
  const answers = [{ ...reply(refusal(1, "relayer_busy", { retryAfterMs: 1 })), status: "partial" }, later];
  sockets.submitted = () => answers.shift();
  const [first, second] = await relayer.relayAll(two);
  assert.equal(first.accepted, true);
  assert.ok(second instanceof Refused && second.code === "not_ready" && second.index === 1);
});

test("after a lost answer a refusal as a whole is one only of what nothing is known of", async () => {
  const two = await Promise.all([7, 8].map((nonce) => signedTransaction({ nonce })));
  const later = { status: "fail", reason: "rate limit exceeded", code: "rate_limit_exceeded", retryAfterMs: 1e9 };
  let kills = 1;
  sockets.submitted = () => (kills-- > 0 ? void sockets.drop() : later);
  rest.answer = ({ path }) => path.endsWith(hashesOf(two[1]).clientHash) && { body: state("pending") };
  const [first, second] = await relayer.relayAll(two);
  assert.ok(first instanceof Refused && first.code === "rate_limit_exceeded");
  assert.equal(second.accepted, true);
});

test("an edge says busy of what may run: what is known of is not refused", async () => {
  sockets.submitted = () => reply(refusal(0, "relayer_busy", { retryAfterMs: 1e9 }));
  await assert.rejects(relayer.relay(tx), { name: "Refused", code: "relayer_busy" });
  known = state("success");
  assert.equal((await (await relayer.relay(tx)).final()).state, "success");
});

test("killed before it answered: the same bytes go again over the next connection", async () => {
  let kills = 1;
  sockets.submitted = () => (kills-- > 0 ? void sockets.drop() : reply());
  const handle = await relayer.relay(tx);
  assert.deepEqual(sockets.sent("relay").map((message) => message.tx), [tx, tx]);
  assert.equal(sockets.sockets.length, 2);
  sockets.status(hash);
  assert.equal((await handle.final()).state, "success");
});

test("the status fell into the time without a connection: it is asked for", async () => {
  const handle = await relayer.relay(tx);
  known = state("success", { chainHash: "c".repeat(64), fee: "5" });
  sockets.drop();
  const final = await handle.final();
  assert.deepEqual([final.state, final.chainHash, final.transaction.fee], ["success", "c".repeat(64), "5"]);
  assert.equal(rest.requests[0].path, `/v1/transactions/${hash}`);
});

test("while it is pending after a restart, the new subscription tells the end", async () => {
  const handle = await relayer.relay(tx);
  known = state("pending");
  sockets.drop();
  const final = handle.final();
  await sockets.until(() => sockets.sent("subscribe").length === 2);
  sockets.status(hash, "success");
  assert.equal((await final).state, "success");
});

test("no answer at all, but it was taken: the handle says so", async () => {
  sockets.submitted = () => void sockets.drop();
  known = state("pending");
  const hasty = new Relayer(rest.url, sockets.url, { ...PATIENCE, attempts: 2 });
  const handle = await hasty.relay(tx);
  assert.equal(handle.accepted, true);
  hasty.close();
});

test("no answer at all, and nothing known: the handle says so, and OutcomeUnknown names the hash and what hindered", async () => {
  sockets.submitted = () => void sockets.drop();
  const hasty = new Relayer(rest.url, sockets.url, { ...PATIENCE, attempts: 2 });
  const handle = await hasty.relay(tx);
  assert.equal(handle.accepted, undefined);
  await assert.rejects(handle.final({ timeoutMs: 50 }), {
    name: "OutcomeUnknown", hash, accepted: undefined, state: "sent, its acceptance not known", why: /ask again/,
  });
  hasty.close();
});

test("killed for good after it took it: final says what it could not know, and may be awaited again", async () => {
  const handle = await relayer.relay(tx);
  await rest.stop();
  sockets.drop();
  await assert.rejects(handle.final({ timeoutMs: 100 }), { name: "OutcomeUnknown", hash, accepted: true });
  rest = await new FakeHttp().start(() => ({ body: {} }));
  await sockets.until(() => sockets.sent("subscribe").length === 2);
  sockets.status(hash);
  assert.equal((await handle.final()).state, "success");
});

test("a client that was closed connects no more, whatever its handles want to know", async () => {
  const handle = await relayer.relay(tx);
  const connections = sockets.sockets.length;
  relayer.close();
  await handle.check();
  await assert.rejects(handle.final({ timeoutMs: 20 }), { name: "OutcomeUnknown", accepted: true });
  await assert.rejects(relayer.relay(tx), { name: "Unreachable" });
  assert.equal(sockets.sockets.length, connections);
});

test("every state is told as it becomes known, the final one last", async () => {
  const handle = await relayer.relay(tx);
  const seen = [];
  for await (const { state: told } of handle.progress()) {
    seen.push(told);
    if (told === "pending") {
      known = state("included");
      await handle.check();
    } else if (told === "included") sockets.status(hash, "pending"), sockets.status(hash);
  }
  assert.deepEqual(seen, ["pending", "included", "success"]);
});

test("sent again and refused as nonce too low: the first one had arrived", async () => {
  let sends = 0;
  sockets.submitted = () => (sends++ ? reply(refusal(0, "nonce_too_low")) : void sockets.drop());
  known = state("success");
  const handle = await relayer.relay(tx);
  assert.equal((await handle.final()).state, "success");
});

test("a reply that contradicts itself: of what it does not name nothing is known", async () => {
  sockets.submitted = () => reply(refusal(9, "no"));
  assert.equal((await relayer.relay(tx)).accepted, undefined);
});

test("a reply that is none, or contradicts itself: nothing is known of what was sent", async () => {
  const replies = [
    { failed: "no" }, { failed: [null] }, { failed: [{ reason: "no", code: "no" }] }, { failed: [{ index: 0 }] }, { failed: [{ index: "0", reason: "no" }] },
    { results: "no" }, { results: [null] }, { results: [{ index: 0 }] }, { results: [{ index: 0, hash: 7 }] }, { hashes: 5 }, { hashes: [5] },
    { status: 7 }, { status: "failed", hashes: ["ab"], failed: [{ index: 1, reason: "no" }] },
  ];
  for (const said of replies) {
    sockets.submitted = () => ({ status: "completed", ...said });
    const handle = await relayer.relay(tx);
    assert.deepEqual([handle.accepted, handle.hash], [undefined, hash], JSON.stringify(said));
  }
});

test("a relayer that tells no codes: nonce too low after a lost answer may mean that the first one arrived", async () => {
  for (const reason of ["nonce too low", "invalid nonce"]) {
    let sends = 0;
    sockets.submitted = () => (sends++ ? { status: "failed", failed: [{ index: 0, reason }] } : void sockets.drop());
    assert.equal((await relayer.relay(tx)).accepted, undefined);
  }
});

test("times to wait that are odd end within the patience", async () => {
  for (const waits of [[-1e12, 1e11], ["soon", "soon", "soon", "soon", "soon"]]) {
    sockets.submitted = () => reply(refusal(0, "relayer_busy", { retryAfterMs: waits.shift() }));
    await assert.rejects(relayer.relay(tx), { name: "Refused", code: "relayer_busy" });
  }
});

test("waiting ends with its signal, not the handle", async () => {
  const handle = await relayer.relay(tx);
  const controller = new AbortController();
  const waiting = handle.final({ signal: controller.signal });
  controller.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
  sockets.status(hash);
  assert.equal((await handle.final()).state, "success");
});

test("a transaction sent elsewhere can be followed; a chain API is asked where the relayer knows nothing", async () => {
  const chain = await new FakeHttp().start(() => ({ body: { status: "success", fee: "9" } }));
  relayer = new Relayer(rest.url, sockets.url, { ...PATIENCE, chainApi: chain.url });
  const handle = await relayer.follow(tx);
  await handle.check();
  assert.equal((await handle.final()).state, "success");
  assert.equal(sockets.sent("relay").length, 0);
  assert.equal(chain.requests[0].path, `/transactions/${hash}`);
  await chain.stop();
});

test("the relayer is that of the sender's shard, asked for once a minute at most; without one it is refused", async () => {
  const everywhere = [0, 1, 2].map((shard) => ({ shard, address: `erd1relayer${shard}` }));
  known = { shardRule: "mask", shards: 3, relayers: everywhere };
  const shard = shardOf(SENDER.address, "mask");
  assert.equal((await relayer.relayerOf(SENDER.address)).address, `erd1relayer${shard}`);
  known = { ...known, relayers: [] };
  await relayer.relayerOf(SENDER.address);
  assert.equal(rest.requests.length, 1);
  await assert.rejects(new Relayer(rest.url, sockets.url, PATIENCE).relayerOf(SENDER.address), { code: "no_relayer" });
});

test("numbers beyond 2^53 are sent with all of their digits", async () => {
  await relayer.coSign([{ ...tx, nonce: 2n ** 53n + 1n }]).catch(() => {});
  assert.match(rest.requests[0].body, /"nonce":9007199254740993,/);
});

test("waiting in one request has the time for it", async () => {
  known = { action: "relay", status: "completed" };
  await relayer.relayOnce([tx], { wait: 30 });
  assert.deepEqual(rest.requests[0].query, { wait: "final", timeout: "30" });
});
