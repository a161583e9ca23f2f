// The notifier's hub: events of the chain in order, each once, resumed after the last one that was handled.

import { fromHex, utf8 } from "./bytes.js";
import { ConnectionLost, QueueFull, Refused } from "./errors.js";
import { decodeMessage, encodeMessage } from "./protobuf.js";
import { Socket, type SocketOptions } from "./socket.js";

/** Which events: all, or those whose log events fit; see the notifier's page for the levels. */
export type HubFilter =
  | { level?: "All" }
  | { level: "Address"; address: string }
  | { level: "Identifier"; identifier: string }
  | { level: "AddressIdentifier"; address: string; identifier: string }
  | { level: "Topics"; topics: readonly string[]; address?: string; identifier?: string };

export interface HubOptions extends SocketOptions {
  filter?: HubFilter;
  /** The sequence of the last event that was handled: what came after it comes first. 0n: from the beginning. */
  resumeAfter?: bigint;
  /** Events that wait for the reader at most, 4,096; the hub's own window is smaller unless it was set otherwise. */
  limit?: number;
}

export type HubEvent =
  /** `payload` is the event's protobuf message; keep `sequence` once it is handled, to resume after it. */
  | { type: "event"; topic: string; sequence: bigint; payload: Uint8Array; marks: number }
  /** These events are gone for good. */
  | { type: "gap"; first: bigint; last: bigint };

const LIMIT = 4_096;
const ACKNOWLEDGEMENT = 1n;
const MESSAGE = 2n;
const NAME = "client";
/** Pings are not seen here: after so long without a frame a question that changes nothing must be answered in time. */
const SILENCE_MS = 30_000;
const ANSWER_MS = 10_000;

type Values = Map<number, bigint | Uint8Array<ArrayBuffer>>;

/**
 * Events of the hub until the iteration is left. One is acknowledged when the next is asked for, so what is not handled
 * when this process ends comes again to who resumes. Connects again by itself; nothing is lost or comes twice then, and
 * what the hub no longer has comes as `gap`.
 */
export class HubConsumer implements AsyncIterableIterator<HubEvent> {
  readonly #socket: Socket;
  readonly #items: HubEvent[] = [];
  #waiting: { resolve(result: IteratorResult<HubEvent>): void; reject(error: unknown): void } | undefined;
  #received: bigint | undefined; // the newest that came
  #handed: bigint | undefined; // the newest that was handed out
  #handled: bigint | undefined; // the newest whose reader has asked for the next
  #ended = false;
  #error: unknown;
  #silence: ReturnType<typeof setTimeout> | undefined;

