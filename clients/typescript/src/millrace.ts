// Aggregator and relayer together: from a quote to a swap that somebody else pays the gas for.

import { decodeAddress } from "./address.js";
import { Aggregator, type Amount, type MultiSwap, type MultiSwapParameters, type Quote, type QuoteParameters } from "./aggregator.js";
import {
  type Bounds, checkMultiSwap, checkPrepared, checkQuote, MIN_GAS_PRICE, Mismatch, RELAYED_GAS, type Trust, type Unsigned,
  withTransaction,
} from "./checks.js";
import { MillraceError, Refused } from "./errors.js";
import type { TransactionHandle } from "./handle.js";
import { Relayer, type RelayerOptions, type Wish } from "./relayer.js";
import { signedBy, type Signer } from "./signer.js";
import type { Integer, Transaction } from "./transaction.js";

export interface MillraceOptions extends RelayerOptions, Trust {
  /** Address of the aggregator's REST interface. */
  aggregator: string;
  /** Address of the relayer's REST interface. */
  relayer: string;
  /** Address of the relayer's WebSockets, with or without `/ws`. */
  socket: string;
}

/** How a transaction is paid for and numbered. */
export interface SendOptions {
  signer: Signer;
  /** The relayer pays (the default), or the sender does. */
  sponsored?: boolean;
  /** Where neither relayer nor aggregator can say: the sender's next one. */
  nonce?: Integer;
  /** Whom to name, where the service has no `/v1/relayers`. */
  relayer?: string;
  signal?: AbortSignal;
}

/** What an aggregator that gives no transaction, but only its `txData`, leaves to its client. */
export interface Payload {
  /** Where there is no `/v1/relayers` to tell it. */
  chainID?: string;
  /** Where the quote tells no `estimatedGasLimit`. */
  gasLimit?: Integer;
}

/** Of a reverse quote the service says what is sold: it is bounded. */
export type SwapOptions = SendOptions & QuoteParameters & Bounds & Payload & ({ amountIn: Amount } | { amountInMax: Amount });
export interface Swap {
  quote: Quote;
  handle: TransactionHandle;
}

const MAX_CALLS = 100; // batches of one multi-swap

/** One client for both services. */
export class Millrace {
  readonly aggregator: Aggregator;
  readonly relayer: Relayer;
  readonly #trust: Trust;

  constructor({ aggregator, relayer, socket, contract, maxGasPrice, ...options }: MillraceOptions) {
    if (contract !== undefined && contract !== "any") decodeAddress(contract); // a typing error is told now
    this.#trust = optional({ contract, maxGasPrice });
    const { headers: _, apiKey: __, ...shared } = options; // an API key is the relayer's alone
    this.aggregator = new Aggregator(aggregator, shared);
    this.relayer = new Relayer(relayer, socket, options);
  }

