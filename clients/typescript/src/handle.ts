// What became of a transaction: awaited from the moment before it was sent, over lost connections and restarts.

import { ConnectionLost, MillraceError, OutcomeUnknown, Refused } from "./errors.js";
import type { components } from "./generated/relayer.js";
import type { Live, StatusMessage } from "./live.js";
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

/** Asks what is known of a transaction; undefined: nothing. */
export type Lookup = (hash: string) => Promise<TransactionState | undefined>;

const TIMEOUT_MS = 120_000;
const CHECK_MS = 10_000;
const LIFETIME_MS = 55_000; // a subscription ends 60 s after it began

/** A transaction on its way. Listening began before it was sent; `final` may be awaited at any time, and again. */
export class TransactionHandle {
  /** Whether the relayer said that it took it; undefined while its answer is lost. */
  accepted: boolean | undefined;
  #final: Final | undefined;
  #waiting: (() => void)[] = [];
  #since = Date.now();
  #checking: Promise<void> | undefined;

  constructor(
    readonly hashes: Hashes,
    private readonly live: Live,
    private readonly topic: string,
    statuses: AsyncIterableIterator<StatusMessage | Missed>,
    private readonly lookup: Lookup,
  ) {
    void this.#listen(statuses);
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
    const until = Date.now() + timeoutMs;
    while (!this.#final) {
      signal?.throwIfAborted();
      const left = until - Date.now();
      if (left <= 0) throw this.unknown(`no end of ${this.hash} was told within ${timeoutMs} ms`);
      if (await this.#woken(Math.min(CHECK_MS, left), signal)) continue;
      await Promise.race([this.check(), this.#woken(Math.max(0, until - Date.now()), signal)]);
    }
    return this.#final;
  }

  /** Asks now instead of waiting to be told; at most one question at a time. */
  check(): Promise<void> {
    this.#checking ??= this.#check().finally(() => (this.#checking = undefined));
    return this.#checking;
  }

  /** Listens no more: nobody wants to know. */
  stop(): void {
    this.#left?.();
  }

  unknown(text: string): OutcomeUnknown {
    const taken = this.accepted ? "the relayer took it" : "whether the relayer took it is not known";
    return new OutcomeUnknown(this.hash, this.accepted, `${text}; ${taken}: ask again for it, or the chain for its hash`);
  }

  #left: (() => void) | undefined;

  async #listen(statuses: AsyncIterableIterator<StatusMessage | Missed>): Promise<void> {
    this.#left = () => void statuses.return?.();
    try {
      for await (const item of statuses) {
        if (item.type === "missed") {
          this.#since = Date.now();
          void this.check();
          continue;
        }
        const { hash, chainHash, status, reason } = item.data;
        const state = status === "success" ? "success" : "fail";
        this.#end({ hash, state, ...(chainHash ? { chainHash } : {}), ...(reason ? { reason } : {}) });
        return;
      }
    } catch {
      // The subscription was refused: questions alone must do.
    }
  }

  async #check(): Promise<void> {
    try {
      const known = await this.lookup(this.hash);
      if (known) {
        this.accepted = true;
        this.#know(known);
      }
      if (!this.#final && Date.now() - this.#since > LIFETIME_MS) {
        await this.live.refresh(this.topic);
        this.#since = Date.now();
      }
    } catch (error) {
      if (!(error instanceof MillraceError)) throw error; // what cannot be reached now is asked again
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

/** Whether the same bytes may be sent again because nobody knows what became of the first ones. */
export const answerLost = (error: unknown): boolean =>
  error instanceof ConnectionLost || (error instanceof Refused && error.status === 503);
