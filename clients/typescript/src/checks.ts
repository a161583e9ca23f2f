// What services answer is compared with what was asked, before anybody signs it: neither of them has to be trusted.

import { decodeAddress } from "./address.js";
import { type Amount, fraction, type MultiSwap, type MultiSwapParameters, type Quote, type QuoteParameters } from "./aggregator.js";
import { fromBase64, toHex } from "./bytes.js";
import { ClientError } from "./errors.js";
import type { GasRules, Wish } from "./relayer.js";
import { GUARDED, type Integer, type Transaction } from "./transaction.js";

/** What is not signed yet; fields that are missing are filled in. */
export type Unsigned = Omit<Wish, "sender"> & { chainID: string; version?: number };

/** The same of a sender. */
export type Draft = Unsigned & { sender: string };

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

/** What else a relayer's word is held to: the network's gas rules, where they are others than the live ones'. */
export interface Terms extends Trust {
  gas?: GasRules;
}

/** A service answered something else than it was asked for; `field` says where, by its name on the wire. Nothing was signed. */
export class Mismatch extends ClientError {
  override name = "Mismatch";
  constructor(readonly service: "aggregator" | "relayer", readonly field: string, readonly told: unknown, readonly asked: unknown) {
    super(
      `nothing was signed: the ${service} answered with another ${field} than was asked for (${shown(told)} instead of ` +
        `${shown(asked)}); check its address, and ask its operator`,
    );
  }
}

export const MIN_GAS_PRICE = 1_000_000_000; // the network's
/** What a transaction takes at least, and naming a relayer or having a guardian on top, by the live network's config. */
export const GAS: Readonly<GasRules> = {
  minGasPrice: MIN_GAS_PRICE, minGasLimit: 50_000, gasPerDataByte: 1_500, extraGasRelayed: 50_000, extraGasGuarded: 50_000,
};
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

type Service = Mismatch["service"];

function same(field: string, told: unknown, asked: unknown, service: Service = "aggregator"): void {
  if (told !== asked) throw new Mismatch(service, field, told, asked);
}

function within(field: string, told: bigint, least: bigint, most?: bigint, service: Service = "aggregator"): bigint {
  if (told < least) throw new Mismatch(service, field, told, `at least ${least}`);
  if (most !== undefined && told > most) throw new Mismatch(service, field, told, `at most ${most}`);
  return told;
}

/** The beginning of a value without what a terminal would obey. */
const shown = (value: unknown): string => (value === undefined ? "nothing" : String(value)).slice(0, 120).replace(/[^ -~\u00a0-\uffff]/g, "?");

/** An exact whole number that is not negative. */
function whole(field: string, value: unknown, service: Service = "aggregator"): bigint {
  const digits = typeof value === "string" && /^[0-9]{1,80}$/.test(value);
  if (!(digits || typeof value === "bigint" || Number.isSafeInteger(value)) || BigInt(value as Integer) < 0n) {
    throw new Mismatch(service, field, value, "a whole number");
  }
  return BigInt(value as Integer | string);
}

/**
 * The transaction of a quote, which sells what was asked for, pays it to the contract, and reverts below the slippage.
 * Throws `Mismatch`.
 */
export function checkQuote(asked: QuoteParameters & Bounds, quote: Quote, sender: string, trust: Trust = {}): Unsigned {
  same("from", plain(quote.from), plain(asked.from));
  same("to", plain(quote.to), plain(asked.to));
  const amountIn = whole("amountIn", quote.amountIn);
  const isArbitrage = plain(asked.from) === plain(asked.to);
  const most = asked.amountInMax === undefined ? undefined : BigInt(asked.amountInMax);
  if (asked.amountIn === undefined && most === undefined) {
    throw new Mismatch("aggregator", "amountInMax", undefined, "a bound, as the service would choose how much is sold");
  }
  if (asked.amountIn === undefined) within("amountOut", whole("amountOut", quote.amountOut), BigInt(asked.amountOut));
  else if (!isArbitrage || amountIn > BigInt(asked.amountIn)) same("amountIn", amountIn, BigInt(asked.amountIn));
  within("amountIn", amountIn, 0n, most);
  if (!quote.transaction) throw new ClientError("the quote has no transaction: this service does not know the parameter sender");
  const slippage = asked.slippage === undefined ? undefined : fraction("slippage", asked.slippage);
  // Of arbitrage what no cycle sells may stay with the sender, and nobody signs a loss by accident.
  const stays = isArbitrage ? BigInt(asked.amountIn ?? amountIn) - amountIn : 0n;
  const own = asked.amountOutMin === undefined ? undefined : BigInt(asked.amountOutMin) - stays;
  const enough = least(quote, slippage, own);
  if (isArbitrage) within("amountOutMin", enough, amountIn);
  const sold = [{ token: asked.from, amount: amountIn }];
  return spends(quote.transaction, sender, sold, asked, enough, trust, asked.gasPrice);
}

