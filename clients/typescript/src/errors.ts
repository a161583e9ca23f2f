// What can go wrong, as exceptions that say why and what to do.

/** Every exception of this client. */
export class ClientError extends Error {
  override name = "ClientError";
}

export interface Refusal {
  reason: string;
  /** Stable, in snake case. */
  code: string;
  detail?: string | undefined;
  /** When the same may work, milliseconds from now. */
  retryAfterMs?: number | undefined;
  /** HTTP status, where it came over HTTP. */
  status?: number | undefined;
  /** Position in the batch, of one transaction of several. */
  index?: number | undefined;
}

/** A service refused: `reason` in its words, a stable `code`, and when to come again if that helps. */
export class Refused extends ClientError implements Refusal {
  override name = "Refused";
  readonly reason: string;
  readonly code: string;
  readonly detail: string | undefined;
  readonly retryAfterMs: number | undefined;
  readonly status: number | undefined;
  readonly index: number | undefined;

  constructor(refusal: Refusal) {
    super(refusal.reason + (refusal.detail ? `: ${refusal.detail}` : ""));
    this.reason = refusal.reason;
    this.code = refusal.code;
    this.detail = refusal.detail;
    this.retryAfterMs = refusal.retryAfterMs;
    this.status = refusal.status;
    this.index = refusal.index;
  }
}

/** The service cannot be reached, or the connection ended before it answered. */
export class Unreachable extends ClientError {
  override name = "Unreachable";
}

/** What became of a transaction could not be found out in time; it may still run. `final()` of its handle can be awaited again. */
export class OutcomeUnknown extends ClientError {
  override name = "OutcomeUnknown";
  constructor(
    /** What to ask for later: `relayer.outcome(hash)`, or the chain. */
    readonly hash: string,
    /** What was heard of it last. */
    readonly state: string,
    /** Whether the relayer said that it took it; undefined: its answer was lost. */
    readonly accepted: boolean | undefined,
    /** What hindered. */
    readonly why: string,
  ) {
    super(`transaction ${hash} was last known as ${state}: ${why}`);
  }
}

/** A wallet did not sign, or signed something else than it was asked to; or it is not the transaction's. */
export class WalletError extends ClientError {
  override name = "WalletError";
}

/** A reader took too little: its queue is full and its policy is to end. */
export class SlowReader extends ClientError {
  override name = "SlowReader";
}

/** A reason in snake case without what is quoted in it: `unknown token_in 'X'` is `unknown_token_in`. */
export function codeOf(reason: string): string {
  return reason.replace(/'[^']*'/g, "").toLowerCase().replace(/[^a-z0-9]+/g, "_").replace(/^_+|_+$/g, "");
}
