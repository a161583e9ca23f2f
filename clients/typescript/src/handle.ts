// What became of a transaction: awaited from the moment before it was sent, over lost connections and restarts.

import { ClientError, OutcomeUnknown } from "./errors.js";
import type { components } from "./generated/relayer.js";
import type { StatusMessage } from "./live.js";
import type { Missed } from "./queue.js";
import type { Hashes } from "./transaction.js";

export type TransactionState = components["schemas"]["TransactionReply"];

/** What is known of a transaction. */
export interface Outcome {
  /** Without the relayer's signature. */
  hash: string;
  chainHash?: string;
  /** `superseded`: its nonce was used by another; `dropped`: no block had it; `written off`: given up by the operator. */
  state: TransactionState["state"];
  reason?: string;
  /** What the service knows beside it, where it was asked. */
  transaction?: TransactionState;
}

export interface FinalOptions {
  /** Milliseconds, 120,000 unless said otherwise; then `OutcomeUnknown`. */
  timeoutMs?: number;
  signal?: AbortSignal;
}

const ENDS = ["success", "fail", "superseded", "dropped", "written off"];
const hasEnded = ({ state }: Outcome): boolean => ENDS.includes(state);

type Statuses = AsyncIterableIterator<StatusMessage | Missed>;

/** How a handle hears of its transaction. */
export interface Ears {
  /** Subscribes to its status. */
  listen(): Promise<Statuses>;
  /** Subscribes again where the subscription may have ended at the relayer. */
  refresh(): Promise<void>;
  /** Asks what is known; undefined: nothing. */
  lookup(hash: string): Promise<TransactionState | undefined>;
}

const TIMEOUT_MS = 120_000;
const CHECK_MS = 5_000; // between questions for what a lost connection may have cost; pushes are what is waited for
const LIFETIME_MS = 55_000; // a subscription ends 60 s after it began

/**
 * A transaction on its way. Listening began before it was sent; `final` may be awaited at any time, and again. Where nobody
 * awaits it the subscription is left when it would end at the relayer, so that handles nobody cares for hold nothing.
 */
export class Handle {
  /** Whether the relayer said that it took it; undefined while its answer is lost. */
  accepted: boolean | undefined;
  /** The newest that is known. */
  last: Outcome;
  #waiting: (() => void)[] = [];
  #since = performance.now(); // clocks may be set meanwhile
  #checking: Promise<void> | undefined;
  #readers = 0;
  readonly #ears: Ears;
  #hears = false;
  #left: (() => void) | undefined;

  constructor(
    readonly hashes: Hashes,
    statuses: Statuses,
    ears: Ears,
  ) {
    this.#ears = ears;
    this.last = { hash: hashes.clientHash, state: "pending" };
    void this.#hear(statuses);
  }

  /** The hash that is known before it is sent; the relayer knows the transaction by it. */
  get clientHash(): string {
    return this.hashes.clientHash;
  }

  /** The chain's hash, as soon as the relayer has told it. */
  get hash(): string {
    return this.hashes.chainHash ?? this.clientHash;
  }

  /** How it ended: `success`, `fail` with a `reason`, … Throws `OutcomeUnknown` when nobody can say in time. */
  async final(options: FinalOptions = {}): Promise<Outcome> {
    for await (const _ of this.progress(options));
    return this.last;
  }

