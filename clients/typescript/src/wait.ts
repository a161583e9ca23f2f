// Waiting: as long as a service says, within bounds, until a signal.

/** How long a request is tried again. */
export interface Patience {
  /** Milliseconds that one answer may take, 10,000 unless said otherwise. */
  timeoutMs?: number;
  /** Tries of one request, 5 unless said otherwise. */
  attempts?: number;
  /** Milliseconds of all pauses together, 30,000 unless said otherwise; a service that says more is believed at once. */
  longestWaitMs?: number;
}

export const TIMEOUT_MS = 10_000;
const ATTEMPTS = 5;
const LONGEST_WAIT_MS = 30_000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5_000;

/** Resolves after so many milliseconds; rejects with the signal's reason as soon as that is aborted. */
export function sleep(ms: number, signal?: AbortSignal | null): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** The pause before try number `attempt` (from 1): doubled each time, bounded, with up to a half taken off by chance. */
export function pauseMs(attempt: number): number {
  return Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (attempt - 1)) * (0.5 + Math.random() / 2);
}

/** The pauses of one request: `next` waits, or says that there is no more patience. */
export class Pauses {
  #attempt = 0;
  #waited = 0;

  constructor(readonly patience: Patience, readonly signal?: AbortSignal | null) {}

  /** Waits as long as told, else by itself; false at once if that is beyond what is left. */
  async next(toldMs?: number): Promise<boolean> {
    this.#attempt++;
    const pause = Math.max(0, Number.isFinite(toldMs) ? (toldMs as number) : pauseMs(this.#attempt)); // else no number came
    const left = (this.patience.longestWaitMs ?? LONGEST_WAIT_MS) - this.#waited;
    if (this.#attempt >= (this.patience.attempts ?? ATTEMPTS) || pause > left) return false;
    this.#waited += pause;
    await sleep(pause, this.signal);
    return true;
  }
}
