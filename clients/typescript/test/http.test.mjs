import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { Aggregator, Relayer } from "@millrace/client";
import { FakeHttp, PATIENCE } from "./support.mjs";

let service;
let answers;
beforeEach(async () => {
  answers = [];
  service = await new FakeHttp().start(() => answers.shift() ?? { body: { ok: true } });
});
afterEach(() => service.stop());

const aggregator = (options = {}) => new Aggregator(service.url, { ...PATIENCE, ...options });
const refusal = (status, error, headers) => ({ status, headers, body: { error } });

test("parameters travel by their wire names; amounts as digits, fractions in plain decimals, what is undefined not at all", async () => {
  const client = aggregator();
  await client.quote({ from: "A", to: "B", amountIn: 10n ** 30n, slippage: 0.0000001, includePaths: false, sender: undefined });
  await client.quote({ from: "A", to: "B", amountOut: "7", slippage: "0.010" });
  await client.ladder({ from: "A", to: "B", amounts: [1n, "2"] });
  await client.pairConfig("A", "B & C");
  await client.tokens({ search: "usd", limit: 1 });
  await client.pools({ exchange: "JEX" });
  await client.prices(["A", "B"]);
  await client.config();
  assert.deepEqual(service.requests.map(({ path, query }) => [path, query]), [
    ["/api/v1/quote", { from: "A", to: "B", amountIn: "1" + "0".repeat(30), slippage: "0.0000001", includePaths: "false" }],
    ["/api/v1/quote", { from: "A", to: "B", amountOut: "7", slippage: "0.010" }],
    ["/api/v1/price-ladder", { from: "A", to: "B", amounts: "1,2" }],
    ["/api/v1/pair-config", { from: "A", to: "B & C" }],
    ["/api/v1/tokens", { search: "usd", limit: "1" }],
    ["/api/v1/pools", { exchange: "JEX" }],
    ["/api/v1/prices", { tokens: "A,B" }],
    ["/api/v1/config", {}],
  ]);
});

test("many inputs travel as JSON with the service's own names", async () => {
  answers = [{ body: { to: "B", slippage: 0.01, batches: [] } }];
  const limits = { maxSplits: 3, maxPools: 7, maxAgeMs: 9000, gasPrice: 2_000_000_000 };
  const asked = { inputs: [{ token: "A", amount: 5n }], to: "B", slippage: "0.01", maxPriceImpact: 0.05, ...limits };
  await aggregator().multiSwap({ ...asked, dustMode: false, sender: "erd1x" });
  const [{ path, method, body, headers }] = service.requests;
  assert.deepEqual([path, method, headers["content-type"]], ["/api/v1/multi-swap", "POST", "application/json"]);
  assert.deepEqual(JSON.parse(body), {
    inputs: [{ token: "A", amount: "5" }], to: "B", slippage: 0.01, maxPriceImpact: "0.05", ...limits, dust_mode: false, sender: "erd1x",
  });
});

test("an amount that is a number, a fraction or negative is refused before it is sent", async () => {
  for (const amountIn of [5, 1.5, "1.5", "-1", ""]) {
    await assert.rejects(aggregator().quote({ from: "A", to: "B", amountIn }), RangeError);
  }
  assert.equal(service.requests.length, 0);
});

test("a body without end is given up", async () => {
  const megabyte = new Uint8Array(1 << 20);
  let given = 0;
  const pull = (controller) => (given++, controller.enqueue(megabyte));
  const client = aggregator({ fetch: async () => new Response(new ReadableStream({ pull }, { highWaterMark: 0 })) });
  await assert.rejects(client.config(), { name: "ClientError", message: /more than 67108864 bytes/ });
  assert.equal(given, 65);
});

test("a refusal is an exception with reason, code and status, and is not asked again", async () => {
  answers = [refusal(400, "unknown token_in 'X'"), refusal(400, "routing failed: no path between tokens")];
  const asked = { from: "X", to: "B", amountIn: 1n };
  await assert.rejects(aggregator().quote(asked), { name: "Refused", reason: "unknown token_in 'X'", code: "unknown_token_in", status: 400 });
  await assert.rejects(aggregator().quote(asked), { reason: "routing failed: no path between tokens", code: "routing_failed" });
  assert.equal(service.requests.length, 2);
});

test("a relayer's refusal has its reason and detail apart", async () => {
  answers = [refusal(400, "invalid relayer address: shard mismatch: use erd1y")];
  await assert.rejects(new Relayer(service.url, "ws://127.0.0.1:1", PATIENCE).prepare({ sender: "a", receiver: "b" }), {
    reason: "invalid relayer address", code: "invalid_relayer_address", detail: "shard mismatch: use erd1y",
  });
});

test("429 and 503 are waited for as told, then the answer comes", async () => {
  answers = [refusal(429, "rate limit exceeded", { "Retry-After": "0" }), refusal(503, "service unavailable", { "Retry-After": "0" })];
  assert.deepEqual(await aggregator().config(), { ok: true });
  assert.equal(service.requests.length, 3);
});

test("a wait beyond the patience is not begun: the exception says how long it would be", async () => {
  answers = [refusal(503, "service unavailable", { "Retry-After": "3600" })];
  await assert.rejects(aggregator().config(), { name: "Refused", code: "service_unavailable", retryAfterMs: 3_600_000 });
  assert.equal(service.requests.length, 1);
});

test("tries are counted", async () => {
  answers = Array(9).fill(refusal(429, "rate limit exceeded", { "Retry-After": "0" }));
  await assert.rejects(aggregator({ attempts: 3 }).config(), { code: "rate_limit_exceeded" });
  assert.equal(service.requests.length, 3);
});

test("a service that is not there is Unreachable, after as many tries", async () => {
  const { url } = service;
  await service.stop();
  await assert.rejects(new Aggregator(url, { attempts: 2 }).config(), { name: "Unreachable" });
  service = await new FakeHttp().start(() => ({}));
});

test("an answer that hangs is Unreachable after its time", async () => {
  const hung = await new FakeHttp().start(() => undefined);
  await assert.rejects(new Aggregator(hung.url, { attempts: 1, timeoutMs: 50 }).config(), { name: "Unreachable" });
  await hung.stop();
});

test("a signal ends a request and its waiting with its own reason", async () => {
  answers = [refusal(503, "service unavailable", { "Retry-After": "4" })];
  const reason = new Error("enough");
  const controller = new AbortController();
  const asked = aggregator().config({ signal: controller.signal });
  controller.abort(reason);
  await assert.rejects(asked, reason);
});

test("a page in the place of an answer is an exception that says so", async () => {
  answers = [{ body: "<html>" }, { status: 502, body: "<html>" }];
  await assert.rejects(aggregator().config(), { code: "no_json" });
  await assert.rejects(aggregator().config(), { reason: "HTTP 502", status: 502 });
});

test("health is an answer while the service is not ready", async () => {
  answers = [{ status: 503, body: { status: "starting" } }];
  assert.deepEqual(await aggregator().health(), { status: "starting" });
});

test("an API key goes to the relayer in its header", async () => {
  await new Relayer(service.url, "ws://127.0.0.1:1", { ...PATIENCE, apiKey: "k" }).ready();
  assert.equal(service.requests[0].headers.authorization, "Bearer k");
});