  /**
   * Quote, prepare, sign, relay. The handle's `final()` tells how it ended; a contract's revert is no exception. Throws
   * `Mismatch` where a service answers something else than it was asked for.
   */
  async swap(
    { signer, sponsored, nonce, relayer, signal, amountInMax, amountOutMin, chainID, gasLimit, ...asked }: SwapOptions,
  ): Promise<Swap> {
    const call = signal ? { signal } : {};
    const parameters = { ...asked, sender: signer.address } as QuoteParameters;
    let quote = await this.aggregator.quote(parameters, call);
    if (!quote.transaction) {
      const chain = chainID ?? (await this.relayer.relayers(call)).chainId;
      quote = withTransaction(parameters, quote, signer.address, chain, gasLimit, this.#trust);
    }
    const bounds = optional({ amountInMax, amountOutMin });
    const transaction = checkQuote({ ...parameters, ...bounds }, quote, signer.address, this.#trust);
    const handle = await this.send(transaction, { signer, ...send(sponsored, nonce, relayer, signal) });
    return { quote, handle };
  }

  /**
   * Sells many inputs: each batch is sent when the one before has ended well, as it is quoted on the pools as that one
   * leaves them. Yields each batch's end in turn, and stops after one that failed. Throws as `swap` does.
   */
  async *multiSwap(
    { signer, sponsored, signal, ...asked }: Omit<SendOptions, "nonce"> & Omit<MultiSwapParameters, "sender">,
  ): AsyncGenerator<{ swap: MultiSwap; batch: MultiSwap["batches"][number]; handle: TransactionHandle }> {
    const swap = await this.aggregator.multiSwap({ ...asked, sender: signer.address }, signal ? { signal } : {});
    const transactions = checkMultiSwap({ ...asked, sender: signer.address }, swap, signer.address, this.#trust);
    for (const [index, batch] of swap.batches.slice(0, MAX_CALLS).entries()) {
      const { nonce: _, ...transaction } = transactions[index] as Unsigned; // counted from 0 where nobody told it
      const handle = await this.send(transaction, { signer, ...send(sponsored, undefined, undefined, signal) });
      yield { swap, batch, handle };
      if ((await handle.final(signal ? { signal } : {})).state !== "success") return;
    }
  }

  /** Fills in what is missing, has it signed and sends it. Throws `Refused`, `SigningFailed`, `OutcomeUnknown`. */
  async send(transaction: Unsigned, options: SendOptions): Promise<TransactionHandle> {
    const sponsored = options.sponsored ?? true;
    const whole = sponsored ? await this.#sponsored(transaction, options) : await this.#own(transaction, options);
    const signed = await signedBy(options.signer, whole);
    return sponsored ? this.relayer.relay(signed) : this.relayer.broadcast(signed);
  }

  /** Ends all connections and subscriptions. */
  close(): void {
    this.relayer.close();
  }

  /** As the relayer would pay for it. Throws `Refused` where it would not. */
  async #sponsored(transaction: Unsigned, options: SendOptions): Promise<Transaction> {
    const { gasLimit, gasPrice, ...rest } = fields(transaction, options.signer.address);
    // Which nonce is next the relayer knows best: what the quote says may be behind what is under way.
    const wish: Wish = {
      ...rest, ...optional({ gasLimit, gasPrice, nonce: options.nonce, relayer: options.relayer }),
    } as Wish;
    let prepared;
    try {
      prepared = await this.relayer.prepare(wish, options.signal ? { signal: options.signal } : {});
    } catch (error) {
      if (error instanceof Refused && (error.status === 404 || error.status === 405)) return this.#named(transaction, options);
      throw error;
    }
    if (!prepared.sponsored || !prepared.transaction) {
      const { reason = "not sponsored", code = "not_sponsored", detail, retryAfterMs } = prepared;
      throw new Refused({ reason, code, detail, retryAfterMs });
    }
    const { chainID, version = 2 } = transaction;
    return checkPrepared({ ...wish, chainID, version }, prepared.transaction, this.#trust);
  }

  /** The same at a service without `/v1/prepare`. */
  async #named(transaction: Unsigned, options: SendOptions): Promise<Transaction> {
    const whole = await this.#own(transaction, options);
    const relayer = options.relayer ?? (await this.#payerOf(whole));
    return { ...whole, relayer, gasLimit: BigInt(whole.gasLimit) + RELAYED_GAS };
  }

  async #payerOf({ sender, chainID }: Transaction): Promise<string> {
    const { chainId } = await this.relayer.relayers();
    if (chainId !== chainID) throw new Mismatch("chainID", `is ${chainID}, and the relayer's is ${chainId}`);
    const { address } = await this.relayer.relayerOf(sender);
    if (address === sender) throw new Mismatch("relayer", "is the sender, who would pay");
    return address;
  }

  async #own(transaction: Unsigned, { signer, nonce }: SendOptions): Promise<Transaction> {
    const { gasLimit, gasPrice, ...rest } = fields(transaction, signer.address);
    const next = nonce ?? transaction.nonce ?? (await this.relayer.nonceOf(signer.address));
    if (gasLimit === undefined || next === undefined || next === null) {
      const missing = gasLimit === undefined ? "gasLimit" : "nonce";
      throw new MillraceError(`${missing} is not known here: give it, or a chainApi for nonces`);
    }
    const { chainID, version = 2 } = transaction;
    const numbers = { gasLimit, gasPrice: gasPrice ?? MIN_GAS_PRICE, nonce: next, version };
    return { ...rest, ...numbers, chainID };
  }
}

function fields(transaction: Unsigned, sender: string) {
  const { receiver, value = "0", data = "", gasLimit, gasPrice } = transaction;
  const { options, guardian, senderUsername, receiverUsername } = transaction;
  const rare = optional({ options, guardian, senderUsername, receiverUsername });
  return { sender, receiver, value, data, ...rare, gasLimit: gasLimit ?? undefined, gasPrice: gasPrice ?? undefined };
}

function send(sponsored?: boolean, nonce?: Integer, relayer?: string, signal?: AbortSignal): Omit<SendOptions, "signer"> {
  return optional({ sponsored, nonce, relayer, signal });
}

/** Without what is undefined. */
function optional<T extends object>(given: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as never;
}
