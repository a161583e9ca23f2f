// The relayer: who pays, what would be paid for, submissions with handles, and live topics.

import { shardOf } from "./address.js";
import { ConnectionLost, MillraceError, OutcomeUnknown, Refused } from "./errors.js";
import type { components } from "./generated/relayer.js";
import { type CallOptions, Http, type HttpOptions } from "./http.js";
import { TransactionHandle, type TransactionState } from "./handle.js";
import { Live, type MessageOf, type NetworkStatsMessage, TOPICS_PER_CONNECTION } from "./live.js";
import type { Missed, QueueOptions } from "./queue.js";
import { inNode, type SocketOptions } from "./socket.js";
import { networkStats } from "./stats.js";
import { hashesOf, type Transaction } from "./transaction.js";
import { Pauses } from "./wait.js";

type Schemas = components["schemas"];
export type Relayers = Schemas["RelayersReply"];
export type RelayerOfShard = Schemas["RelayerItem"];
export type Prepared = Schemas["PrepareReply"];
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
  /** A chain API, `{chainApi}/transactions/{hash}`: asked where the relayer itself knows nothing of a transaction. */
  chainApi?: string;
}

/** One transaction of a submission: on its way, or refused. */
export type Outcome = TransactionHandle | Refused;

const RELAYERS_MS = 60_000; // how long an answer of /v1/relayers is used
const MAX_CONNECTIONS = 16;
const MAX_BATCH = 100;
const FAILED = ["fail", "invalid"]; // words of the chain API
/** Refusals that the same bytes may not meet again after the time they tell. */
const PASSING = ["relayer_busy", "rate_limit_exceeded", "account_state_unavailable", "not_ready", "signer_unavailable"];

/** A relayer's REST interface and its WebSockets. `url` is that of the former, `socketUrl` that of the latter. */
export class Relayer {
  readonly #http: Http;
  readonly #socketUrl: string;
  readonly #lives: Live[] = [];
  readonly #options: RelayerOptions;
  readonly #chain: Http | undefined;
  #relayers: { at: number; answer: Promise<Relayers> } | undefined;

  constructor(url: string, socketUrl: string, options: RelayerOptions = {}) {
    const headers = { ...options.headers, ...(options.apiKey ? { Authorization: `Bearer ${options.apiKey}` } : {}) };
    this.#options = { ...options, headers };
    this.#http = new Http(url, this.#options, true);
    this.#socketUrl = socketUrl.replace(/\/+$/, "").replace(/\/ws$/, "");
    const { fetch } = options;
    this.#chain = options.chainApi ? new Http(options.chainApi, fetch ? { fetch } : {}, false) : undefined;
  }