/** The transactions of a multi-swap; together they sell no more than the inputs. Throws `Mismatch`. */
export function checkMultiSwap(asked: MultiSwapParameters, swap: MultiSwap, sender: string, trust: Trust = {}): Unsigned[] {
  same("to", plain(swap.to), plain(asked.to));
  // Of a token that is named twice the service sells the first.
  const left = new Map([...asked.inputs].reverse().map(({ token, amount }) => [plain(token), BigInt(amount)]));
  // As it was sent: a number of JSON.
  const slippage = asked.slippage === undefined ? undefined : String(Number(fraction("slippage", asked.slippage)));
  return swap.batches.map((batch) => {
    if (!batch.transaction) throw new ClientError("a batch has no transaction: this service does not know sender");
    const sold = batch.inputs.map(({ token, amount }) => ({ token, amount: whole(`inputs, ${shown(token)}`, amount) }));
    for (const { token, amount } of sold) {
      const most = left.get(plain(token)) ?? 0n;
      within(`inputs, ${shown(token)}`, amount, 0n, most);
      left.set(plain(token), most - amount);
    }
    return spends(batch.transaction, sender, sold, asked, least({ ...batch, slippage: swap.slippage }, slippage), trust, asked.gasPrice);
  });
}

/** The least output that an answer promises, which must be `floor(amountOut * (1 - slippage))`, or the caller's own bound. */
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
    throw new Mismatch("aggregator", "slippage", told.slippage, `at most ${MAX_SLIPPAGE} unless asked for`);
  }
  const floor = (whole("amountOut", told.amountOut) * (of - parts)) / of;
  return within("amountOutMin", whole("amountOutMin", told.amountOutMin), floor > BigInt(own) ? floor : BigInt(own));
}

/** A decimal fraction from 0 to 1 as two whole numbers. */
function ratio(text: string): [bigint, bigint] {
  const [, digits = "", decimals = "", exponent = "0"] = /^(\d*)\.?(\d*)(?:e-(\d{1,3}))?$/.exec(text) ?? [];
  const parts = BigInt(digits + decimals || "0");
  const of = 10n ** BigInt(decimals.length + Number(exponent));
  if (!(digits + decimals) || parts > of) throw new Mismatch("aggregator", "slippage", text, "a fraction");
  return [parts, of];
}

interface Payment {
  token: string;
  amount: bigint;
}

const plain = (token: string): string => (token === NATIVE_IN_TRANSFERS ? NATIVE : token);
/** Payments in one order, as text that is the same for the same payments alone. */
const words = (payments: Payment[]): string =>
  JSON.stringify(payments.map(({ token, amount }) => [String(amount), plain(token)]).sort());

/**
 * The fields of a transaction that were looked at, and no others: it pays exactly what is sold, to the contract, which must
 * pay `enough` of what was asked for.
 */
