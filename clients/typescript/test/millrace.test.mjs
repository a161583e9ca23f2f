import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { Millrace } from "@millrace/client";
import { Ed25519Signer } from "@millrace/client/ed25519";
import { contractAddress, FakeHttp, FakeSockets, PATIENCE, payload, program, RELAYER, SENDER, readVectors } from "./support.mjs";

const KEYS = readVectors("clients.json").keys;
const SOMEBODY = KEYS[1].address;
const CONTRACT = contractAddress(1);
const ASKED = { from: "A", to: "B", amountIn: 5n, slippage: "0.01" };
const OFFERED = {
  sender: SENDER.address, receiver: CONTRACT, value: "0", data: payload(`ESDTTransfer@41@05@${program()}`), gasLimit: 20_000_000, gasPrice: 1_000_000_000,
  chainID: "local", chainId: "local", version: 2,
};

const RELAYERS = [0, 1, 2].map((shard) => ({ shard, address: RELAYER.address }));
const GAS = { minGasPrice: 1_000_000_000, minGasLimit: 50_000, gasPerDataByte: 1_500, extraGasRelayed: 50_000, extraGasGuarded: 50_000 };

let services;
let answers;
let sockets;
let millrace;
let signer;
beforeEach(async () => {
  signer = await Ed25519Signer.fromSeed(SENDER.seed);
  answers = {
    "/api/v1/quote": { body: { from: "A", to: "B", amountIn: "5", amountOut: "1000", amountOutMin: "990", slippage: 0.01, transaction: OFFERED } },
    "/v1/prepare": { body: { sponsored: true, transaction: prepared({ more: 1, guardianSignature: "ab" }) } },
  };
  services = await new FakeHttp().start(({ path }) => answers[path] ?? { status: 404, body: { error: "not found" } });
  sockets = await new FakeSockets().start();
  const options = { aggregator: services.url, relayer: services.url, socket: `${sockets.url}/ws`, contract: CONTRACT, ...PATIENCE };
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
  assert.equal(quote.amountOutMin, "990");
  const [asked, prepare] = services.requests;
  assert.deepEqual(asked.query, { from: "A", to: "B", amountIn: "5", slippage: "0.01", sender: SENDER.address });
  assert.equal(asked.headers.authorization, undefined);
  assert.equal(prepare.headers.authorization, "Bearer k");
  const { sender, receiver, value, data, gasLimit, gasPrice } = OFFERED;
  assert.deepEqual(JSON.parse(prepare.body), { transaction: { sender, receiver, value, data, gasLimit, gasPrice } });
  const { signature, ...unsigned } = sent(); // not what came beside it
  assert.deepEqual(unsigned, prepared());
  assert.equal((await signer.sign(prepared())).signature, signature);
  sockets.status(handle.hash);
  assert.equal((await handle.final()).state, "success");
});

test("a relayer that prepares another transaction gets no signature, and the error names the field", async () => {
  const changes = [
    { receiver: SOMEBODY }, { value: "1" }, { data: "" }, { sender: SOMEBODY }, { chainID: "1" }, { relayer: undefined },
    { relayer: "erd1" }, { relayer: SENDER.address }, { gasPrice: 900_000_000_000 }, { gasPrice: "1000000000x" },
    { gasLimit: 600_000_000 }, { gasLimit: 20_050_001 }, { gasLimit: 19_999_999 }, { options: 2 }, { guardian: SOMEBODY },
    { version: 1 }, { nonce: -1 }, { senderUsername: "YQ==" }, { receiverUsername: "YQ==" },
  ];
  for (const change of changes) {
    answers["/v1/prepare"].body.transaction = prepared(change);
    await assert.rejects(millrace.swap({ ...ASKED, signer }), { name: "Mismatch", field: Object.keys(change)[0] }, JSON.stringify(change));
  }
  answers["/v1/prepare"].body.transaction = prepared();
  await assert.rejects(millrace.swap({ ...ASKED, signer, nonce: 42 }), { name: "Mismatch", field: "nonce" });
  const wish = { ...OFFERED, relayer: SOMEBODY };
  await assert.rejects(millrace.send(wish, { signer }), { name: "Mismatch", service: "relayer", field: "relayer" });
  assert.equal(sockets.messages.length, 0);
});

test("what a transaction leaves open the relayer fills in within bounds: gas price by maxGasPrice, gas by the network's least", async () => {
  const wish = { receiver: SOMEBODY, value: "1", chainID: "local" };
  const made = { ...prepared(), ...wish, data: "" };
  const offer = (changes) => (answers["/v1/prepare"].body.transaction = { ...made, gasLimit: 100_000, ...changes });
  offer({ gasPrice: 10_000_000_001 });
  await assert.rejects(millrace.send(wish, { signer }), { name: "Mismatch", field: "gasPrice" });
  offer({ gasLimit: 100_001 });
  await assert.rejects(millrace.send(wish, { signer }), { name: "Mismatch", field: "gasLimit" });
  offer({ gasPrice: 10_000_000_000 });
  await millrace.send(wish, { signer });
  const frugal = new Millrace({ aggregator: services.url, relayer: services.url, socket: sockets.url, maxGasPrice: 1_000_000_000n });
  await assert.rejects(frugal.send(wish, { signer }), { name: "Mismatch", field: "gasPrice" });
  frugal.close();
});

