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
  refuses("value", { transaction: token({ value: "1000000000000000000" }) });
  refuses("value", { from: "EGLD", transaction: native({ value: "6" }) }, { from: "EGLD" });
  refuses("value", { transaction: token({ value: "-1" }) });
  refuses("token in transaction.data", { transaction: tx(`ESDTTransfer@43@05@${program()}`) });
  refuses("amount in transaction.data", { transaction: tx(`ESDTTransfer@41@06@${program()}`) });
  refuses("token in value", { transaction: native() });
  refuses("token in transaction.data", { from: "EGLD", transaction: token() }, { from: "EGLD" });
  refuses("transaction.data", { transaction: tx(`ESDTTransfer@4@05@${program()}`) });
  refuses("transaction.data", { transaction: token({ data: "?" }) });
  refuses("function in transaction.data", { transaction: tx("ESDTTransfer@41@05") });
  refuses("function in transaction.data", { from: "EGLD", transaction: native({}, `ChangeOwnerAddress@${HEX}`) }, { from: "EGLD" });
  const two = `MultiESDTNFTTransfer@${HEX}@02@41@@05@43@@05@${program()}`;
  refuses("transaction.data", { transaction: tx(two, { receiver: SENDER.address }) });
});

test("sender, receiver, contract, chain, gas and price are looked at", () => {
  refuses("sender", { transaction: token({ sender: RELAYER.address }) });
  refuses("receiver", { transaction: token({ receiver: RELAYER.address }) });
  refuses("receiver", { transaction: token({ receiver: "erd1" }) });
  refuses("contract", {}, {}, { contract: contractAddress(2) });
  assert.ok(check({}, {}, { contract: "any" }));
  refuses("chainId", { transaction: token({ chainId: "D" }) });
  refuses("gasLimit", { transaction: token({ gasLimit: 600_000_001 }) });
  refuses("gasPrice", { transaction: token({ gasPrice: 900_000_000_000 }) });
  refuses("gasPrice", {}, { gasPrice: 1_000_000_001 });
  assert.ok(check({ transaction: token({ gasPrice: 900_000_000_000 }) }, { gasPrice: 900_000_000_000 }));
});

test("without a contract that was named it is the one of the transaction's chain, and none of a chain that is not known", () => {
  refuses("contract", {}, {}, {});
  for (const [chainID, receiver] of Object.entries(CONTRACTS)) {
    const transaction = token({ receiver, chainID, chainId: chainID });
    assert.equal(check({ transaction }, {}, {}).receiver, receiver);
    refuses("contract", { transaction: { ...transaction, chainID: "T", chainId: "T" } }, {}, {});
  }
  refuses("contract", { transaction: token({ receiver: CONTRACTS[1], chainID: "D", chainId: "D" }) }, {}, {});
  refuses("contract", { transaction: token({ chainID: "toString", chainId: "toString" }) }, {}, {});
});

test("tokens, input and least output are as asked, in the answer and in the call, to the last unit", () => {
  refuses("from", { from: "C" });
  refuses("to", { to: "C" });
  refuses("amountIn", { amountIn: "6" });
  refuses("amountOutMin", { amountOutMin: "989" });
  refuses("amountOutMin in transaction.data", { transaction: token({}, { least: 989 }) });
  refuses("output in transaction.data", { transaction: token({}, { out: "00" }) });
  refuses("output in transaction.data", { transaction: token({}, { out: "05" }) });
  refuses("referralId in transaction.data", { transaction: token({}, { referral: "07" }) });
  assert.ok(check({ transaction: token({}, { referral: "07" }) }, { referralId: 7 }));
  const large = { amountOut: "1000000000000000000001", amountOutMin: "999999999999999999001" };
  refuses("amountOutMin in transaction.data", large, { slippage: "0.000000000000000001" }); // beyond a double's digits
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
  const call = `MultiESDTNFTTransfer@${HEX}@0${payments.length}@${payments.join("@")}@${program()}`;
  return { amountOut: "1000", amountOutMin: "990", transaction: tx(call, { receiver: SENDER.address, ...changes }) };
};
const EGLD = `${Buffer.from("EGLD-000000").toString("hex")}@@07`;
const many = (batches, trust = TRUST, more = {}) => {
  const inputs = [{ token: "A", amount: "5" }, { token: "EGLD", amount: 7n }, { token: "A", amount: "9" }];
  return checkMultiSwap({ inputs, to: "B", slippage: 0.01 }, { to: "B", slippage: 0.01, batches, ...more }, SENDER.address, trust);
};

test("batches of a multi-swap pay each input once, and go to oneself for a contract", () => {
  assert.equal(many([batch(["41@@05", EGLD])]).length, 1);
  assert.equal(many([batch(["41@@05"]), batch([EGLD])], { contract: CONTRACT }).length, 2);
  const refusesMany = (field, ...given) => assert.throws(() => many(...given), { name: "Mismatch", field }, field);
  refusesMany("amount of A in transaction.data", [batch(["41@@06"])]);
  refusesMany("amount of A in transaction.data", [batch(["41@@05"]), batch(["41@@05"])]);
  refusesMany("amount of C in transaction.data", [batch(["43@@05"])]);
  refusesMany("nonce in transaction.data", [batch(["41@01@05"])]);
  refusesMany("receiver", [batch(["41@@05"], { receiver: CONTRACT })]);
  refusesMany("value", [batch(["41@@05"], { value: "1" })]);
  refusesMany("contract", [batch(["41@@05"])], { contract: contractAddress(2) });
  refusesMany("amountOutMin", [{ ...batch(["41@@05"]), amountOutMin: "1" }]);
  refusesMany("chainID", [batch(["41@@05"]), batch([EGLD], { chainID: "D", chainId: "D" })]);
  refusesMany("to", [], {}, { to: "C" });
  refusesMany("contract", [batch(["41@@05"])], {});
});