  constructor(url: string, readonly options: HubOptions = {}) {
    this.#received = this.#handed = this.#handled = options.resumeAfter;
    const events = {
      open: () => {
        this.#listen();
        this.#socket.send(this.#subscription());
      },
      message: (data: string | ArrayBuffer) => this.#take(data),
      down: () => clearTimeout(this.#silence),
    };
    this.#socket = new Socket(url, events, options);
  }

  /** The sequence to resume after. */
  get last(): bigint | undefined {
    return this.#handled;
  }

  next(): Promise<IteratorResult<HubEvent>> {
    this.#acknowledge();
    const item = this.#items.shift();
    if (item) return Promise.resolve({ value: this.#hand(item), done: false });
    if (this.#error !== undefined) {
      const error = this.#error;
      this.#error = undefined;
      return Promise.reject(error);
    }
    if (this.#ended) return Promise.resolve({ value: undefined, done: true });
    if (this.#waiting) return Promise.reject(new QueueFull("an event is waited for already: one reader at a time"));
    return new Promise((resolve, reject) => (this.#waiting = { resolve, reject }));
  }

  return(): Promise<IteratorResult<HubEvent>> {
    this.#items.length = 0;
    this.#end();
    return Promise.resolve({ value: undefined, done: true });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #end(error?: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#error = error;
    clearTimeout(this.#silence);
    this.#socket.close();
    const waiting = this.#waiting;
    this.#waiting = undefined;
    if (!waiting) return;
    this.#error = undefined;
    if (error === undefined) waiting.resolve({ value: undefined, done: true });
    else waiting.reject(error);
  }

  #listen(): void {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => {
      const nobody = encodeMessage([[5, utf8(`${NAME}-silence`)]]);
      this.#socket.send(encodeMessage([[3, MESSAGE], [4, nobody], [5, utf8("unsubscribe")]]));
      this.#silence = setTimeout(() => this.#socket.renew("silence"), ANSWER_MS);
    }, SILENCE_MS);
  }

  #subscription(): Uint8Array<ArrayBuffer> {
    const { level = "All", ...rest } = { ...this.options.filter } as { level?: string } & Record<string, unknown>;
    const text = (name: string): Uint8Array => utf8(String(rest[name] ?? ""));
    const topics = ((rest.topics ?? []) as string[]).map((topic) => [4, utf8(topic)] as const);
    const wish = encodeMessage([[1, utf8(level)], [2, text("address")], [3, text("identifier")], ...topics, [5, utf8(NAME)]]);
    // An optional number is written where it is 0, too: from the beginning is another wish than from now on.
    const after = this.#received === 0n ? fromHex("3000") : encodeMessage([[6, this.#received ?? 0n]]);
    return encodeMessage([[3, MESSAGE], [4, Uint8Array.from([...wish, ...after])], [5, utf8("subscribe")]]);
  }

  #take(data: string | ArrayBuffer): void {
    if (this.#ended || typeof data === "string") return;
    this.#listen();
    const envelope = read(new Uint8Array(data));
    if (number(envelope, 3) !== MESSAGE) return;
    this.#socket.works();
    const payload = bytes(envelope, 4);
    const topic = new TextDecoder().decode(bytes(envelope, 5));
    if (topic === "subscribe") return this.#subscribed(read(payload));
    if (topic === "unsubscribe") return; // the answer to the question above
    if (topic === "gap") {
      const gap = read(payload);
      const last = number(gap, 2);
      this.#received = last > (this.#received ?? 0n) ? last : this.#received;
      return this.#push({ type: "gap", first: number(gap, 1), last });
    }
    const sequence = number(envelope, 2);
    if (this.#received !== undefined && sequence <= this.#received) return this.#acknowledge();
    this.#received = sequence;
    this.#push({ type: "event", topic, sequence, payload: payload.slice(), marks: Number(number(envelope, 7)) });
  }

  #subscribed(reply: Values): void {
    const head = number(reply, 4);
    if (number(reply, 2)) {
      if (this.#received === undefined) this.#received = this.#handed = this.#handled = head;
      return;
    }
    const reason = new TextDecoder().decode(bytes(reply, 3));
    if (this.#received === undefined || this.#received <= head) {
      return this.#end(new Refused({ reason, code: "hub_refused", detail: "change the filter" }));
    }
    // The hub's journal is another one than it was, and does not have what would come next: begin with what it has.
    this.#received = head;
    this.#push({ type: "gap", first: this.#handled === undefined ? 0n : this.#handled + 1n, last: head });
    this.#socket.send(this.#subscription());
  }

  #push(item: HubEvent): void {
    if (this.#waiting) {
      const { resolve } = this.#waiting;
      this.#waiting = undefined;
      return resolve({ value: this.#hand(item), done: false });
    }
    if (this.#items.length >= (this.options.limit ?? LIMIT)) {
      // Nothing may be left out: what did not fit is asked for again when there is room.
      const oldest = this.#items.length;
      return this.#end(new QueueFull(`${oldest} events wait for their reader: resume after the last one handled`));
    }
    this.#items.push(item);
  }

  #hand(item: HubEvent): HubEvent {
    this.#handed = item.type === "event" ? item.sequence : item.last;
    return item;
  }

  #acknowledge(): void {
    if (this.#handed === undefined || this.#handed === this.#handled) return;
    this.#handled = this.#handed;
    this.#socket.send(encodeMessage([[2, this.#handled], [3, ACKNOWLEDGEMENT]]));
  }
}

function read(message: Uint8Array<ArrayBuffer>): Values {
  return new Map(decodeMessage(message).map(({ number: name, value }) => [name, value]));
}

function number(message: Values, name: number): bigint {
  const value = message.get(name) ?? 0n;
  if (typeof value !== "bigint") throw new ConnectionLost(`field ${name} of the hub's message is no number`);
  return value;
}

function bytes(message: Values, name: number): Uint8Array<ArrayBuffer> {
  const value = message.get(name);
  return value instanceof Uint8Array ? value : new Uint8Array();
}