test("an aggregator that offers another transaction than was asked for gets no signature, and nobody is asked to pay", async () => {
  answers["/api/v1/quote"].body.transaction = { ...OFFERED, value: "1000000000000000000" };
  await assert.rejects(millrace.swap({ ...ASKED, signer }), { name: "Mismatch", field: "transaction.value" });
  assert.deepEqual(services.requests.map(({ path }) => path), ["/api/v1/quote"]);
  const pinned = new Millrace({ aggregator: services.url, relayer: services.url, socket: sockets.url, contract: contractAddress(2) });
  answers["/api/v1/quote"].body.transaction = OFFERED;
  await assert.rejects(pinned.swap({ ...ASKED, signer }), { name: "Mismatch", field: "transaction.receiver" });
  await assert.rejects(millrace.swap({ ...ASKED, signer, amountOutMin: 991n }), { name: "Mismatch", field: "amountOutMin" });
  pinned.close();
  assert.throws(() => new Millrace({ aggregator: "", relayer: "", socket: "", contract: "erd1" }), /address|bech32|characters/i);
});

test("without /v1/prepare the relayer's chain must be the quote's, and the relayer another than the sender", async () => {
  delete answers["/v1/prepare"];
  const relayers = [0, 1, 2].map((shard) => ({ shard, address: SENDER.address }));
  const body = { chainId: "1", shardRule: "mask", shards: 3, relayers, gas: GAS };
  answers["/v1/relayers"] = { body };
  await assert.rejects(millrace.swap({ ...ASKED, signer, nonce: 3 }), { name: "Mismatch", field: "chainID" });
  answers["/v1/relayers"] = { body: { ...body, chainId: "local" } };
  const fresh = new Millrace({ aggregator: services.url, relayer: services.url, socket: sockets.url, contract: CONTRACT });
  await assert.rejects(fresh.swap({ ...ASKED, signer, nonce: 3 }), { name: "Mismatch", field: "relayer" });
  fresh.close();
});

test("what would not be sponsored is refused in the relayer's words, before anybody signs", async () => {
  const why = { reason: "quota exhausted", code: "quota_exhausted", detail: "of this sender", retryAfterMs: 5 };
  answers["/v1/prepare"].body = { sponsored: false, ...why };
  const unsigned = { address: SENDER.address, sign: () => assert.fail("nobody asked for a signature") };
  await assert.rejects(millrace.swap({ ...ASKED, signer: unsigned }), { name: "Refused", code: "quota_exhausted", retryAfterMs: 5 });
});

test("a service of the public interface alone: relayer by shard, nonce as given, gas for the relayer on top", async () => {
  delete answers["/v1/prepare"];
  answers["/v1/relayers"] = { body: { chainId: "local", shardRule: "mask", shards: 3, relayers: RELAYERS, gas: GAS } };
  await millrace.swap({ ...ASKED, signer, nonce: 3 });
  assert.deepEqual([sent().nonce, sent().relayer, sent().gasLimit], [3, RELAYER.address, 20_050_000]);
  await assert.rejects(millrace.swap({ ...ASKED, signer }), /nonce is not known/);
});

test("the sender pays where that is wished: no relayer, broadcast", async () => {
  answers["/api/v1/quote"].body.transaction = { ...OFFERED, nonce: 8 };
  await millrace.swap({ ...ASKED, signer, sponsored: false });
  const { tx } = sockets.sent("broadcast")[0];
  assert.deepEqual([tx.nonce, tx.relayer, tx.gasLimit], [8, undefined, 20_000_000]);
});

test("a guardian's wallet makes it a guarded transaction, with its gas, and signs it, too; another's is refused", async () => {
  const guardian = await Ed25519Signer.fromSeed(KEYS[2].seed);
  const told = prepared({ options: 2, guardian: guardian.address, gasLimit: 20_100_000 });
  answers["/v1/prepare"].body.transaction = told;
  await millrace.swap({ ...ASKED, signer, guardian });
  const { transaction } = JSON.parse(services.requests[1].body);
  assert.deepEqual([transaction.options, transaction.guardian, transaction.gasLimit], [2, guardian.address, 20_050_000]);
  const { signature, guardianSignature, ...unsigned } = sent();
  assert.deepEqual(unsigned, told);
  assert.equal(guardianSignature, (await guardian.sign(told)).signature);
  assert.notEqual(guardianSignature, signature);
  answers["/v1/prepare"].body.transaction = prepared({ options: 2, guardian: SOMEBODY, gasLimit: 20_100_000 });
  await assert.rejects(millrace.swap({ ...ASKED, signer, guardian }), { name: "Mismatch", service: "relayer", field: "guardian" });
  await assert.rejects(millrace.send({ ...OFFERED, guardian: SOMEBODY, options: 2 }, { signer, guardian }), { name: "WalletError" });
  assert.equal(sockets.sent("relay").length, 1);
});

