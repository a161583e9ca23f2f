// What services answer is compared as the vectors say, which the Python client is held to, too.
import assert from "node:assert/strict";
import { test } from "node:test";
import { checkPrepared, checkQuote } from "@millrace/client";
import { payload, readVectors } from "./support.mjs";

const { sender, quote, quotes, prepare, prepared } = readVectors("client_checks.json");
const changed = (...parts) => Object.fromEntries(Object.entries(Object.assign({}, ...parts)).filter(([, value]) => value !== null));
const named = (field, check) => (field === null ? check() : assert.throws(check, { name: "Mismatch", field }));

for (const { name, field, asked, answer, transaction, contract } of quotes) {
  test(`a quote is signed, or the field that does not fit is named: ${name}`, () => {
    const { call, ...made } = changed(quote.transaction, transaction);
    const told = changed(quote.answer, answer, { transaction: { ...made, data: payload(call) } });
    named(field, () => checkQuote(changed(quote.asked, asked), told, sender, contract ? { contract } : {}));
  });
}

for (const { name, field, asked, told } of prepared) {
  test(`what a relayer prepared is signed, or the field that does not fit is named: ${name}`, () => {
    const wanted = changed(prepare.asked, asked);
    named(field, () => checkPrepared(wanted, changed(wanted, prepare.told, told)));
  });
}
