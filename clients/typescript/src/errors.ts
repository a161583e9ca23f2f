// What can go wrong, as exceptions that say why and what to do.

/** Every exception of this client. */
export class MillraceError extends Error {
  override name = "MillraceError";
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
export class Refused extends MillraceError implements Refusal {
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
export class ConnectionLost extends MillraceError {
  override name = "ConnectionLost";
}

/** Nobody could say in time what became of a transaction; `final()` of its handle can be awaited again. */
export class OutcomeUnknown extends MillraceError {
  override name = "OutcomeUnknown";
  constructor(
    /** The client hash: ask `relayer.transaction(hash)`, or the chain. */
    readonly hash: string,
    /** Whether the relayer said that it took it; undefined: its answer was lost. */
    readonly accepted: boolean | undefined,
    text: string,
  ) {
    super(text);
  }
}

/** A reader took too little: its queue is full and its policy is to end. */
export class QueueFull extends MillraceError {
  override name = "QueueFull";
}

/** A reason in snake case without what is quoted in it: `unknown token_in 'X'` is `unknown_token_in`. */
export function codeOf(reason: string): string {
  return reason.replace(/'[^']*'/g, "").toLowerCase().replace(/[^a-z0-9]+/g, "_").replace(/^_+|_+$/g, "");
}
