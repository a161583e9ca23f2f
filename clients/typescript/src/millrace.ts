// Aggregator and relayer together: from a quote to a swap that somebody else pays the gas for.

import { Aggregator, type Amount, type MultiSwap, type MultiSwapParameters, optional, type Quote, type QuoteParameters } from "./aggregator.js";
import {
  type Bounds, checkMultiSwap, checkQuote, type Draft, GAS, MIN_GAS_PRICE, type Trust, type Unsigned, withTransaction,
} from "./checks.js";
import { ClientError, WalletError } from "./errors.js";
import type { Handle } from "./handle.js";
import type { CallOptions } from "./http.js";
import { Relayer, type RelayerOptions, type Submitted } from "./relayer.js";
import { signedBy, type Signer } from "./signer.js";
import { GUARDED, type Integer, type Transaction } from "./transaction.js";

export interface MillraceOptions extends RelayerOptions, Trust {
  /** Address of the aggregator's REST interface. */
  aggregator: string;
  /** Address of the relayer's REST interface. */
  relayer: string;
  /** Address of the relayer's WebSockets, with or without `/ws`. */
  socket: string;
}

/** Who signs, and who pays. */
export interface SendOptions extends CallOptions {
  signer: Signer;
  /** The second wallet of a guarded account. */
  guardian?: Signer;
  /** The relayer pays (the default), or the sender does. */
  sponsored?: boolean;
}

export interface SwapTerms extends SendOptions, Bounds {
  /** A quote that came for the same question, and was shown to somebody; without it one is asked for. */
  quote?: Quote;
  /** Where neither relayer nor chain API can say: the sender's next one. */
  nonce?: Integer;
  /** Where the aggregator gives no transaction, and tells no `estimatedGasLimit`. */
  gasLimit?: Integer;
}

/** Of a reverse quote the service says what is sold: it is bounded. */
export type SwapOptions = SwapTerms & QuoteParameters & ({ amountIn: Amount } | { amountInMax: Amount });
export interface Swap {
  quote: Quote;
  handle: Handle;
}
export type MultiSwapOptions = SendOptions & Omit<MultiSwapParameters, "sender">;

/** One client for both services. */
export class Millrace {
  readonly aggregator: Aggregator;
  readonly relayer: Relayer;
  readonly #trust: Trust;

