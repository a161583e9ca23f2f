// What services answer is compared with what was asked, before anybody signs it: neither of them has to be trusted.

import { decodeAddress } from "./address.js";
import { type Amount, fraction, type MultiSwap, type MultiSwapParameters, type Quote, type QuoteParameters } from "./aggregator.js";
import { fromBase64, toHex, utf8 } from "./bytes.js";
import { MillraceError } from "./errors.js";
import type { Wish } from "./relayer.js";
import type { Integer, Transaction } from "./transaction.js";

/** What is not signed yet; fields that are missing are filled in. */
export type Unsigned = Omit<Wish, "sender"> & { chainID: string; version?: number };

/** What a wallet takes for granted of services that it does not know. */
export interface Trust {
  /**
   * The aggregator contract, the only one that swaps may pay and call. Without it: the one of the chain, `CONTRACTS`.
   * "any" takes the aggregator's word for it.
   */
  contract?: string;
  /** The highest gas price that a service may choose, ten times the network's least unless said otherwise. */
  maxGasPrice?: Integer;
}

/** What a swap must promise, whatever the service says. */
export interface Bounds {
  /** The most it may sell; a reverse quote is not signed without it. */
  amountInMax?: Amount;
  /** The least that the contract must pay. */
  amountOutMin?: Amount;
}

/** A service answered something else than it was asked for; `field` says where. Nothing was signed. */
export class Mismatch extends MillraceError {
  override name = "Mismatch";
  constructor(readonly field: string, text: string) {
    super(`${field} ${text}: nothing was signed`);
  }
}

export const MIN_GAS_PRICE = 1_000_000_000; // the network's
export const RELAYED_GAS = 50_000n; // what naming a relayer costs: `erd_extra_gas_limit_relayed_tx` of the network's config
// The least a transaction takes, by the same config: `erd_min_gas_limit`, `erd_gas_per_data_byte`,
// `erd_extra_gas_limit_guarded_tx`.
const MOVE_GAS = 50_000n;
const BYTE_GAS = 1_500n;
const GUARDED_GAS = 50_000n;
const MAX_GAS_PRICE = 10 * MIN_GAS_PRICE;
const MAX_GAS_LIMIT = 600_000_000n; // of one transaction: `erd_max_gas_per_transaction`
const MAX_SLIPPAGE = "0.05"; // of a service's own default, where the caller names none

const MAINNET_CONTRACT = "erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva";
/** The aggregator contract (`rs-aggregator`) of each chain by its id; the local chain has it where mainnet has it. */
export const CONTRACTS: Readonly<Record<string, string>> = {
  1: MAINNET_CONTRACT,
  D: "erd1qqqqqqqqqqqqqpgqgvg27qrmtqslcn9jfrpsyw8j8r5e5lrjah0stwuckk",
  local: MAINNET_CONTRACT,
};

const NATIVE = "EGLD";
const NATIVE_IN_TRANSFERS = "EGLD-000000";
const NATIVE_INDEX = 254n; // of the output, in the contract's arguments
const ENDPOINT = "xo";
const HEX = /^(?:[0-9a-f]{2})*$/;

function same(field: string, got: unknown, asked: unknown): void {
  if (got !== asked) throw new Mismatch(field, `is ${shown(got)}, and ${shown(asked)} was asked for`);
}

function within(field: string, got: bigint, least: bigint, most?: bigint): bigint {
  if (got < least) throw new Mismatch(field, `is ${got}, and must be ${least} at least`);
  if (most !== undefined && got > most) throw new Mismatch(field, `is ${got}, and may be ${most} at most`);
  return got;
}

const shown = (value: unknown): string => (value === undefined ? "missing" : String(value).slice(0, 120));

/** An exact whole number that is not negative. */
function whole(field: string, value: unknown): bigint {
  const digits = typeof value === "string" && /^[0-9]{1,80}$/.test(value);
  if (!(digits || typeof value === "bigint" || Number.isSafeInteger(value)) || BigInt(value as Integer) < 0n) throw new Mismatch(field, `is ${shown(value)}, which is no whole number`);
  return BigInt(value as Integer | string);
}

/**
 * The transaction of a quote, which sells what was asked for, pays it to a contract, and reverts below the slippage.
 * Throws `Mismatch`.
 */