function spends(
  made: NonNullable<Quote["transaction"]>, sender: string, sold: Payment[], asked: { to: string; referralId?: number },
  enough: bigint, trust: Trust, gasPrice?: number,
): Unsigned {
  const { nonce, receiver, value, data, chainID, chainId = chainID, gasLimit, gasPrice: price, version = 2 } = made;
  same("transaction.sender", made.sender, sender);
  const { payments, contract, called, args } = readCall(made, sender);
  if (words(payments) !== words(sold)) {
    const field = [...payments, ...sold].some(({ token }) => plain(token) === NATIVE) ? "value" : "data";
    throw new Mismatch("aggregator", `transaction.${field}`, words(payments), `payment of ${words(sold)}`);
  }
  if (!/^0{16}[0-9a-f]{48}$/.test(contract)) throw new Mismatch("aggregator", "transaction.receiver", receiver, "a contract");
  if (trust.contract !== "any") same("transaction.receiver", contract, toHex(decodeAddress(contractOf(chainID, trust))));
  // Other functions are not known here, and those of the chain itself would hand over what the wallet owns.
  same("transaction.data", called, ENDPOINT);
  if (args.length < 4) throw new Mismatch("aggregator", "transaction.data, least output", undefined, `at least ${enough}`);
  within("transaction.data, least output", number(args[0]), enough);
  const index = number(args[1]);
  const tokens = args.slice(4, 4 + Number(number(args[3])));
  const paid = index === NATIVE_INDEX ? NATIVE : plain(ascii(tokens[Number(index)]));
  same("transaction.data, output token", paid, plain(asked.to));
  same("transaction.data, referralId", number(args[2]), BigInt(asked.referralId ?? 0));
  same("transaction.chainId", chainId, chainID);
  within("transaction.gasLimit", whole("transaction.gasLimit", gasLimit), 1n, MAX_GAS_LIMIT);
  checkPrice("transaction.gasPrice", price, gasPrice, trust, "aggregator");
  const checked = { receiver, value, data, chainID, gasLimit, gasPrice: price, version };
  return nonce === undefined ? checked : { ...checked, nonce };
}

/** What a transaction pays, to whom, and what it calls there: the ways in which an aggregator writes them, and no other. */
function readCall(
  made: NonNullable<Quote["transaction"]>, sender: string,
): { payments: Payment[]; contract: string; called: string; args: string[] } {
  const [name = "", ...args] = text("transaction.data", made.data).split("@");
  const hex = args.map((argument) => argument.toLowerCase());
  const wrong = (): Mismatch => new Mismatch("aggregator", "transaction.data", `${name}@${args.join("@")}`, "a payment and a call");
  if (!hex.every((argument) => HEX.test(argument))) throw wrong();
  const value = whole("transaction.value", made.value);
  const payments: Payment[] = value ? [{ token: NATIVE, amount: value }] : [];
  const pay = (token: string | undefined, nonce: string | undefined, amount: string | undefined): void => {
    if (number(nonce)) throw wrong();
    payments.push({ token: ascii(token), amount: number(amount) });
  };
  let contract = key("transaction.receiver", made.receiver);
  let [called, rest] = [name, hex];
  if (name === "ESDTTransfer") {
    pay(hex[0], "", hex[1]);
    [called, rest] = [ascii(hex[2]), hex.slice(3)];
  } else if (name === "MultiESDTNFTTransfer" && made.receiver === sender) {
    contract = hex[0] ?? "";
    const end = 2 + 3 * Number(number(hex[1]));
    if (end > hex.length) throw wrong();
    for (let at = 2; at < end; at += 3) pay(hex[at], hex[at + 1], hex[at + 2]);
    [called, rest] = [ascii(hex[end]), hex.slice(end + 1)];
  }
  return { payments, contract, called, args: rest };
}

/**
 * The quote of a service that tells `txData` alone, with the transaction that this is the payload of; `checkQuote` compares
 * it as any other. What such a service does not repeat of the question is as it was asked.
 */
export function withTransaction(
  asked: QuoteParameters, quote: Quote, sender: string, chainID: string, gasLimit: Integer | undefined, trust: Trust,
): Quote {
  const gas = gasLimit ?? quote.estimatedGasLimit;
  if (gas === undefined || gas === null) throw new ClientError("the quote says nothing of gas: name the gasLimit of this swap");
  const { from = asked.from, to = asked.to, amountIn = String(asked.amountIn ?? ""), txData } = quote;
  const isOfSeveral = text("txData", txData).startsWith("MultiESDTNFTTransfer@");
  const { contract } = trust;
  const receiver = isOfSeveral ? sender : contractOf(chainID, contract === undefined || contract === "any" ? {} : { contract });
  const value = plain(from) === NATIVE && !isOfSeveral ? amountIn : "0";
  const transaction = {
    sender, receiver, value, data: txData, chainID, chainId: chainID, version: 2, gasLimit: Number(gas), gasPrice: MIN_GAS_PRICE,
  };
  return { ...quote, from, to, amountIn, transaction };
}