  /** Every state as it becomes known, the final one last. Throws `OutcomeUnknown` as `final` does. */
  async *progress({ timeoutMs = TIMEOUT_MS, signal }: FinalOptions = {}): AsyncGenerator<Outcome> {
    const until = performance.now() + timeoutMs;
    let told: string | undefined;
    this.#readers++;
    try {
      if (!this.#hears) this.#checkSoon();
      for (;;) {
        if (this.last.state !== told) {
          told = this.last.state;
          yield this.last;
          continue; // who reads may have taken his time: it may have gone on meanwhile
        }
        if (hasEnded(this.last)) return;
        signal?.throwIfAborted();
        const left = until - performance.now();
        if (left <= 0) throw this.#unknown(timeoutMs);
        if (await this.#woken(Math.min(CHECK_MS, left), signal)) continue;
        await Promise.race([this.check(), this.#woken(Math.max(0, until - performance.now()), signal)]);
      }
    } finally {
      this.#readers--;
    }
  }

  /** Asks now instead of waiting to be told; at most one question at a time. */
  check(): Promise<void> {
    this.#checking ??= this.#check().finally(() => (this.#checking = undefined));
    return this.#checking;
  }

  /** The same without waiting: who awaits the end sees its failure at the next question. */
  #checkSoon(): void {
    this.check().catch(() => {});
  }

  /** Listens no more: nobody wants to know. */
  stop(): void {
    this.#left?.();
  }

  #unknown(ms: number): OutcomeUnknown {
    const state = this.accepted === undefined ? "sent, its acceptance not known" : this.last.state;
    return new OutcomeUnknown(this.hash, state, this.accepted, `no end was told within ${ms} ms: ask again for it, or the chain for its hash`);
  }

  async #hear(statuses: Statuses): Promise<void> {
    this.#left = () => void statuses.return?.();
    this.#hears = true;
    this.#since = performance.now(); // clocks may be set meanwhile
    const lapse = setInterval(() => {
      if (!this.#readers) this.stop();
    }, LIFETIME_MS);
    try {
      for await (const item of statuses) {
        if (item.type === "missed") {
          this.#since = performance.now(); // clocks may be set meanwhile
          this.#checkSoon();
          continue;
        }
        const { hash, chainHash, status, reason } = item.data;
        if (status !== "success" && status !== "fail") continue; // a word of others: no end
        this.#know({ hash, state: status, ...(chainHash ? { chainHash } : {}), ...(reason ? { reason } : {}) });
        return;
      }
    } catch {
      // The subscription was refused: questions alone must do.
    } finally {
      clearInterval(lapse);
      this.#hears = false;
    }
  }

  async #check(): Promise<void> {
    // What cannot be reached now is asked again.
    const unlessUnreachable = (error: unknown): undefined => {
      if (!(error instanceof ClientError)) throw error;
    };
    const known = await this.#ears.lookup(this.clientHash).catch(unlessUnreachable);
    if (known) {
      const { state, chainHash, reason } = known;
      this.#know({
        hash: this.clientHash, state, transaction: known, ...(chainHash ? { chainHash } : {}), ...(reason ? { reason } : {}),
      });
    }
    if (hasEnded(this.last)) return;
    if (!this.#hears) {
      const statuses = await this.#ears.listen().catch(unlessUnreachable);
      if (statuses) void this.#hear(statuses);
    } else if (performance.now() - this.#since > LIFETIME_MS) {
      await this.#ears.refresh().then(() => (this.#since = performance.now()), unlessUnreachable);
    }
  }

  #know(known: Outcome): void {
    this.accepted = true;
    if (hasEnded(this.last)) return;
    const isNews = known.state !== this.last.state;
    this.last = known;
    if (known.chainHash) this.hashes.chainHash = known.chainHash;
    if (hasEnded(known)) this.stop();
    if (isNews) for (const wake of this.#waiting.splice(0)) wake();
  }

  /** Whether there was news within so many milliseconds. */
  #woken(ms: number, signal: AbortSignal | undefined): Promise<boolean> {
    if (hasEnded(this.last)) return Promise.resolve(true);
    return new Promise((resolve) => {
      const done = (woken: boolean) => (): void => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", stop);
        this.#waiting = this.#waiting.filter((other) => other !== wake);
        resolve(woken);
      };
      const wake = done(true);
      const stop = done(true);
      const timer = setTimeout(done(false), ms);
      signal?.addEventListener("abort", stop, { once: true });
      this.#waiting.push(wake);
    });
  }
}