export function checkQuote(asked: QuoteParameters & Bounds, quote: Quote, sender: string, trust: Trust = {}): Unsigned {
  same("from", quote.from, asked.from);
  same("to", quote.to, asked.to);
  const amountIn = whole("amountIn", quote.amountIn);
  const most = asked.amountInMax === undefined ? undefined : BigInt(asked.amountInMax);
  if (asked.amountIn === undefined && most === undefined) {
    throw new Mismatch("amountInMax", "is missing, and the service would choose how much is sold");
  }
  if (asked.amountIn === undefined) within("amountOut", whole("amountOut", quote.amountOut), BigInt(asked.amountOut));
  else same("amountIn", amountIn, BigInt(asked.amountIn));
  within("amountIn", amountIn, 0n, most);
  if (!quote.transaction) throw new MillraceError("the quote has no transaction: this service does not know the parameter sender");
  const { payments, program } = readCall(quote.transaction, sender, trust);
  const [payment] = payments;
  if (payments.length !== 1) throw new Mismatch("transaction.data", `pays ${payments.length} tokens, and one was asked for`);
  const field = payment?.field ?? "transaction.data";
  same(`token in ${field}`, payment?.token, asked.from);
  same(field === "value" ? field : `amount in ${field}`, payment?.amount, amountIn);
  const slippage = asked.slippage === undefined ? undefined : fraction("slippage", asked.slippage);
  checkProgram(program, asked, least(quote, slippage, asked.amountOutMin));
  return accepted(quote.transaction, trust, asked.gasPrice);
}

/** The transactions of a multi-swap, each of which sells some of what was asked for, and none twice. Throws `Mismatch`. */
export function checkMultiSwap(asked: MultiSwapParameters, swap: MultiSwap, sender: string, trust: Trust = {}): Unsigned[] {
  same("to", swap.to, asked.to);
  // Of a token that is named twice the service sells the first.
  const left = new Map([...asked.inputs].reverse().map(({ token, amount }) => [token, BigInt(amount)]));
  // As it was sent: a number of JSON.
  const slippage = asked.slippage === undefined ? undefined : String(Number(fraction("slippage", asked.slippage)));
  return swap.batches.map((batch) => {
    if (!batch.transaction) throw new MillraceError("a batch has no transaction: this service does not know sender");
    same("chainID", batch.transaction.chainID, swap.batches[0]?.transaction?.chainID);
    const { payments, program } = readCall(batch.transaction, sender, trust);
    for (const { token, amount, field } of payments) {
      same(`amount of ${shown(token)} in ${field}`, amount, left.get(token));
      left.delete(token);
    }
    checkProgram(program, asked, least({ ...batch, slippage: swap.slippage }, slippage));
    return accepted(batch.transaction, trust);
  });
}

/** The least output that an answer must promise: `floor(amountOut * (1 - slippage))`, or more by the caller's own bound. */
function least(
  told: { amountOut?: string; amountOutMin: string; slippage?: number },
  slippage: string | undefined,
  own: Amount = 0n,
): bigint {
  // Of a service that does not tell what it expects the caller knows what is enough.
  if (told.amountOut === undefined && BigInt(own) > 0n) {
    return within("amountOutMin", whole("amountOutMin", told.amountOutMin), BigInt(own));
  }
  const [parts, of] = ratio(slippage ?? String(told.slippage));
  const [mostParts, mostOf] = ratio(MAX_SLIPPAGE);
  if (slippage === undefined && parts * mostOf > mostParts * of) {
    throw new Mismatch("slippage", `is ${shown(told.slippage)}, and none was asked for: name it, beyond ${MAX_SLIPPAGE}`);
  }
  const floor = (whole("amountOut", told.amountOut) * (of - parts)) / of;
  return within("amountOutMin", whole("amountOutMin", told.amountOutMin), floor > BigInt(own) ? floor : BigInt(own));
}

