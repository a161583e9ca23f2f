// Services of others that speak the public interface: other paths and forms, null, pages, no acknowledgements.
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { Millrace, Relayer } from "@millrace/client";
import { Ed25519Signer } from "@millrace/client/ed25519";
import { contractAddress, FakeHttp, FakeSockets, PATIENCE, payload, program, RELAYER, SENDER } from "./support.mjs";

const CONTRACT = contractAddress(1);
const CHAIN_HASH = "ab".repeat(32);
const TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const ASKED = { from: "A", to: "B", amountIn: 5n, slippage: "0.01", amountOutMin: 990n, gasLimit: 20_000_000 };
const RELAYERS = { chainId: "local", relayers: [0, 1, 2].map((shard) => ({ shard, address: RELAYER.address })) };
const PAGE = { status: 404, headers: { "Content-Type": "text/html" }, body: "<html><h1>404 Not Found</h1></html>" };

let services;
let answers;
let sockets;
let signer;
let millrace;
const client = (more = {}) => new Millrace({
  aggregator: `${services.url}/gw/agg/`, relayer: `${services.url}/gw/relayer`, socket: `${sockets.url}/stream/ws/`,
  contract: CONTRACT, chainApi: `${services.url}/gw/chain/`, relayers: RELAYERS, ...PATIENCE, ...more,
});
beforeEach(async () => {
  signer = await Ed25519Signer.fromSeed(SENDER.seed);
  const quote = { txData: payload(`ESDTTransfer@41@05@${program()}`), amountOutMin: "990", priceImpact: "0.01", poolFees: null, fee: { bps: 1 } };
  answers = {
    "/gw/agg/api/v1/quote": { body: quote },
    [`/gw/chain/accounts/${SENDER.address}`]: { body: { nonce: 7, balance: "0" } },
  };
  services = await new FakeHttp().start(({ path }) => answers[path] ?? PAGE);
  sockets = await new FakeSockets().start();
  sockets.control = () => undefined;
  sockets.submitted = () => ({ status: "ok", hashes: [CHAIN_HASH], failed: null });
  millrace = client();
});
afterEach(async () => {
  millrace.close();
  await sockets.stop();
  await services.stop();
});
const swap = (more = {}) => millrace.swap({ ...ASKED, signer, ...more });

test("txData is enough: contract, chain, relayer, nonce and gas come from the caller, and the chain tells how it ended", async () => {
  answers[`/gw/chain/transactions/${CHAIN_HASH}`] = { body: { status: "success" } };
  const { handle } = await swap();
  assert.equal(sockets.live.path, "/stream/ws");
  sockets.drop(); // what was told meanwhile is asked for: of the chain, by the hash that the reply named
  assert.equal((await handle.final()).state, "success");
  const [{ tx }] = sockets.sent("relay");
  assert.deepEqual(
    [tx.receiver, tx.value, tx.relayer, tx.nonce, tx.gasLimit, tx.chainID],
    [CONTRACT, "0", RELAYER.address, 7, 20_050_000, "local"],
  );
});

test("EGLD is the value of the transaction, and its payload the call alone", async () => {
  answers["/gw/agg/api/v1/quote"].body = { txData: payload(program().replace("786f", "xo")), amountOutMin: "990", estimatedGasLimit: 7_000_000 };
  await swap({ from: "EGLD", gasLimit: undefined });
  const [{ tx }] = sockets.sent("relay");
  assert.deepEqual([tx.value, tx.gasLimit], ["5", 7_050_000]);
});

test("nothing is signed on its word alone: what is enough, the gas and the chain have to be named, the payload compared", async () => {
  await assert.rejects(swap({ amountOutMin: undefined }), { name: "Mismatch", field: "amountOut" });
  await assert.rejects(swap({ amountOutMin: 991n }), { name: "Mismatch", field: "amountOutMin" });
  await assert.rejects(swap({ gasLimit: undefined }), /name the gasLimit/);
  await assert.rejects(swap({ amountIn: 6n }), { name: "Mismatch", field: "transaction.data" });
  millrace.close();
  millrace = client({ relayers: undefined });
  await assert.rejects(swap(), { name: "Refused", status: 404 });
  assert.deepEqual(sockets.sent("relay"), []);
});

test("a submission that failed as a whole is refused, with its reason or without", async () => {
  sockets.submitted = () => ({ status: "failed", failed: [], reason: "no" });
  await assert.rejects(swap(), { name: "Refused", reason: "no" });
  sockets.submitted = () => ({ status: "failed", hashes: null });
  await assert.rejects(swap(), { name: "Refused", reason: "refused" });
});

test("a word of the chain that is not known is no end", async () => {
  answers[`/gw/chain/transactions/${CHAIN_HASH}`] = { body: { status: "executing" } };
  const { handle } = await swap();
  await handle.check();
  assert.equal(handle.last.state, "pending");
  answers[`/gw/chain/transactions/${CHAIN_HASH}`].body.status = "invalid";
  await handle.check();
  assert.equal(handle.last.state, "fail");
});

test("errors that are no text, and pages, are refusals with their status", async () => {
  const path = "/gw/agg/api/v1/pair-config";
  answers[path] = { status: 400, body: { error: { message: "no" } } };
  await assert.rejects(millrace.aggregator.pairConfig("A", "B"), { name: "Refused", reason: "HTTP 400", status: 400 });
  delete answers[path];
  await assert.rejects(millrace.aggregator.pairConfig("A", "B"), { name: "Refused", reason: "HTTP 404", status: 404 });
});

test("a date to come again at counts from the service's own clock", async () => {
  const [then, later] = ["Sat, 01 Jan 2000 00:00:00 GMT", "Sat, 01 Jan 2000 01:00:00 GMT"];
  for (const [headers, retryAfterMs] of [[{ Date: then, "Retry-After": later }, 3_600_000], [{ Date: later, "Retry-After": then }, 0]]) {
    answers["/gw/agg/api/v1/config"] = { status: 503, headers, body: "<html>" };
    await assert.rejects(client({ attempts: 1 }).aggregator.config(), { name: "Refused", status: 503, retryAfterMs });
  }
});

test("a trace goes along: as a header of questions, and as a field of what is submitted; the chain gets none", async () => {
  millrace.close();
  millrace = client({ traceparent: () => TRACE });
  await swap();
  const traces = Object.fromEntries(services.requests.map(({ path, headers }) => [path, headers.traceparent]));
  assert.equal(traces["/gw/agg/api/v1/quote"], TRACE);
  assert.equal(traces["/gw/relayer/v1/prepare"], TRACE);
  assert.equal(traces[`/gw/chain/accounts/${SENDER.address}`], undefined);
  assert.equal(sockets.sent("relay")[0].traceparent, TRACE);
  const untraced = new Relayer(services.url, sockets.url, { ...PATIENCE, attempts: 1, traceparent: () => undefined });
  await assert.rejects(untraced.relayers(), { status: 404 });
  assert.equal(services.requests.at(-1).headers.traceparent, undefined);
});

test("a wallet that refuses, late or at once: its own error arrives, and nothing was sent", async () => {
  const refusing = { address: SENDER.address, sign: async () => Promise.reject(new Error("rejected on the device")) };
  await assert.rejects(swap({ signer: refusing }), /rejected on the device/);
  await assert.rejects(swap({ signer: { ...refusing, sign: async (transaction) => transaction } }), { name: "WalletError" });
  assert.deepEqual(sockets.sent("relay"), []);
});
