// A bounded queue between a connection and whoever iterates over it.

import { SlowReader } from "./errors.js";

/**
 * What a full queue does: `drop` forgets the oldest item and says how many, `latest` has room for the newest alone and
 * says nothing, `close` ends the iteration with `SlowReader`.
 */
export type Policy = "drop" | "latest" | "close";

export interface QueueOptions {
  /** Items kept for the reader, 1,024 unless said otherwise. */
  size?: number;
  policy?: Policy;
}

/** Something was not delivered. */
export interface Missed {
  type: "missed";
  /** `connection`: the connection was down meanwhile; `overflow`: the queue was full; `sender`: the service left it out. */
  reason: "connection" | "overflow" | "sender";
  /** How many, where that is known. */
  count?: number;
  /** Milliseconds since the epoch: what came between these two moments is not known. */
  from?: number;
  to?: number;
}

const SIZE = 1024;

const isMissed = (item: unknown): item is Missed => (item as { type?: unknown } | null)?.type === "missed";

/** One notice for two that say the same of adjoining times. */
function merged(first: Missed, second: Missed): Missed {
  const whole: Missed = { type: "missed", reason: first.reason };
  if (first.count !== undefined || second.count !== undefined) whole.count = (first.count ?? 0) + (second.count ?? 0);
  const from = first.from ?? second.from;
  const to = second.to ?? first.to;
  return { ...whole, ...(from === undefined ? {} : { from }), ...(to === undefined ? {} : { to }) };
}

/** One notice of each reason, in the order of their first. */
function joined(notices: readonly Missed[]): Missed[] {
  const whole: Missed[] = [];
  for (const notice of notices) {
    const same = whole.findIndex((other) => other.reason === notice.reason);
    if (same < 0) whole.push(notice);
    else whole[same] = merged(whole[same] as Missed, notice);
  }
  return whole;
}

/** Items in order, to be iterated over once. Ends with `end`, and when the iteration is left. */
export class Queue<T> implements AsyncIterableIterator<T | Missed> {
  readonly #items: (T | Missed)[] = [];
  readonly #most: number;
  readonly #policy: Policy;
  readonly #waiting: { resolve(result: IteratorResult<T | Missed>): void; reject(error: unknown): void }[] = [];
  #size = 0; // items that are no notices
  #ended = false;
  #error: unknown;

  constructor(options: QueueOptions = {}, readonly onLeft: () => void = () => {}) {
    this.#policy = options.policy ?? "drop";
    this.#most = this.#policy === "latest" ? 1 : Math.max(1, options.size ?? SIZE);
  }

  get ended(): boolean {
    return this.#ended;
  }

  push(item: T | Missed): void {
    if (this.#ended) return;
    const waiting = this.#waiting.shift();
    if (waiting) return waiting.resolve({ value: item, done: false });
    if (isMissed(item)) return this.#note(item);
    if (this.#size >= this.#most) {
      if (this.#policy === "close") {
        this.end(new SlowReader(`more than ${this.#most} items wait for their reader: read faster, or raise size`));
        return this.onLeft();
      }
      this.#forgetOldest();
    }
    this.#items.push(item);
    this.#size++;
  }

  /** No more items come; what is there is still handed out, then the error if there is one. */
  end(error?: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    const waiting = this.#waiting.shift();
    if (error !== undefined && waiting) waiting.reject(error);
    else {
      this.#error = error;
      waiting?.resolve({ value: undefined, done: true });
    }
    for (const other of this.#waiting.splice(0)) other.resolve({ value: undefined, done: true });
  }

  next(): Promise<IteratorResult<T | Missed>> {
    const item = this.#items.shift();
    if (item !== undefined) {
      if (!isMissed(item)) this.#size--;
      return Promise.resolve({ value: item, done: false });
    }
    if (this.#error !== undefined) {
      const error = this.#error;
      this.#error = undefined;
      return Promise.reject(error);
    }
    if (this.#ended) return Promise.resolve({ value: undefined, done: true });
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  return(): Promise<IteratorResult<T | Missed>> {
    this.#items.length = this.#size = 0;
    this.end();
    this.onLeft();
    return Promise.resolve({ value: undefined, done: true });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Drops the first item that is no notice, and joins the notices that are now at the front: so they are always few. */
  #forgetOldest(): void {
    const front = this.#items.splice(0, this.#items.findIndex((item) => !isMissed(item)) + 1).slice(0, -1) as Missed[];
    if (this.#policy === "drop") front.push({ type: "missed", reason: "overflow", count: 1 });
    while (this.#items.length && isMissed(this.#items[0])) front.push(this.#items.shift() as Missed);
    this.#items.unshift(...joined(front));
    this.#size--;
  }

  #note(notice: Missed): void {
    let start = this.#items.length;
    while (start > 0 && isMissed(this.#items[start - 1])) start--;
    const last = this.#items.splice(start) as Missed[];
    this.#items.push(...joined([...last, notice]));
  }
}