/** A decimal fraction from 0 to 1 as two whole numbers. */
function ratio(text: string): [bigint, bigint] {
  const [, digits = "", decimals = "", exponent = "0"] = /^(\d*)\.?(\d*)(?:e-(\d{1,3}))?$/.exec(text) ?? [];
  const parts = BigInt(digits + decimals || "0");
  const of = 10n ** BigInt(decimals.length + Number(exponent));
  if (!(digits + decimals) || parts > of) throw new Mismatch("slippage", `is ${shown(text)}, which is no fraction`);
  return [parts, of];
}

interface Call {
  payments: { token: string; amount: bigint; field: string }[];
  /** Arguments of the contract's endpoint, in hex. */
  program: string[];
}

/** What a transaction pays, to whom, and what it calls there: the ways in which an aggregator writes them, and no other. */
function readCall(transaction: NonNullable<Quote["transaction"]>, sender: string, trust: Trust): Call {
  same("sender", transaction.sender, sender);
  const [name = "", ...args] = text("transaction.data", transaction.data).split("@");
  const hex = args.map((argument) => argument.toLowerCase());
  if (!hex.every((argument) => HEX.test(argument))) throw new Mismatch("transaction.data", "is no call of a contract");
  const value = whole("value", transaction.value);
  const payments: Call["payments"] = [];
  const pay = (token: string, amount: bigint, field = "transaction.data"): number => payments.push({ token, amount, field });
  let contract = key("receiver", transaction.receiver);
  let [call, rest] = [toHex(utf8(name)), hex];
  if (name === "ESDTTransfer") {
    pay(ascii(hex[0]), number(hex[1]));
    [call = "", ...rest] = hex.slice(2);
  } else if (name === "MultiESDTNFTTransfer") {
    same("receiver", transaction.receiver, sender);
    contract = hex[0] ?? "";
    const end = 2 + 3 * Number(within("payments in transaction.data", number(hex[1]), 1n, BigInt(hex.length)));
    for (let at = 2; at < end; at += 3) {
      same("nonce in transaction.data", number(hex[at + 1]), 0n);
      const token = ascii(hex[at]);
      pay(token === NATIVE_IN_TRANSFERS ? NATIVE : token, number(hex[at + 2]));
    }
    [call = "", ...rest] = hex.slice(end);
  } else {
    pay(NATIVE, value, "value");
  }
  if (payments[0]?.field !== "value") same("value", value, 0n);
  // Other functions are not known here, and those of the chain itself would hand over what the wallet owns.
  same("function in transaction.data", ascii(call), ENDPOINT);
  if (!/^0{16}[0-9a-f]{48}$/.test(contract)) throw new Mismatch("receiver", "is no contract");
  if (trust.contract !== "any") same("contract", contract, toHex(decodeAddress(contractOf(transaction.chainID, trust))));
  return { payments, program: rest };
}

/**
 * The quote of a service that tells `txData` alone, with the transaction that this is the payload of; `checkQuote` compares
 * it as any other. What such a service does not repeat of the question is as it was asked.
 */
export function withTransaction(
  asked: QuoteParameters, quote: Quote, sender: string, chainID: string, gasLimit: Integer | undefined, trust: Trust,
): Quote {
  const gas = gasLimit ?? quote.estimatedGasLimit;
  if (gas === undefined || gas === null) throw new MillraceError("the quote says nothing of gas: name the gasLimit of this swap");
  const { from = asked.from, to = asked.to, amountIn = String(asked.amountIn ?? ""), txData } = quote;
  const isOfSeveral = text("txData", txData).startsWith("MultiESDTNFTTransfer@");
  const { contract } = trust;
  const receiver = isOfSeveral ? sender : contractOf(chainID, contract === undefined || contract === "any" ? {} : { contract });
  const value = from === NATIVE && !isOfSeveral ? amountIn : "0";
  const transaction = {
    sender, receiver, value, data: txData, chainID, chainId: chainID, version: 2, gasLimit: Number(gas), gasPrice: MIN_GAS_PRICE,
  };
  return { ...quote, from, to, amountIn, transaction };
}

function contractOf(chainID: string, { contract }: Trust): string {
  const found = contract ?? (Object.hasOwn(CONTRACTS, chainID) ? CONTRACTS[chainID] : undefined);
  if (found !== undefined) return found;
  throw new Mismatch("contract", `of chain ${shown(chainID)} is not known: name it (contract), or "any"`);
}

