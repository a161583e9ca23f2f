import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { Millrace } from "@millrace/client";
import { Ed25519Signer } from "@millrace/client/ed25519";
import { FakeHttp, FakeSockets, PATIENCE, RELAYER, SENDER, readVectors } from "./support.mjs";

const CONTRACT = readVectors("clients.json").keys[1].address;
const ASKED = { from: "A", to: "B", amountIn: 5n, slippage: "0.01" };
const OFFERED = {
  sender: SENDER.address, receiver: CONTRACT, value: "0", data: "c3dhcA==", gasLimit: 20_000_000, gasPrice: 1_000_000_000,
  chainID: "local", chainId: "local", version: 2,
};

let services;
let answers;
let sockets;
let millrace;
let signer;
beforeEach(async () => {
  signer = await Ed25519Signer.fromSeed(SENDER.seed);
  answers = {
    "/api/v1/quote": { body: { amountOutMin: "4", transaction: OFFERED } },
    "/v1/prepare": { body: { sponsored: true, transaction: prepared() } },
  };
  services = await new FakeHttp().start(({ path }) => answers[path] ?? { status: 404, body: { error: "not found" } });
  sockets = await new FakeSockets().start();
  const options = { aggregator: services.url, relayer: services.url, socket: `${sockets.url}/ws`, ...PATIENCE };
  millrace = new Millrace({ ...options, apiKey: "k" });
});
afterEach(async () => {
  millrace.close();
  await sockets.stop();
  await services.stop();
});

function prepared(changes = {}) {
  const { chainId, ...transaction } = OFFERED;
  return { ...transaction, nonce: 41, gasLimit: 20_050_000, relayer: RELAYER.address, ...changes };
}
const sent = () => sockets.sent("relay")[0].tx;

test("a swap: quote, prepare, sign what was prepared, relay", async () => {
  const { quote, handle } = await millrace.swap({ ...ASKED, signer });
  assert.equal(quote.amountOutMin, "4");
  const [asked, prepare] = services.requests;
  assert.deepEqual(asked.query, { from: "A", to: "B", amountIn: "5", slippage: "0.01", sender: SENDER.address });
  assert.equal(asked.headers.authorization, undefined);
  assert.equal(prepare.headers.authorization, "Bearer k");
  const { sender, receiver, value, data, gasLimit, gasPrice } = OFFERED;
  assert.deepEqual(JSON.parse(prepare.body), { transaction: { sender, receiver, value, data, gasLimit, gasPrice } });
  const { signature, ...unsigned } = sent();
  assert.deepEqual(unsigned, prepared());
  assert.equal((await signer.sign(prepared())).signature, signature);
  sockets.status(handle.hash);
  assert.equal((await handle.final()).state, "success");
});

test("a relayer that prepares another transaction gets no signature", async () => {
  for (const change of [{ receiver: SENDER.address }, { value: "1" }, { data: "" }, { sender: CONTRACT }, { chainID: "1" }]) {
    answers["/v1/prepare"].body.transaction = prepared(change);
    await assert.rejects(millrace.swap({ ...ASKED, signer }), /another transaction/);
  }
  assert.equal(sockets.messages.length, 0);
});

test("what would not be sponsored is refused in the relayer's words, before anybody signs", async () => {
  const why = { reason: "quota exhausted", code: "quota_exhausted", detail: "of this sender", retryAfterMs: 5 };
  answers["/v1/prepare"].body = { sponsored: false, ...why };
  const unsigned = { address: SENDER.address, sign: () => assert.fail("nobody asked for a signature") };
  await assert.rejects(millrace.swap({ ...ASKED, signer: unsigned }), { name: "Refused", code: "quota_exhausted", retryAfterMs: 5 });
});

test("a service of the public interface alone: relayer by shard or by name, nonce as given, gas for the relayer on top", async () => {
  delete answers["/v1/prepare"];
  await millrace.swap({ ...ASKED, signer, nonce: 3, relayer: RELAYER.address });
  assert.deepEqual([sent().nonce, sent().relayer, sent().gasLimit], [3, RELAYER.address, 20_050_000]);
  await assert.rejects(millrace.swap({ ...ASKED, signer, relayer: RELAYER.address }), /nonce is not known/);
});

test("the sender pays where that is wished: no relayer, broadcast", async () => {
  answers["/api/v1/quote"].body.transaction = { ...OFFERED, nonce: 8 };
  await millrace.swap({ ...ASKED, signer, sponsored: false });
  const { tx } = sockets.sent("broadcast")[0];
  assert.deepEqual([tx.nonce, tx.relayer, tx.gasLimit], [8, undefined, 20_000_000]);
});

test("batches of a multi-swap go one after the other, and none after one that failed", async () => {
  const batches = [{ batchIndex: 0, transaction: { ...OFFERED, nonce: 0 } }, { batchIndex: 1, transaction: { ...OFFERED, nonce: 1 } }];
  answers["/api/v1/multi-swap"] = { body: { batches: [...batches, { batchIndex: 2, transaction: OFFERED }] } };
  const seen = [];
  const ends = ["success", "fail"];
  for await (const { batch, handle } of millrace.multiSwap({ inputs: [{ token: "A", amount: 1n }], to: "B", signer })) {
    seen.push(batch.batchIndex);
    sockets.status(handle.hash, ends.shift());
    answers["/v1/prepare"].body.transaction = prepared({ nonce: 42 });
  }
  assert.deepEqual(seen, [0, 1]);
  assert.deepEqual(sockets.sent("relay").map(({ tx }) => tx.nonce), [41, 42]);
});
