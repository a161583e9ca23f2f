// The relayer: who pays, what would be paid for, submissions with handles, and live topics.

import { shardOf } from "./address.js";
import { checkPrepared, type Draft, GAS, Mismatch, mostGas, type Terms } from "./checks.js";
import { ClientError, Refused, Unreachable } from "./errors.js";
import type { components } from "./generated/relayer.js";
import { type CallOptions, Http, type HttpOptions } from "./http.js";
import { Handle, type TransactionState } from "./handle.js";
import {
  type AccountMessage, type GasStatsMessage, Live, type MessageOf, type NetworkStatsMessage, TOPICS_PER_CONNECTION,
} from "./live.js";
import type { Missed, QueueOptions } from "./queue.js";
import { inNode, type SocketOptions } from "./socket.js";
import { networkStats } from "./stats.js";
import { hashesOf, type Integer, type Transaction } from "./transaction.js";
import { Pauses } from "./wait.js";

type Schemas = components["schemas"];
export type Relayers = Schemas["RelayersReply"];
export type RelayerOfShard = Schemas["RelayerItem"];
export type GasRules = Schemas["GasRules"];
export type Submission = Schemas["SubmissionReply"];
export type Signed = Schemas["SignReply"];
export type RelayReply = Schemas["RelayReply"];
export type History = Schemas["History"];
export type Readiness = Schemas["Readiness"];
/** A transaction as far as a wallet knows it. */
export type Wish = Omit<Schemas["PrepareTransaction"], "nonce" | "gasPrice" | "gasLimit"> &
  Partial<Pick<Transaction, "nonce" | "gasPrice" | "gasLimit">>;

export interface RelayerOptions extends HttpOptions, SocketOptions {
  /** Of a person the operator knows; browsers then submit over HTTP, as their WebSockets take no headers. */
  apiKey?: string;
  /** A chain API: asked for nonces, and for what became of a transaction where the relayer itself knows nothing. */
  chainApi?: string;
  /** Who pays, and by which rules, where there is no `/v1/relayers`, or the network's gas rules are others than the live ones'. */
  relayers?: Pick<Relayers, "chainId"> & Partial<Relayers>;
  /** The highest gas price that a service may choose, ten times the network's least unless said otherwise. */
  maxGasPrice?: Integer;
}

/** One transaction of a submission: on its way, or refused. */
export type Submitted = Handle | Refused;
type Answer<T> = AsyncIterableIterator<T | Missed>;

const RELAYERS_MS = 60_000; // how long an answer of /v1/relayers is used
const MAX_CONNECTIONS = 64;
const MAX_BATCH = 100;
const FAILED = ["fail", "invalid"]; // words of the chain API
/** Refusals of what was sent again that may only mean that the first one arrived. */
const AFTER_A_LOSS = ["nonce_too_low", "conflicting_transaction"];
/** The same at a deployment that tells no codes. */
const WORDS_AFTER_A_LOSS = ["nonce too low", "invalid nonce"];
/** An edge says so, too, of what the relayer behind it may have taken. */
const BUSY = "relayer_busy";
/** Refusals that the same bytes may not meet again after the time they tell. */
const PASSING = ["relayer_busy", "rate_limit_exceeded", "account_state_unavailable", "not_ready", "signer_unavailable"];

/** A relayer's REST interface and its WebSockets. `url` is that of the former, `socketUrl` that of the latter. */
export class Relayer {
  readonly #http: Http;
  readonly #socketUrl: string;
  readonly #lives: Live[] = [];
  readonly #options: RelayerOptions;
  readonly #chain: Http | undefined;
  #closed = false;
  /** Rules of whoever made this client, or the live network's: the relayer's own would allow anything. */
  readonly #terms: Terms;
  #relayers: { at: number; answer: Promise<Relayers> } | undefined;

  constructor(url: string, socketUrl: string, options: RelayerOptions = {}) {
    const headers = { ...options.headers, ...(options.apiKey ? { Authorization: `Bearer ${options.apiKey}` } : {}) };
    this.#options = { ...options, headers };
    this.#http = new Http(url, this.#options, true);
    this.#socketUrl = socketUrl.replace(/\/+$/, "").replace(/\/ws$/, "");
    const { fetch } = options;
    this.#terms = { ...(options.maxGasPrice === undefined ? {} : { maxGasPrice: options.maxGasPrice }), gas: options.relayers?.gas ?? GAS };
    this.#chain = options.chainApi ? new Http(options.chainApi, fetch ? { fetch } : {}, false) : undefined;
  }