test("a quote that was shown is the one that is signed, and is compared as one that comes", async () => {
  const quote = await millrace.quote({ ...ASKED, sender: SENDER.address });
  await millrace.swap({ ...ASKED, signer, quote });
  assert.equal(services.requests.filter(({ path }) => path === "/api/v1/quote").length, 1);
  await assert.rejects(millrace.swap({ ...ASKED, amountIn: 6n, signer, quote }), { name: "Mismatch", field: "amountIn" });
});

test("an aggregator's answer is compared as it comes: quote, stream and multi-swap", async () => {
  const asked = { ...ASKED, sender: SENDER.address };
  answers["/api/v1/quote"].body.transaction = { ...OFFERED, receiver: SOMEBODY };
  await assert.rejects(millrace.aggregator.quote(asked), { name: "Mismatch", field: "transaction.receiver" });
  answers["/api/v1/quote/stream"] = { headers: { "Content-Type": "text/event-stream" }, body: `event: quote\ndata: ${JSON.stringify(answers["/api/v1/quote"].body)}\n\n` };
  await assert.rejects(millrace.aggregator.stream(asked).next(), { name: "Mismatch", field: "transaction.receiver" });
  answers["/api/v1/quote"].body.transaction = OFFERED;
  await assert.rejects(millrace.aggregator.quote({ ...asked, amountOutMin: 991n }), { name: "Mismatch", field: "amountOutMin" });
  answers["/api/v1/multi-swap"] = { body: { to: "C", slippage: 0.01, batches: [] } };
  await assert.rejects(millrace.aggregator.multiSwap({ inputs: [], to: "B", sender: SENDER.address }), { name: "Mismatch", field: "to" });
});

test("all batches at once: nonces follow each other, each with the gas for its relayer", async () => {
  const made = ["41", "43"].map((token, batchIndex) => {
    const data = payload(`MultiESDTNFTTransfer@${"00".repeat(31)}01@01@${token}@@01@${program()}`);
    const inputs = [{ token: Buffer.from(token, "hex").toString(), amount: "1" }];
    return { batchIndex, inputs, amountOut: "1000", amountOutMin: "990", transaction: { ...OFFERED, receiver: SENDER.address, data, nonce: batchIndex } };
  });
  answers["/api/v1/multi-swap"] = { body: { to: "B", slippage: 0.01, batches: made } };
  answers["/v1/relayers"] = { body: { chainId: "local", shardRule: "mask", shards: 3, relayers: RELAYERS, gas: GAS } };
  answers["/v1/prepare"].body.transaction = prepared({ receiver: SENDER.address, data: made[0].transaction.data });
  const inputs = ["A", "C"].map((token) => ({ token, amount: 1n }));
  const { submitted } = await millrace.swapAll({ inputs, to: "B", signer });
  assert.equal(submitted.length, 2);
  const [{ txs }] = sockets.sent("relay");
  assert.deepEqual(txs.map(({ nonce, gasLimit, relayer }) => [nonce, gasLimit, relayer]), [[41, 20_050_000, RELAYER.address], [42, 20_050_000, RELAYER.address]]);
  answers["/v1/relayers"].body.gas = { ...GAS, extraGasRelayed: 10 ** 9 };
  const fresh = new Millrace({ aggregator: services.url, relayer: services.url, socket: sockets.url, contract: CONTRACT });
  await assert.rejects(fresh.swapAll({ inputs, to: "B", signer }), { name: "Mismatch", field: "gasLimit" });
  fresh.close();
  assert.deepEqual(await millrace.relayer.prepareAll([]), []);
});

test("batches of a multi-swap go one after the other, and none after one that failed", async () => {
  const batches = ["41", "43", "44"].map((token, batchIndex) => {
    const data = payload(`MultiESDTNFTTransfer@${"00".repeat(31)}01@01@${token}@@01@${program()}`);
    const inputs = [{ token: Buffer.from(token, "hex").toString(), amount: "1" }];
    return { batchIndex, inputs, amountOut: "1000", amountOutMin: "990", transaction: { ...OFFERED, receiver: SENDER.address, data, nonce: batchIndex } };
  });
  answers["/api/v1/multi-swap"] = { body: { to: "B", slippage: 0.01, batches } };
  const prepare = (batch, nonce) => {
    const { receiver, data } = batches[batch].transaction;
    answers["/v1/prepare"].body.transaction = prepared({ receiver, data, nonce });
  };
  prepare(0, 41);
  const inputs = ["A", "C", "D"].map((token) => ({ token, amount: 1n }));
  const seen = [];
  const ends = ["success", "fail"];
  for await (const { batch, handle } of millrace.swapEach({ inputs, to: "B", signer })) {
    seen.push(batch.batchIndex);
    sockets.status(handle.hash, ends.shift());
    prepare(1, 42);
  }
  assert.deepEqual(seen, [0, 1]);
  assert.deepEqual(sockets.sent("relay").map(({ tx }) => tx.nonce), [41, 42]);
});