function contractOf(chainID: string, { contract }: Trust): string {
  const found = contract ?? (Object.hasOwn(CONTRACTS, chainID) ? CONTRACTS[chainID] : undefined);
  if (found !== undefined) return found;
  throw new Mismatch("aggregator", "transaction.receiver", `a contract on chain ${shown(chainID)}`, 'one that is known: name it (contract), or "any"');
}

function checkPrice(field: string, price: unknown, asked: Integer | undefined | null, trust: Terms, service: Service): void {
  const told = whole(field, price, service);
  if (asked !== undefined && asked !== null) same(field, told, BigInt(asked), service);
  else within(field, told, 1n, BigInt(trust.maxGasPrice ?? 10 * (trust.gas ?? GAS).minGasPrice), service);
}

const TEXTS = ["sender", "receiver", "value", "data", "chainID", "senderUsername", "receiverUsername", "guardian"] as const;

/** What a relayer prepared, which is what it was asked for with itself as payer. Throws `Mismatch`. */
export function checkPrepared(asked: Draft, made: Transaction, terms: Terms = {}): Transaction {
  const check = (field: string, told: unknown, wanted: unknown): void => same(field, told, wanted, "relayer");
  for (const field of TEXTS) check(field, made[field] ?? "", asked[field] ?? (field === "value" ? "0" : ""));
  check("options", made.options ?? 0, asked.options ?? 0);
  check("version", made.version, asked.version ?? 2);
  if (!made.relayer) throw new Mismatch("relayer", "relayer", made.relayer, "one that pays");
  key("relayer", made.relayer, "relayer");
  if (made.relayer === asked.sender || made.relayer === asked.guardian) { // whose own signature would be the one that pays
    throw new Mismatch("relayer", "relayer", made.relayer, "neither the sender nor its guardian");
  }
  if (asked.relayer) check("relayer", made.relayer, asked.relayer);
  const nonce = whole("nonce", made.nonce, "relayer");
  if (asked.nonce !== undefined && asked.nonce !== null) check("nonce", nonce, BigInt(asked.nonce));
  checkPrice("gasPrice", made.gasPrice, asked.gasPrice, terms, "relayer");
  within("gasLimit", whole("gasLimit", made.gasLimit, "relayer"), BigInt(asked.gasLimit ?? 0), mostGas(asked, terms.gas), "relayer");
  const looked = [...TEXTS, "options", "version", "relayer", "nonce", "gasPrice", "gasLimit"] as const;
  return Object.fromEntries(looked.flatMap((name) => (made[name] === undefined ? [] : [[name, made[name]]]))) as never;
}

/** The highest gas limit that naming a relayer, and having a guardian, can make of what was asked. */
export function mostGas({ data = "", gasLimit, options = 0 }: Draft, gas: GasRules = GAS): bigint {
  const needed = gasLimit ? BigInt(gasLimit) : BigInt(gas.minGasLimit + gas.gasPerDataByte * fromBase64(data).length);
  return needed + BigInt(gas.extraGasRelayed + (options & GUARDED ? gas.extraGasGuarded : 0));
}

function text(field: string, base64: string): string {
  try {
    return ascii(toHex(fromBase64(base64)));
  } catch (error) {
    throw new Mismatch("aggregator", field, base64, `a text in base64, and it is ${(error as Error).message}`);
  }
}

/** The 32 bytes of an address in hex. */
function key(field: string, address: string, service: Service = "aggregator"): string {
  try {
    return toHex(decodeAddress(address));
  } catch (error) {
    throw new Mismatch(service, field, address, `an address, and it is ${(error as Error).message}`);
  }
}

const number = (hex: string | undefined): bigint => (hex ? BigInt(`0x${hex}`) : 0n);
const ascii = (hex = ""): string => hex.replace(/../g, (byte) => String.fromCharCode(parseInt(byte, 16)));