  /** Whom to name as `relayer` in each shard, and on what terms; remembered for a minute. */
  relayers(call?: CallOptions): Promise<Relayers> {
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

  /** What would be sponsored, before it is signed. */
  prepare(transaction: Wish, call?: CallOptions): Promise<Prepared> {
    return this.#http.post("/v1/prepare", { transaction }, call);
  }

  /** What is known of a transaction by any of its hashes. Throws `Refused` with status 404 where nothing is. */
  transaction(hash: string, call?: CallOptions): Promise<TransactionState> {
    return this.#http.get(`/v1/transactions/${encodeURIComponent(hash)}`, call);
  }

  /** Co-signatures without sending anything. */
  sign(transactions: readonly Transaction[], call?: CallOptions): Promise<Signed> {
    return this.#http.post("/v1/sign", { transactions }, call);
  }

  networkStatsHistory(
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

  /** Has a transaction co-signed, paid for and sent. Throws `Refused`, or `OutcomeUnknown` where no answer came. */
  async relay(transaction: Transaction): Promise<TransactionHandle> {
    return only(await this.relayAll([transaction]));
  }

  /** Sends a fully signed transaction. Throws as `relay` does. */
  async broadcast(transaction: Transaction): Promise<TransactionHandle> {
    return only(await this.broadcastAll([transaction]));
  }

  /** The same for up to 100 transactions: each one's handle or refusal, in their order. */
  relayAll(transactions: readonly Transaction[]): Promise<Outcome[]> {
    return this.#submit("relay", transactions);
  }

  broadcastAll(transactions: readonly Transaction[]): Promise<Outcome[]> {
    return this.#submit("broadcast", transactions);
  }

  /** The handle of a transaction that was sent already, or that somebody else sends; sends nothing. */
  async follow(transaction: Transaction): Promise<TransactionHandle> {
    const hashes = hashesOf(transaction);
    const topic = `tx-status/${hashes.clientHash}` as const;
    const live = this.#liveFor(topic);
    const ears = {
      listen: async () => this.#liveFor(topic).subscribe(topic),
      refresh: () => live.refresh(topic),
      lookup: (hash: string) => this.#lookup(hash, hashes.chainHash), // which the reply may tell later
    };
    return new TransactionHandle(hashes, await live.subscribe(topic), ears);
  }

  /** The next nonce of an account by the chain API; undefined without one. */
  async nonceOf(address: string): Promise<number | undefined> {
    return (await this.#chain?.get<{ nonce: number }>(`/accounts/${address}`))?.nonce;
  }

  /** Messages of a topic: `tx-status/{hash}`, `address/{bech32}`, `accounts`, `gasStats`, `networkStats`. See `Live`. */
  subscribe<T extends string>(topic: T, options?: QueueOptions): Promise<AsyncIterableIterator<MessageOf<T> | Missed>> {
    return this.#liveFor(topic).subscribe(topic, options);
  }

  /** The network's statistics four times a second, from `/ws/stats`. */
  networkStats(options?: QueueOptions): AsyncIterableIterator<NetworkStatsMessage | Missed> {
    return networkStats(`${this.#socketUrl}/ws/stats`, { ...this.#sockets(), ...options });
  }

  /** Ends all connections and subscriptions. */
  close(): void {
    for (const live of this.#lives.splice(0)) live.close();
  }

  #sockets(): SocketOptions {
    const { WebSocket, headers } = this.#options;
    return { ...(WebSocket ? { WebSocket } : {}), ...(headers && inNode() ? { headers } : {}) };
  }

  /** A connection with room for a topic. Throws `Refused` where all are full. */
  #liveFor(topic: string): Live {
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

  async #submit(action: "relay" | "broadcast", transactions: readonly Transaction[]): Promise<Outcome[]> {
    if (transactions.length === 0 || transactions.length > MAX_BATCH) {
      throw new RangeError(`1 to ${MAX_BATCH} transactions at once, not ${transactions.length}`);
    }
    const handles = await Promise.all(transactions.map((transaction) => this.follow(transaction)));
    const outcomes: Outcome[] = handles.slice();
    const pauses = new Pauses(this.#options);
    let open = handles.map((_, index) => index);
    try {
      for (;;) {
        const asked = open;
        const reply = await this.#send(action, asked.map((index) => transactions[index] as Transaction), pauses);
        const again: number[] = [];
        const refused = new Map((reply.failed ?? []).map((item) => [item.index, item]));
        const chain = chainHashes(reply, asked.length, refused);
        asked.forEach((index, place) => {
          const item = refused.get(place);
          const handle = handles[index] as TransactionHandle;
          handle.accepted = !item;
          if (!item) {
            handle.hashes.chainHash ??= chain.get(place);
            return;
          }
          outcomes[index] = new Refused({ ...item, index });
          if (PASSING.includes(item.code)) again.push(index);
        });
        const wait = Math.max(0, ...again.map((index) => (outcomes[index] as Refused).retryAfterMs ?? 0));
        if (!again.length || !(await pauses.next(wait || undefined))) break;
        for (const index of again) outcomes[index] = handles[index] as TransactionHandle;
        open = again;
      }
    } catch (error) {
      // The answer is lost, what it said may not be: whoever is known was taken.
      if (error instanceof OutcomeUnknown) await Promise.all(handles.map((handle) => handle.check()));
      if (!handles.every((handle) => handle.accepted)) {
        for (const handle of handles) handle.stop();
        throw error;
      }
    }
    outcomes.forEach((outcome, index) => {
      if (outcome instanceof Refused) handles[index]?.stop();
    });
    return outcomes;
  }

  /** One reply for these bytes, sent again where an answer was lost: the same bytes have the same hash. */
  async #send(action: string, transactions: Transaction[], pauses: Pauses): Promise<Submission> {
    for (;;) {
      try {
        return await this.#ask(action, transactions);
      } catch (error) {
        const told = error instanceof Refused && PASSING.includes(error.code) ? error.retryAfterMs ?? 1000 : undefined;
        if (!(error instanceof ConnectionLost) && told === undefined) throw error;
        if (await pauses.next(told)) continue;
        if (error instanceof Refused) throw error;
        const { clientHash } = hashesOf(transactions[0] as Transaction);
        const text = `no answer to ${action} of ${clientHash}: ${(error as Error).message}`;
        throw new OutcomeUnknown(clientHash, undefined, `${text}. Send the same bytes again, or ask for the hash`);
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

  async #lookup(hash: string, chainHash: string | undefined): Promise<TransactionState | undefined> {
    try {
      return await this.transaction(hash);
    } catch (error) {
      if (error instanceof Refused && error.status === 404) return this.#onChain(hash, chainHash);
      if (!(error instanceof MillraceError) || !this.#chain) throw error;
      return this.#onChain(hash, chainHash);
    }
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

/** The chain's hashes by place: as the reply links them, else in the order of what was accepted. */
function chainHashes({ results, hashes }: Partial<Submission>, count: number, refused: Map<number, unknown>): Map<number, string> {
  if (results?.length) return new Map(results.map(({ index, hash }) => [index, hash]));
  const places = Array.from({ length: count }, (_, place) => place).filter((place) => !refused.has(place));
  return new Map((hashes ?? []).map((hash, at) => [places[at] ?? -1, hash]));
}

function only(outcomes: Outcome[]): TransactionHandle {
  const [outcome] = outcomes;
  if (outcome instanceof Refused) throw outcome;
  return outcome as TransactionHandle;
}