  /** Whom to name as `relayer` in each shard, and on what terms; remembered for a minute. */
  relayers(call?: CallOptions): Promise<Relayers> {
    const { relayers } = this.#options;
    if (relayers) return Promise.resolve({ shardRule: "mask", shards: 3, relayers: [], gas: GAS, ...relayers } as never);
    if (!this.#relayers || performance.now() - this.#relayers.at > RELAYERS_MS) {
      const answer = this.#http.get<Relayers>("/v1/relayers", call);
      const asked = (this.#relayers = { at: performance.now(), answer });
      answer.catch(() => {
        if (this.#relayers === asked) this.#relayers = undefined;
      });
    }
    return this.#relayers.answer;
  }

  /** The relayer of the shard an address lives in. Throws `Refused` where there is none. */
  async relayerOf(address: string): Promise<RelayerOfShard> {
    const { relayers, shardRule, shards } = await this.relayers();
    const shard = shardOf(address, shardRule, shards);
    const found = relayers.find((relayer) => relayer.shard === shard);
    if (found) return found;
    const detail = `this service has no key of shard ${shard}, where ${address} lives: sign without relayer and broadcast`;
    throw new Refused({ reason: "no relayer", code: "no_relayer", detail });
  }

  /**
   * The transaction to sign: with nonce, relayer, the gas that costs, and a gas price. Throws `Refused` where it would not be
   * sponsored, in the words of `relay`, and `Mismatch` where the relayer gives something else to sign than was asked.
   */
  async prepare(transaction: Draft, call?: CallOptions): Promise<Transaction> {
    return checkPrepared(transaction, await this.#offered(transaction, call), this.#terms);
  }

  /** Several of one sender, to be sent in their order: the nonces follow each other. Throws as `prepare` does. */
  async prepareAll([head, ...rest]: readonly Draft[], call?: CallOptions): Promise<Transaction[]> {
    if (!head) return [];
    const first = await this.prepare(head, call);
    const { gas } = rest.length ? await this.relayers(call) : this.#terms;
    return [first, ...rest.map((asked, place) => {
      const nonce = BigInt(first.nonce) + BigInt(place) + 1n;
      return checkPrepared(asked, filled(asked, nonce, first.relayer ?? "", mostGas(asked, gas), first.gasPrice), this.#terms);
    })];
  }

  /** What the relayer wants to have signed. */
  async #offered(asked: Draft, call?: CallOptions): Promise<Transaction> {
    const { chainID: _, version: __, ...transaction } = asked;
    try {
      const offer = await this.#http.post<Schemas["PrepareReply"]>("/v1/prepare", { transaction }, call);
      if (offer.sponsored && offer.transaction) return offer.transaction;
      const { reason = "not sponsored", code = "not_sponsored", detail, retryAfterMs } = offer;
      throw new Refused({ reason, code, detail, retryAfterMs });
    } catch (error) {
      if (error instanceof Refused && (error.status === 404 || error.status === 405)) return this.#filledHere(asked, call);
      throw error;
    }
  }

  /** The same for a relayer that does not prepare, from its rules and the chain API. */
  async #filledHere(asked: Draft, call?: CallOptions): Promise<Transaction> {
    const { chainId, gas } = await this.relayers(call);
    if (chainId !== asked.chainID) throw new Mismatch("relayer", "chainID", chainId, asked.chainID);
    const nonce = asked.nonce ?? (await this.nonceOf(asked.sender, call));
    if (nonce === undefined) throw new ClientError("nonce is not known here: give it, or a chainApi that tells it");
    // A gas limit that was given with a relayer is enough for it, as it is at a service that prepares.
    const most = asked.relayer && asked.gasLimit ? BigInt(asked.gasLimit) : mostGas(asked, gas);
    const payer = asked.relayer || (await this.relayerOf(asked.sender)).address;
    return filled(asked, nonce, payer, most, asked.gasPrice ?? gas.minGasPrice);
  }

  /**
   * What is known of a transaction by any of its hashes; undefined: nothing. Where the relayer cannot say, the chain API is
   * asked, which knows a sponsored one by its `chainHash` only.
   */
  async outcome(hash: string, chainHash?: string, call?: CallOptions): Promise<TransactionState | undefined> {
    try {
      return await this.#http.get(`/v1/transactions/${encodeURIComponent(hash)}`, call);
    } catch (error) {
      const isUnknown = error instanceof Refused && error.status === 404;
      if (!(error instanceof ClientError) || !(this.#chain || isUnknown)) throw error;
      return this.#onChain(hash, chainHash);
    }
  }

  /** Co-signatures without sending anything. */
  coSign(transactions: readonly Transaction[], call?: CallOptions): Promise<Signed> {
    return this.#http.post("/v1/sign", { transactions }, call);
  }

  /** The network's statistics of the past; times in milliseconds, `resolution` in seconds. */
  history(
    { from, to, resolution }: { from?: number; to?: number; resolution?: 1 | 10 | 60 | 300 | 3600 } = {}, call?: CallOptions,
  ): Promise<History> {
    return this.#http.get("/v1/network-stats/history", { ...call, query: { from, to, resolution } });
  }

  /** Whether submissions are taken, and what each key lacks. */
  ready(call?: CallOptions): Promise<Readiness> {
    return this.#http.get("/ready", { ...call, answers: [503] });
  }

  health(call?: CallOptions): Promise<Record<string, unknown>> {
    return this.#http.get("/health", { ...call, answers: [503] });
  }

  /** Co-sign and send in one request; with `wait`, seconds until all has ended or is told as far as it is known. */
  relayOnce(transactions: readonly Transaction[], { wait, ...call }: CallOptions & { wait?: number } = {}): Promise<RelayReply> {
    const query = wait === undefined ? {} : { wait: "final", timeout: wait };
    return this.#http.post("/v1/relay", { transactions }, { ...call, query, extraMs: (wait ?? 0) * 1000 });
  }

  /** Has a transaction co-signed, paid for and sent. Throws `Refused` and `Unreachable`; an answer that was lost is the handle's to find out. */
  async relay(transaction: Transaction): Promise<Handle> {
    return only(await this.relayAll([transaction]));
  }

  /** Sends a fully signed transaction. Throws as `relay` does. */
  async broadcast(transaction: Transaction): Promise<Handle> {
    return only(await this.broadcastAll([transaction]));
  }

  /** The same for up to 100 transactions: each one's handle or refusal, in their order. */
  relayAll(transactions: readonly Transaction[]): Promise<Submitted[]> {
    return this.#submit("relay", transactions);
  }

  broadcastAll(transactions: readonly Transaction[]): Promise<Submitted[]> {
    return this.#submit("broadcast", transactions);
  }

  /** The handle of a transaction that was sent already, or that somebody else sends; sends nothing. */
  async follow(transaction: Transaction): Promise<Handle> {
    const hashes = hashesOf(transaction);
    const topic = `tx-status/${hashes.clientHash}` as const;
    const live = this.#liveFor(topic);
    const ears = {
      listen: async () => this.#liveFor(topic).subscribe(topic),
      refresh: () => live.refresh(topic),
      lookup: (hash: string) => this.outcome(hash, hashes.chainHash), // which the reply may tell later
    };
    return new Handle(hashes, await live.subscribe(topic), ears);
  }

  /** The next nonce of an account by the chain API; undefined without one. */
  async nonceOf(address: string, call?: CallOptions): Promise<number | undefined> {
    return (await this.#chain?.get<{ nonce: number }>(`/accounts/${address}`, call))?.nonce;
  }

  /** Gas prices of every shard, every 50 ms each. */
  gasStats(options?: QueueOptions): Promise<Answer<GasStatsMessage>> {
    return this.subscribe("gasStats", { size: 64, ...options });
  }

  /** Balances and nonce of an account, after each final block that changed it. */
  account(address: string, options?: QueueOptions): Promise<Answer<AccountMessage>> {
    return this.subscribe(`address/${address}`, options);
  }

  /** Messages of a topic: `tx-status/{hash}`, `address/{bech32}`, `accounts`, `gasStats`, `networkStats`. See `Live`. */
  subscribe<T extends string>(topic: T, options?: QueueOptions): Promise<Answer<MessageOf<T>>> {
    return this.#liveFor(topic).subscribe(topic, options);
  }

  /** The network's statistics four times a second, from `/ws/stats`. */
  networkStats(options?: QueueOptions): Answer<NetworkStatsMessage> {
    return networkStats(`${this.#socketUrl}/ws/stats`, { ...this.#sockets(), ...options });
  }

  /** Ends all connections and subscriptions. */
  close(): void {
    this.#closed = true;
    for (const live of this.#lives.splice(0)) live.close();
  }

  #sockets(): SocketOptions {
    const { WebSocket, headers } = this.#options;
    return { ...(WebSocket ? { WebSocket } : {}), ...(headers && inNode() ? { headers } : {}) };
  }

  /** A connection with room for a topic. Throws `Refused` where all are full. */
  #liveFor(topic: string): Live {
    if (this.#closed) throw new Unreachable("the client was closed");
    const found = this.#lives.find((live) => live.holds(topic)) ??
      this.#lives.find((live) => live.topics < TOPICS_PER_CONNECTION);
    if (found) return found;
    if (this.#lives.length >= MAX_CONNECTIONS) {
      const detail = `${MAX_CONNECTIONS} connections of ${TOPICS_PER_CONNECTION} topics: leave some`;
      throw new Refused({ reason: "too many subscriptions", code: "too_many_subscriptions", detail });
    }
    const { headers: _, ...options } = this.#options;
    const live = new Live(`${this.#socketUrl}/ws`, { ...options, ...this.#sockets() });
    this.#lives.push(live);
    return live;
  }

  async #submit(action: "relay" | "broadcast", transactions: readonly Transaction[]): Promise<Submitted[]> {
    if (transactions.length === 0 || transactions.length > MAX_BATCH) {
      throw new RangeError(`1 to ${MAX_BATCH} transactions at once, not ${transactions.length}`);
    }
    const handles = await Promise.all(transactions.map((transaction) => this.follow(transaction)));
    try {
      const submitted = await this.#told(action, transactions, handles);
      submitted.forEach((one, index) => one instanceof Refused && handles[index]?.stop());
      return submitted;
    } catch (error) {
      for (const handle of handles) handle.stop();
      throw error;
    }
  }

  /** Each one's handle or refusal; what only has to wait is sent again. Throws `Refused` of all as a whole. */
  async #told(action: string, transactions: readonly Transaction[], handles: readonly Handle[]): Promise<Submitted[]> {
    const told: Submitted[] = [...handles];
    const pauses = new Pauses(this.#options);
    const lost = new Set<number>(); // places of those of which an answer was lost; what it said may not be
    let whole: Refused | undefined;
    for (let open = handles.map((_, index) => index); open.length; ) {
      const reply = await this.#send(action, open, transactions, lost, pauses);
      if (!reply) { // whoever is known was taken, also of those that were only to wait
        for (const index of open) told[index] = handles[index] as Handle;
        whole = undefined;
        await Promise.all(handles.map((handle) => handle.check()));
        break;
      }
      whole = reply instanceof Refused ? reply : undefined;
      for (const [place, one] of outcomes(reply, open.length).entries()) {
        const index = open[place] as number;
        const handle = handles[index] as Handle;
        told[index] = one instanceof Refused ? new Refused({ ...one, index }) : handle;
        if (one instanceof Refused || !one.accepted) continue;
        handle.accepted = true;
        handle.hashes.chainHash ??= one.chainHash;
      }
      open = open.filter((index) => told[index] instanceof Refused && PASSING.includes((told[index] as Refused).code));
      const wait = Math.max(0, ...open.map((index) => (told[index] as Refused).retryAfterMs ?? 0));
      if (open.length && !(await pauses.next(wait || undefined))) break;
    }
    await Promise.all([...told.entries()].map(async ([index, one]) => {
      if (!(one instanceof Refused && (lost.has(index) || one.code === BUSY))) return;
      if (await this.#mayHaveArrived(handles[index] as Handle, one)) told[index] = handles[index] as Handle;
    }));
    if (whole && told.every((one) => one instanceof Refused)) throw whole;
    told.forEach((one, index) => one instanceof Refused && ((handles[index] as Handle).accepted = false));
    return told;
  }

  /** Whether what is refused now may have been taken before. */
  async #mayHaveArrived(handle: Handle, { code, reason }: Refused): Promise<boolean> {
    const meansIt = AFTER_A_LOSS.includes(code) || WORDS_AFTER_A_LOSS.includes(reason);
    try {
      return (await this.outcome(handle.clientHash)) !== undefined || (meansIt && !this.#chain);
    } catch (error) {
      if (error instanceof ClientError) return true;
      throw error;
    }
  }

  /**
   * One reply for these bytes, or the refusal of them as a whole; sent again where an answer was lost, as the same bytes are
   * taken once. Undefined: it stayed lost, or cannot be read.
   */
  async #send(
    action: string, open: readonly number[], transactions: readonly Transaction[], lost: Set<number>, pauses: Pauses,
  ): Promise<Submission | Refused | undefined> {
    for (;;) {
      try {
        const reply = await this.#ask(action, open.map((index) => transactions[index] as Transaction));
        if (isReadable(reply)) return reply;
        for (const index of open) lost.add(index);
        return undefined;
      } catch (error) {
        if (error instanceof Refused) return error;
        if (!(error instanceof Unreachable)) throw error;
        for (const index of open) lost.add(index);
        if (!(await pauses.next())) return undefined;
      }
    }
  }

  #ask(action: string, transactions: Transaction[]): Promise<Submission> {
    if (this.#options.apiKey && !inNode()) {
      return this.#http.post(`/v1/${action}`, { transactions });
    }
    const [tx] = transactions;
    const live = this.#lives[0] as Live; // there is one: it listens for their fates
    const traceparent = this.#options.traceparent?.();
    return live.request({ action, ...(traceparent === undefined ? {} : { traceparent }), ...(transactions.length === 1 ? { tx } : { txs: transactions }) });
  }

  /** The same from the chain API, which knows a relayed transaction by its chain hash only. */
  async #onChain(hash: string, chainHash: string | undefined): Promise<TransactionState | undefined> {
    if (!this.#chain) return undefined;
    try {
      const path = `/transactions/${chainHash ?? hash}`;
      const { status, ...rest } = await this.#chain.get<{ status: string } & Partial<TransactionState>>(path);
      const state = status === "success" ? status : FAILED.includes(status) ? "fail" : "pending";
      return { ...rest, hash, clientHash: hash, state } as TransactionState;
    } catch (error) {
      if (error instanceof Refused && error.status === 404) return undefined;
      throw error;
    }
  }
}

interface Accepted {
  /** False: the reply contradicts itself, nothing is known of this one. */
  accepted: boolean;
  chainHash: string | undefined;
}

/** Whether it is a reply of this interface: whoever answers something else has told nothing. */
function isReadable(reply: Partial<Submission> | null): boolean {
  const [failed, results, hashes] = [reply?.failed ?? [], reply?.results ?? [], reply?.hashes ?? []];
  return typeof reply === "object" && reply !== null && typeof (reply.status ?? "") === "string" &&
    [failed, results, hashes].every(Array.isArray) &&
    failed.every((item) => Number.isInteger(item?.index) && typeof item.reason === "string") &&
    results.every((item) => Number.isInteger(item?.index) && typeof item.hash === "string") &&
    hashes.every((hash) => typeof hash === "string");
}

/** What a reply says of each; the chain's hashes as it links them, else in the order of what was accepted. */
function outcomes(reply: Submission | Refused, count: number): (Accepted | Refused)[] {
  if (reply instanceof Refused) return Array<Refused>(count).fill(reply);
  const refused = new Map((reply.failed ?? []).map((item) => [item.index, item]));
  const linked = new Map((reply.results ?? []).map(({ index, hash }) => [index, hash]));
  const unlinked = linked.size ? [] : [...(reply.hashes ?? [])];
  return Array.from({ length: count }, (_, place) => {
    const item = refused.get(place);
    if (item) return new Refused(item);
    return { accepted: reply.status !== "failed", chainHash: linked.get(place) ?? unlinked.shift() };
  });
}

function only([one]: Submitted[]): Handle {
  if (one instanceof Refused) throw one;
  return one as Handle;
}

/** What was asked, with what a relayer would fill in. */
function filled(asked: Draft, nonce: Integer, relayer: string, gasLimit: bigint, gasPrice: Integer): Transaction {
  const { value = "0", version = 2, gasPrice: price } = asked;
  return { ...asked, value, version, nonce, relayer, gasLimit, gasPrice: price ?? gasPrice } as Transaction;
}