/** The contract's own bounds: least output, its token, and who is credited. */
function checkProgram(program: string[], asked: { to: string; referralId?: number }, least: bigint): void {
  within("amountOutMin in transaction.data", number(program[0]), least);
  const index = number(program[1]);
  const tokens = program.slice(4, 4 + Number(number(program[3])));
  same("output in transaction.data", index === NATIVE_INDEX ? NATIVE : ascii(tokens[Number(index)]), asked.to);
  same("referralId in transaction.data", number(program[2]), BigInt(asked.referralId ?? 0));
}

/** The fields that were looked at, and no others. */
function accepted(transaction: NonNullable<Quote["transaction"]>, trust: Trust, gasPrice?: number): Unsigned {
  const { nonce, receiver, value, data, chainID, chainId = chainID, gasLimit, gasPrice: price, version = 2 } = transaction;
  same("chainId", chainId, chainID);
  within("gasLimit", whole("gasLimit", gasLimit), 1n, MAX_GAS_LIMIT);
  checkPrice(price, gasPrice, trust);
  const checked = { receiver, value, data, chainID, gasLimit, gasPrice: price, version };
  return nonce === undefined ? checked : { ...checked, nonce };
}

function checkPrice(price: unknown, asked: Integer | undefined | null, trust: Trust): void {
  const told = whole("gasPrice", price);
  if (asked !== undefined && asked !== null) same("gasPrice", told, BigInt(asked));
  else within("gasPrice", told, 0n, BigInt(trust.maxGasPrice ?? MAX_GAS_PRICE));
}

const TEXTS = ["sender", "receiver", "value", "data", "chainID", "senderUsername", "receiverUsername", "guardian"] as const;

/** What a relayer prepared, which is what it was asked for with itself as payer. Throws `Mismatch`. */
export function checkPrepared(asked: Unsigned & { sender: string }, made: Transaction, trust: Trust = {}): Transaction {
  for (const field of TEXTS) same(field, made[field] ?? "", asked[field] ?? (field === "value" ? "0" : ""));
  same("options", made.options ?? 0, asked.options ?? 0);
  same("version", made.version, asked.version ?? 2);
  if (!made.relayer) throw new Mismatch("relayer", "is missing, and the sender would pay");
  if (asked.relayer) same("relayer", made.relayer, asked.relayer);
  key("relayer", made.relayer);
  if (made.relayer === asked.sender) throw new Mismatch("relayer", "is the sender, who would pay");
  if (made.relayer === asked.guardian) throw new Mismatch("relayer", "is the guardian, who signs for the sender");
  const nonce = whole("nonce", made.nonce);
  if (asked.nonce !== undefined && asked.nonce !== null) same("nonce", nonce, BigInt(asked.nonce));
  checkPrice(made.gasPrice, asked.gasPrice, trust);
  const gas = asked.gasLimit ?? undefined;
  const most = (gas === undefined ? leastGas(asked) : BigInt(gas)) + RELAYED_GAS;
  within("gasLimit", whole("gasLimit", made.gasLimit), BigInt(gas ?? 0), most);
  const looked = [...TEXTS, "options", "version", "relayer", "nonce", "gasPrice", "gasLimit"] as const;
  return Object.fromEntries(looked.flatMap((name) => (made[name] === undefined ? [] : [[name, made[name]]]))) as never;
}

function leastGas({ data = "", guardian }: Unsigned): bigint {
  return MOVE_GAS + BYTE_GAS * BigInt(fromBase64(data).length) + (guardian ? GUARDED_GAS : 0n);
}

function text(field: string, base64: string): string {
  try {
    return ascii(toHex(fromBase64(base64)));
  } catch (error) {
    throw new Mismatch(field, `is ${(error as Error).message}`);
  }
}

/** The 32 bytes of an address in hex. */
function key(field: string, address: string): string {
  try {
    return toHex(decodeAddress(address));
  } catch (error) {
    throw new Mismatch(field, `is ${(error as Error).message}`);
  }
}

const number = (hex: string | undefined): bigint => (hex ? BigInt(`0x${hex}`) : 0n);
const ascii = (hex = ""): string => hex.replace(/../g, (byte) => String.fromCharCode(parseInt(byte, 16)));
