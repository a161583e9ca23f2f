import assert from "node:assert/strict";
import { test } from "node:test";
import { checkMultiSwap, checkQuote, CONTRACTS } from "@millrace/client";
import { contractAddress, payload, program, RELAYER, SENDER } from "./support.mjs";

const CONTRACT = contractAddress(1);
const TRUST = { contract: CONTRACT };
const HEX = `${"00".repeat(31)}01`;
const ASKED = { from: "A", to: "B", amountIn: 5n, slippage: "0.01" };
const tx = (call, changes = {}) => ({
  sender: SENDER.address, receiver: CONTRACT, value: "0", data: payload(call), gasLimit: 20_000_000, gasPrice: 1_000_000_000,
  chainID: "1", chainId: "1", version: 2, ...changes,
});
const token = (changes, arguments_) => tx(`ESDTTransfer@41@05@${program(arguments_)}`, changes);
const native = (changes, call = program().replace("786f", "xo")) => tx(call, { value: "5", ...changes });
const quote = (changes = {}) => ({
  from: "A", to: "B", amountIn: "5", amountOut: "1000", amountOutMin: "990", slippage: 0.01, transaction: token(), ...changes,
});
const check = (changes, asked = {}, trust = TRUST) => checkQuote({ ...ASKED, ...asked }, quote(changes), SENDER.address, trust);
const refuses = (field, ...given) => assert.throws(() => check(...given), { name: "Mismatch", field }, field);

test("a quote's transaction is what was asked for: tokens by ESDTTransfer, EGLD by value; unknown fields go no further", () => {
  const { sender, chainId, ...fields } = token();
  assert.deepEqual(check({ transaction: token({ options: 1, guardian: RELAYER.address, relayer: RELAYER.address }) }), fields);
  assert.equal(check({ from: "EGLD", transaction: native() }, { from: "EGLD" }).value, "5");
  assert.equal(check({ to: "EGLD", transaction: token({}, { out: "fe" }) }, { to: "EGLD" }).nonce, undefined);
});

test("value, payment and call of another kind are refused by name", () => {
  refuses("transaction.value", { transaction: token({ value: "1000000000000000000" }) });
  refuses("transaction.value", { from: "EGLD", transaction: native({ value: "6" }) }, { from: "EGLD" });
  refuses("transaction.value", { transaction: token({ value: "-1" }) });
  refuses("transaction.data", { transaction: tx(`ESDTTransfer@43@05@${program()}`) });
  refuses("transaction.data", { transaction: tx(`ESDTTransfer@41@06@${program()}`) });
  refuses("transaction.value", { transaction: native() });
  refuses("transaction.value", { from: "EGLD", transaction: token() }, { from: "EGLD" });
  refuses("transaction.data", { transaction: tx(`ESDTTransfer@4@05@${program()}`) });
  refuses("transaction.data", { transaction: token({ data: "?" }) });
  refuses("transaction.data", { transaction: tx("ESDTTransfer@41@05") });
  refuses("transaction.data", { from: "EGLD", transaction: native({}, `ChangeOwnerAddress@${HEX}`) }, { from: "EGLD" });
  const two = `MultiESDTNFTTransfer@${HEX}@02@41@@05@43@@05@${program()}`;
  refuses("transaction.data", { transaction: tx(two, { receiver: SENDER.address }) });
});

test("sender, receiver, contract, chain, gas and price are looked at", () => {
  refuses("transaction.sender", { transaction: token({ sender: RELAYER.address }) });
  refuses("transaction.receiver", { transaction: token({ receiver: RELAYER.address }) });
  refuses("transaction.receiver", { transaction: token({ receiver: "erd1" }) });
  refuses("transaction.receiver", {}, {}, { contract: contractAddress(2) });
  assert.ok(check({}, {}, { contract: "any" }));
  refuses("transaction.chainId", { transaction: token({ chainId: "D" }) });
  refuses("transaction.gasLimit", { transaction: token({ gasLimit: 600_000_001 }) });
  refuses("transaction.gasPrice", { transaction: token({ gasPrice: 900_000_000_000 }) });
  refuses("transaction.gasPrice", {}, { gasPrice: 1_000_000_001 });
  assert.ok(check({ transaction: token({ gasPrice: 900_000_000_000 }) }, { gasPrice: 900_000_000_000 }));
});

test("without a contract that was named it is the one of the transaction's chain, and none of a chain that is not known", () => {
  refuses("transaction.receiver", {}, {}, {});
  for (const [chainID, receiver] of Object.entries(CONTRACTS)) {
    const transaction = token({ receiver, chainID, chainId: chainID });
    assert.equal(check({ transaction }, {}, {}).receiver, receiver);
    refuses("transaction.receiver", { transaction: { ...transaction, chainID: "T", chainId: "T" } }, {}, {});
  }
  refuses("transaction.receiver", { transaction: token({ receiver: CONTRACTS[1], chainID: "D", chainId: "D" }) }, {}, {});
  refuses("transaction.receiver", { transaction: token({ chainID: "toString", chainId: "toString" }) }, {}, {});
});

