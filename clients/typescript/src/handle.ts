// What became of a transaction: awaited from the moment before it was sent, over lost connections and restarts.

import { MillraceError, OutcomeUnknown } from "./errors.js";
import type { components } from "./generated/relayer.js";
import type { StatusMessage } from "./live.js";
import type { Missed } from "./queue.js";
import type { Hashes } from "./transaction.js";

export type TransactionState = components["schemas"]["TransactionReply"];

/** How a transaction ended. */
export interface Final {
  hash: string;
  chainHash?: string;
  /** `superseded`: its nonce was used by another; `dropped`: no block had it; `written off`: given up by the operator. */
  state: "success" | "fail" | "superseded" | "dropped" | "written off";
  reason?: string;
  /** What the service knows beside it, where it was asked. */
  transaction?: TransactionState;
}

export interface FinalOptions {
  /** Milliseconds, 120,000 unless said otherwise; then `OutcomeUnknown`. */
  timeoutMs?: number;
  signal?: AbortSignal;
}

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
const CHECK_MS = 10_000;
const LIFETIME_MS = 55_000; // a subscription ends 60 s after it began

/**
 * A transaction on its way. Listening began before it was sent; `final` may be awaited at any time, and again. Where nobody
 * awaits it the subscription is left when it would end at the relayer, so that handles nobody cares for hold nothing.
 */
export class TransactionHandle {
  /** Whether the relayer said that it took it; undefined while its answer is lost. */
  accepted: boolean | undefined;
  #final: Final | undefined;
  #waiting: (() => void)[] = [];
  #since = performance.now(); // clocks may be set meanwhile
  #checking: Promise<void> | undefined;
  #readers = 0;
  #hears = false;
  #left: (() => void) | undefined;

  constructor(
    readonly hashes: Hashes,
    statuses: Statuses,
    private readonly ears: Ears,
  ) {
    void this.#hear(statuses);
  }

  /** The hash it was subscribed to by: without the relayer's signature. */
  get hash(): string {
    return this.hashes.clientHash;
  }

  /** The end, if it is known by now. */
  get ended(): Final | undefined {
    return this.#final;
  }

  /** How it ended. Throws `OutcomeUnknown` when nobody can say in time. */
  async final({ timeoutMs = TIMEOUT_MS, signal }: FinalOptions = {}): Promise<Final> {
    const until = performance.now() + timeoutMs;
    this.#readers++;
    try {
      return await this.#wait(until, timeoutMs, signal);
    } finally {
      this.#readers--;
    }
  }

  async #wait(until: number, timeoutMs: number, signal: AbortSignal | undefined): Promise<Final> {
    if (!this.#hears) this.#checkSoon();
    while (!this.#final) {
      signal?.throwIfAborted();
      const left = until - performance.now();
      if (left <= 0) throw this.unknown(`no end of ${this.hash} was told within ${timeoutMs} ms`);
      if (await this.#woken(Math.min(CHECK_MS, left), signal)) continue;
      await Promise.race([this.check(), this.#woken(Math.max(0, until - performance.now()), signal)]);
    }
    return this.#final;
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

  unknown(text: string): OutcomeUnknown {
    const taken = this.accepted ? "the relayer took it" : "whether the relayer took it is not known";
    return new OutcomeUnknown(this.hash, this.accepted, `${text}; ${taken}: ask again for it, or the chain for its hash`);
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
        const state = status === "success" ? "success" : "fail";
        this.#end({ hash, state, ...(chainHash ? { chainHash } : {}), ...(reason ? { reason } : {}) });
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
      if (!(error instanceof MillraceError)) throw error;
    };
    const known = await this.ears.lookup(this.hash).catch(unlessUnreachable);
    if (known) {
      this.accepted = true;
      this.#know(known);
    }
    if (this.#final) return;
    if (!this.#hears) {
      const statuses = await this.ears.listen().catch(unlessUnreachable);
      if (statuses) void this.#hear(statuses);
    } else if (performance.now() - this.#since > LIFETIME_MS) {
      await this.ears.refresh().then(() => (this.#since = performance.now()), unlessUnreachable);
    }
  }

  #know(known: TransactionState): void {
    const { state, chainHash, reason } = known;
    if (state === "pending" || state === "included") return;
    this.#end({
      hash: this.hash, state, transaction: known, ...(chainHash ? { chainHash } : {}), ...(reason ? { reason } : {}),
    });
  }

  #end(final: Final): void {
    if (this.#final) return;
    this.#final = final;
    this.accepted = true;
    this.stop();
    for (const wake of this.#waiting.splice(0)) wake();
  }

  /** Whether an end came within so many milliseconds. */
  #woken(ms: number, signal: AbortSignal | undefined): Promise<boolean> {
    if (this.#final) return Promise.resolve(true);
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
