// Aggregator and relayer together: from a quote to a swap that somebody else pays the gas for.

import { Aggregator, type MultiSwap, type MultiSwapParameters, type Quote, type QuoteParameters } from "./aggregator.js";
import { MillraceError, Refused } from "./errors.js";
import type { TransactionHandle } from "./handle.js";
import { Relayer, type RelayerOptions, type Wish } from "./relayer.js";
import { signedBy, type Signer } from "./signer.js";
import type { Integer, Transaction } from "./transaction.js";

export interface MillraceOptions extends RelayerOptions {
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

export type SwapOptions = SendOptions & QuoteParameters;
export interface Swap {
  quote: Quote;
  handle: TransactionHandle;
}

const RELAYED_GAS = 50_000; // what naming a relayer costs, where the service does not say
const MIN_GAS_PRICE = 1_000_000_000;
const MAX_CALLS = 100; // batches of one multi-swap

/** What is not signed yet; fields that are missing are filled in. */
export type Unsigned = Omit<Wish, "sender"> & { chainID: string; version?: number };

/** One client for both services. */
export class Millrace {
  readonly aggregator: Aggregator;
  readonly relayer: Relayer;

  constructor({ aggregator, relayer, socket, ...options }: MillraceOptions) {
    const { headers: _, apiKey: __, ...shared } = options; // an API key is the relayer's alone
    this.aggregator = new Aggregator(aggregator, shared);
    this.relayer = new Relayer(relayer, socket, options);
  }

  /** Quote, prepare, sign, relay. The handle's `final()` tells how it ended; a contract's revert is no exception. */
  async swap({ signer, sponsored, nonce, relayer, signal, ...asked }: SwapOptions): Promise<Swap> {
    const call = signal ? { signal } : {};
    const parameters = { ...asked, sender: signer.address } as QuoteParameters;
    const quote = await this.aggregator.quote(parameters, call);
    const { transaction } = quote;
    if (!transaction) throw new MillraceError("the quote has no transaction: this service does not know the parameter sender");
    const handle = await this.send(transaction, { signer, ...send(sponsored, nonce, relayer, signal) });
    return { quote, handle };
  }

  /**
   * Sells many inputs: each batch is sent when the one before has ended well, as it is quoted on the pools as that one
   * leaves them. Yields each batch's end in turn, and stops after one that failed.
   */
  async *multiSwap(
    { signer, sponsored, signal, ...asked }: Omit<SendOptions, "nonce"> & Omit<MultiSwapParameters, "sender">,
  ): AsyncGenerator<{ swap: MultiSwap; batch: MultiSwap["batches"][number]; handle: TransactionHandle }> {
    const swap = await this.aggregator.multiSwap({ ...asked, sender: signer.address }, signal ? { signal } : {});
    for (const batch of swap.batches.slice(0, MAX_CALLS)) {
      if (!batch.transaction) throw new MillraceError("a batch has no transaction: this service does not know sender");
      const { nonce: _, ...transaction } = batch.transaction; // counted from 0 where nobody told it
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
    const { sender, receiver, value, data, gasLimit, gasPrice } = fields(transaction, options.signer.address);
    // Which nonce is next the relayer knows best: what the quote says may be behind what is under way.
    const wish: Wish = {
      sender, receiver, value, data, ...optional({ gasLimit, gasPrice, nonce: options.nonce, relayer: options.relayer }),
      ...optional({ options: transaction.options, guardian: transaction.guardian }),
    } as Wish;
    let prepared;
    try {
      prepared = await this.relayer.prepare(wish, options.signal ? { signal: options.signal } : {});
    } catch (error) {
      if (error instanceof Refused && error.status === 404) return this.#named(transaction, options);
      throw error;
    }
    if (!prepared.sponsored || !prepared.transaction) {
      const { reason = "not sponsored", code = "not_sponsored", detail, retryAfterMs } = prepared;
      throw new Refused({ reason, code, detail, retryAfterMs });
    }
    const made: Transaction = prepared.transaction;
    const same = made.sender === sender && made.receiver === receiver && made.value === value && (made.data ?? "") === data;
    if (!same || made.chainID !== transaction.chainID) {
      throw new MillraceError("the relayer prepared another transaction than it was asked for: nothing was signed");
    }
    return made;
  }

  /** The same at a service without `/v1/prepare`. */
  async #named(transaction: Unsigned, options: SendOptions): Promise<Transaction> {
    const whole = await this.#own(transaction, options);
    const relayer = options.relayer ?? (await this.relayer.relayerOf(whole.sender)).address;
    return { ...whole, relayer, gasLimit: BigInt(whole.gasLimit) + BigInt(RELAYED_GAS) };
  }

  async #own(transaction: Unsigned, { signer, nonce }: SendOptions): Promise<Transaction> {
    const { gasLimit, gasPrice, ...rest } = fields(transaction, signer.address);
    const next = nonce ?? transaction.nonce ?? (await this.relayer.nonceOf(signer.address));
    if (gasLimit === undefined || next === undefined || next === null) {
      const missing = gasLimit === undefined ? "gasLimit" : "nonce";
      throw new MillraceError(`${missing} is not known here: give it, or a chainApi for nonces`);
    }
    const { chainID, version = 2, options, guardian } = transaction;
    const numbers = { gasLimit, gasPrice: gasPrice ?? MIN_GAS_PRICE, nonce: next, version };
    return { ...rest, ...numbers, chainID, ...optional({ options, guardian }) };
  }
}

function fields(transaction: Unsigned, sender: string) {
  const { receiver, value = "0", data = "", gasLimit, gasPrice } = transaction;
  return { sender, receiver, value, data, gasLimit: gasLimit ?? undefined, gasPrice: gasPrice ?? undefined };
}

function send(sponsored?: boolean, nonce?: Integer, relayer?: string, signal?: AbortSignal): Omit<SendOptions, "signer"> {
  return optional({ sponsored, nonce, relayer, signal });
}

/** Without what is undefined. */
function optional<T extends object>(given: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as never;
}