  constructor({ aggregator, relayer, socket, contract, ...options }: MillraceOptions) {
    const { apiKey: _, ...shared } = options; // the relayer's alone
    this.#trust = optional({ contract, maxGasPrice: options.maxGasPrice });
    this.aggregator = new Aggregator(aggregator, { ...shared, ...this.#trust });
    this.relayer = new Relayer(relayer, socket, options);
  }

  /** A quote, see `Aggregator.quote`; name the `sender` of a swap that is to be made. */
  quote(parameters: QuoteParameters & Bounds, call?: CallOptions): Promise<Quote> {
    return this.aggregator.quote(parameters, call);
  }

  /**
   * Quote, prepare, sign, relay. The handle's `final()` tells how it ended; a contract's revert is no exception. Throws
   * `Refused`, `WalletError`, and `Mismatch` where a service answers something else than it was asked for.
   */
  async swap(
    { signer, guardian, sponsored = true, signal, quote: shown, nonce, gasLimit, amountInMax, amountOutMin, ...question }: SwapOptions,
  ): Promise<Swap> {
    const call = optional({ signal });
    const asked = { ...question, sender: signer.address } as QuoteParameters;
    let quote = shown ?? (await this.aggregator.quote(asked, call));
    if (!quote.transaction) {
      const { chainId } = await this.relayer.relayers(call);
      quote = withTransaction(asked, quote, signer.address, chainId, gasLimit, this.#trust);
    }
    const bounds = optional({ amountInMax, amountOutMin });
    const { nonce: told, ...transaction } = checkQuote({ ...asked, ...bounds }, quote, signer.address, this.#trust);
    // Which nonce is next the relayer knows best: what the quote says may be behind what is under way.
    const next = nonce ?? (sponsored ? undefined : told);
    const handle = await this.send({ ...transaction, ...optional({ nonce: next }) }, { signer, sponsored, ...optional({ guardian, signal }) });
    return { quote, handle };
  }

  /**
   * Sells many inputs: each batch is sent when the one before has ended well, as it is quoted on the pools as that one
   * leaves them. Yields each batch's handle in turn, and stops after one that failed. Throws as `swap` does.
   */
  async *swapEach(
    { signer, guardian, sponsored, signal, ...asked }: MultiSwapOptions,
  ): AsyncGenerator<{ swap: MultiSwap; batch: MultiSwap["batches"][number]; handle: Handle }> {
    const { swap, transactions } = await this.#batches(asked, signer.address, optional({ signal }));
    for (const [index, batch] of swap.batches.entries()) {
      const handle = await this.send(transactions[index] as Unsigned, { signer, ...optional({ guardian, sponsored, signal }) });
      yield { swap, batch, handle };
      if ((await handle.final(optional({ signal }))).state !== "success") return;
    }
  }

  /** Makes all batches of a multi-swap at once, in their order. Throws `Refused` where the first would not be sponsored. */
  async swapAll(
    { signer, guardian, signal, ...asked }: Omit<MultiSwapOptions, "sponsored">,
  ): Promise<{ swap: MultiSwap; submitted: Submitted[] }> {
    const call = optional({ signal });
    const { swap, transactions } = await this.#batches(asked, signer.address, call);
    const drafts = transactions.map((transaction) => guarded(draft(transaction, signer.address), guardian));
    const signed: Transaction[] = [];
    for (const prepared of await this.relayer.prepareAll(drafts, call)) signed.push(await signedBy(signer, prepared, guardian));
    return { swap, submitted: signed.length ? await this.relayer.relayAll(signed) : [] };
  }

  /** Fills in what is missing, has it signed and sends it. Throws `Refused`, `Mismatch`, `WalletError`, `Unreachable`. */
  async send(transaction: Unsigned, { signer, guardian, sponsored = true, signal }: SendOptions): Promise<Handle> {
    const asked = guarded(draft(transaction, signer.address), guardian);
    const call = optional({ signal });
    const whole = sponsored ? await this.relayer.prepare(asked, call) : await this.#own(asked, call);
    const signed = await signedBy(signer, whole, guardian);
    return sponsored ? this.relayer.relay(signed) : this.relayer.broadcast(signed);
  }

  /** Ends all connections and subscriptions. */
  close(): void {
    this.relayer.close();
  }

  async #batches(parameters: MultiSwapParameters, sender: string, call: CallOptions): Promise<{ swap: MultiSwap; transactions: Unsigned[] }> {
    const asked = { ...parameters, sender };
    const swap = await this.aggregator.multiSwap(asked, call);
    // Nonces are counted from 0 where nobody told the first.
    return { swap, transactions: checkMultiSwap(asked, swap, sender, this.#trust).map(({ nonce: _, ...transaction }) => transaction) };
  }

  /** What its sender pays for. */
  async #own({ relayer: _, ...asked }: Draft, call: CallOptions): Promise<Transaction> {
    const { gasLimit, gasPrice = MIN_GAS_PRICE, value = "0", version = 2 } = asked;
    const nonce = asked.nonce ?? (await this.relayer.nonceOf(asked.sender, call));
    if (gasLimit === undefined || nonce === undefined) {
      const missing = gasLimit === undefined ? "gasLimit" : "nonce";
      throw new ClientError(`${missing} is not known here: give it, or a chainApi for nonces`);
    }
    return { ...asked, value, version, gasLimit, gasPrice, nonce } as Transaction;
  }
}

/** The fields that this client knows, and those alone that are there. */
function draft(transaction: Unsigned, sender: string): Draft {
  const { receiver, value = "0", data = "", chainID, version, nonce, gasLimit, gasPrice, options } = transaction;
  const { guardian, relayer, senderUsername, receiverUsername } = transaction;
  const rare = { options, guardian, relayer, senderUsername, receiverUsername, version };
  const numbers = { gasLimit: gasLimit ?? undefined, gasPrice: gasPrice ?? undefined, nonce: nonce ?? undefined };
  return { sender, receiver, value, data, chainID, ...optional({ ...rare, ...numbers }) } as Draft;
}

/** The same for a guarded account, with the gas that its guardian costs. Throws `WalletError` where it names another one. */
function guarded(asked: Draft, guardian?: Signer): Draft {
  const { options = 0, gasLimit } = asked;
  if (!guardian || (options & GUARDED && asked.guardian === guardian.address)) return asked;
  if (asked.guardian) throw new WalletError(`the transaction's guardian is ${asked.guardian}, and the guardian's wallet is ${guardian.address}`);
  const gas = gasLimit ? { gasLimit: BigInt(gasLimit) + BigInt(GAS.extraGasGuarded) } : {};
  return { ...asked, ...gas, options: options | GUARDED, guardian: guardian.address };
}
