// How many decimals a token has, and who says so: by them what is typed becomes what is signed. The aggregator's word
// alone would move the point in an amount, and every other number that it tells can fit to that.

import { post } from "./services.js";

const NATIVE = ["EGLD", "EGLD-000000"];
const NATIVE_DECIMALS = 18;
const SYSTEM_CONTRACT = "erd1qqqqqqqqqqqqqqqpqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqzllls8a5w6u"; // keeps the properties of tokens
const PROPERTY = /^NumDecimals-(\d{1,2})$/;
const known = new Map();

const hex = (text) => Array.from(new TextEncoder().encode(text), (byte) => byte.toString(16).padStart(2, "0")).join("");

async function ofChain(token) {
  const asked = { scAddress: SYSTEM_CONTRACT, funcName: "getTokenProperties", args: [hex(token)] };
  const told = await post("chain/vm-values/query", asked);
  for (const value of told.data?.data?.returnData ?? []) {
    const [, digits] = PROPERTY.exec(atob(value ?? "")) ?? [];
    if (digits !== undefined) return Number(digits);
  }
  throw new Error(`the chain names no decimals of ${token}`);
}

/** Decimals by the chain; undefined where the console knows no chain to ask. Throws what the chain answers instead. */
async function decimalsOf(token, { services }) {
  if (NATIVE.includes(token)) return NATIVE_DECIMALS;
  if (!services.chain) return undefined;
  if (!known.has(token)) known.set(token, await ofChain(token));
  return known.get(token);
}

/**
 * Whether the decimals that the aggregator tells are those of the chain: `{sure}`, false where nobody else could be asked.
 * `told`: decimals by token. Throws where they differ.
 */
export async function compared(told, settings) {
  const found = await Promise.all(Object.entries(told).map(async ([token, decimals]) => {
    const chain = await decimalsOf(token, settings);
    if (chain !== undefined && chain !== decimals) {
      const words = `by the aggregator ${token} has ${decimals} decimals, by the chain ${chain}`;
      throw Object.assign(new Error(words), { name: "Mismatch" });
    }
    return chain !== undefined;
  }));
  return { sure: found.every(Boolean) };
}