test("tokens, input and least output are as asked, in the answer and in the call, to the last unit", () => {
  refuses("from", { from: "C" });
  refuses("to", { to: "C" });
  refuses("amountIn", { amountIn: "6" });
  refuses("amountIn", {}, { amountIn: 6n });
  assert.ok(check({ to: "A", transaction: token({}, { out: "00" }) }, { to: "A", amountIn: 6n })); // what no cycle sells stays
  refuses("amountIn", { to: "A", transaction: token({}, { out: "00" }) }, { to: "A", amountIn: 4n });
  refuses("amountOutMin", { amountOutMin: "989" });
  refuses("transaction.data, least output", { transaction: token({}, { least: 989 }) });
  refuses("transaction.data, output token", { transaction: token({}, { out: "00" }) });
  refuses("transaction.data, output token", { transaction: token({}, { out: "05" }) });
  refuses("transaction.data, referralId", { transaction: token({}, { referral: "07" }) });
  assert.ok(check({ transaction: token({}, { referral: "07" }) }, { referralId: 7 }));
  const large = { amountOut: "1000000000000000000001", amountOutMin: "999999999999999999001" };
  refuses("transaction.data, least output", large, { slippage: "0.000000000000000001" }); // beyond a double's digits
  refuses("amountOutMin", { amountOut: "1000000000000000000001" }, { slippage: "0.000000000000000001" });
});

test("a slippage that nobody named is the service's own, at most 5 %", () => {
  assert.ok(check({ slippage: 0.02 }, { slippage: undefined }));
  refuses("slippage", { slippage: 0.5 }, { slippage: undefined });
  refuses("slippage", { slippage: "x" }, { slippage: undefined });
});

test("a reverse quote pays what was asked for, and sells no more than the caller allows", () => {
  const reverse = { amountIn: undefined, amountOut: 1000n };
  assert.ok(check({}, { ...reverse, amountInMax: 5n }));
  refuses("amountIn", {}, { ...reverse, amountInMax: 4n });
  refuses("amountOut", { amountOut: "999" }, { ...reverse, amountInMax: 5n });
  refuses("amountInMax", {}, reverse);
});

const batch = (payments, changes) => {
  const inputs = payments.map((payment) => {
    const [token, , amount] = payment.split("@");
    return { token: Buffer.from(token, "hex").toString(), amount: String(Number(`0x${amount}`)) };
  });
  const call = `MultiESDTNFTTransfer@${HEX}@0${payments.length}@${payments.join("@")}@${program()}`;
  return { inputs, amountOut: "1000", amountOutMin: "990", transaction: tx(call, { receiver: SENDER.address, ...changes }) };
};
const EGLD = `${Buffer.from("EGLD-000000").toString("hex")}@@07`;
const many = (batches, trust = TRUST, more = {}, asked = {}) => {
  const inputs = [{ token: "A", amount: "5" }, { token: "EGLD", amount: 7n }, { token: "A", amount: "9" }];
  return checkMultiSwap({ inputs, to: "B", slippage: 0.01, ...asked }, { to: "B", slippage: 0.01, batches, ...more }, SENDER.address, trust);
};

test("batches of a multi-swap pay each input once, and go to oneself for a contract", () => {
  assert.equal(many([batch(["41@@05", EGLD])]).length, 1);
  assert.equal(many([batch(["41@@05"]), batch([EGLD])], { contract: CONTRACT }).length, 2);
  const refusesMany = (field, ...given) => assert.throws(() => many(...given), { name: "Mismatch", field }, field);
  refusesMany("inputs, A", [batch(["41@@06"])]);
  refusesMany("inputs, A", [batch(["41@@05"]), batch(["41@@05"])]);
  refusesMany("inputs, C", [batch(["43@@05"])]);
  refusesMany("transaction.data", [batch(["41@01@05"])]);
  refusesMany("transaction.data", [batch(["41@@05"], { receiver: CONTRACT })]);
  refusesMany("transaction.value", [batch(["41@@05"], { value: "1" })]);
  refusesMany("transaction.receiver", [batch(["41@@05"])], { contract: contractAddress(2) });
  refusesMany("amountOutMin", [{ ...batch(["41@@05"]), amountOutMin: "1" }]);
  refusesMany("to", [], {}, { to: "C" });
  refusesMany("transaction.receiver", [batch(["41@@05"])], {});
  const dear = [batch(["41@@05"], { gasPrice: 20_000_000_000 })];
  refusesMany("transaction.gasPrice", dear);
  assert.equal(many(dear, TRUST, {}, { gasPrice: 20_000_000_000 }).length, 1);
  refusesMany("transaction.gasPrice", [batch(["41@@05"])], TRUST, {}, { gasPrice: 20_000_000_000 });
});
