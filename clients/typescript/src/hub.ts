// The notifier's hub: events of the chain in order, each once, resumed after the last one that was handled.

import { concat, fromHex, utf8 } from "./bytes.js";
import { Unreachable, SlowReader, Refused } from "./errors.js";
import { placeFields, placeOf, placeText, Told } from "./places.js";
import { decodeMessage, encodeMessage } from "./protobuf.js";
import type { Missed } from "./queue.js";
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
  /** The sequence of the last event that was handled, of one notifier: what came after it comes first. 0n: the beginning. */
  resumeAfter?: bigint;
  /** `place` of an earlier consumer, of this client or the Python one, on any of the notifiers. */
  place?: string;
  /** What the hub calls this subscription, "client". */
  name?: string;
  /** Events that wait for the reader at most, 4,096; the hub's own window is smaller unless it was set otherwise. */
  size?: number;
}

export type HubEvent =
  /**
   * `payload` is the event's protobuf message. `sequence` is its place in the journal of the notifier that told it; `id` is
   * the same on every notifier of the network, "" where the notifier is of an earlier version.
   */
  | { type: "event"; topic: string; sequence: bigint; payload: Uint8Array; marks: number; id: string }
  /**
   * These events are gone for good; `uncounted`: and others that another journal had, nobody knows how many. Of several
   * notifiers the others were asked for them.
   */
  | { type: "gap"; first: bigint; last: bigint; uncounted: boolean }
  /** Another notifier tells now, and events without ids do not say what came meanwhile. */
  | Missed;

const SIZE = 4_096;
const ACKNOWLEDGEMENT = 1n;
const MESSAGE = 2n;
const NAME = "client";
/** Pings are not seen here: after so long without a frame a question that changes nothing must be answered in time. */
const SILENCE_MS = 30_000;
const ANSWER_MS = 10_000;

type Values = Map<number, bigint | Uint8Array<ArrayBuffer>>;

/**
 * Events of the hub until the iteration is left. One is acknowledged when the next is asked for: keep `place` then, and
 * give it to the next consumer, which goes on there. When the connection ends another one is made, with the next of the
 * notifiers where there are several, and goes on behind what came; what the hub no longer has comes as `gap`.
 *
 * With one notifier everything comes once. Another one goes on a little before the place: of what that tells again, what
 * came to this consumer before is left out; what came to an earlier one comes again, under the same `id`.
 */
export class Hub implements AsyncIterableIterator<HubEvent> {
  readonly #socket: Socket;
  readonly #items: HubEvent[] = [];
  readonly #told: Told;
  #waiting: { resolve(result: IteratorResult<HubEvent>): void; reject(error: unknown): void } | undefined;
  /** How many events came, and how many of them were handled. */
  #came = 0;
  #done = 0;
  #last: bigint | undefined;
  #head = 0n;
  /** The newest sequence of the notifier that told last, and which that is; until one did, any. */
  #newest: bigint | undefined;
  #teller: string | undefined;
  /** Notifiers that lack an unknown number of events, by what they said since the newest event came. */
  readonly #lacking = new Set<string>();
  /** What the present notifier's journal is known by. */
  #journal = "";
  /** The sequence that the present connection was asked to go on behind. */
  #after: bigint | undefined;
  #given: HubEvent | undefined;
  /** Sequences that the present connection told and that were not handled yet, in their order. */
  #open: bigint[] = [];
  /** The newest sequence that it told again, and that was left out. */
  #leftOut = 0n;
  #ended = false;
  #error: unknown;
  #silence: ReturnType<typeof setTimeout> | undefined;

  /** `url`: of one notifier's hub, or of several of the same network. Throws `RangeError` for a `place` that is none. */
  constructor(url: string | readonly string[], readonly options: HubOptions = {}) {
    const [first, ...others] = typeof url === "string" ? [url] : url;
    const { resumeAfter, place } = options;
    if (first === undefined || (resumeAfter && (others.length || place))) {
      throw new RangeError("resumeAfter belongs to one notifier: give several with a place, or none");
    }
    const begun = place ? placeOf(place) : undefined;
    this.#told = new Told(begun);
    this.#newest = resumeAfter;
    this.#teller = resumeAfter === undefined ? undefined : first;
    this.#last = begun?.after ?? resumeAfter;
    const events = {
      open: (at: string) => this.#opened(at),
      message: (data: string | ArrayBuffer) => this.#take(data),
      down: () => clearTimeout(this.#silence),
    };
    this.#socket = new Socket(first, events, options, others);
  }

  /** The sequence of the newest event that was handled, on the notifier that told it. */
  get last(): bigint | undefined {
    return this.#last;
  }

  /** Where the next consumer goes on, on any of the notifiers; "": no event with an id was handled yet. */
  get place(): string {
    const place = this.#told.place(this.#done);
    return place ? placeText(place) : "";
  }

  /** The newest sequence that the present hub spoke of. */
  get head(): bigint {
    return this.#head;
  }

  next(): Promise<IteratorResult<HubEvent>> {
    this.handled();
    const item = this.#items.shift();
    if (item) return Promise.resolve({ value: this.#hand(item), done: false });
    if (this.#error !== undefined) {
      const error = this.#error;
      this.#error = undefined;
      return Promise.reject(error);
    }
    if (this.#ended) return Promise.resolve({ value: undefined, done: true });
    if (this.#waiting) return Promise.reject(new SlowReader("an event is waited for already: one reader at a time"));
    return new Promise((resolve, reject) => (this.#waiting = { resolve, reject }));
  }

  return(): Promise<IteratorResult<HubEvent>> {
    this.close();
    return Promise.resolve({ value: undefined, done: true });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Acknowledges the event that was given last, before the next one is asked for. */
  handled(): void {
    const given = this.#given;
    this.#given = undefined;
    if (given?.type === "gap") this.#last = given.last;
    if (given?.type !== "event") return;
    this.#last = given.sequence;
    this.#done++;
    if (this.#open[0] !== given.sequence) return; // told by an earlier connection
    this.#open.shift();
    this.#acknowledge(given.sequence);
  }

  /** Ends the connection. What was not handled comes again to who goes on at `place`. */
  close(): void {
    this.#items.length = 0;
    this.#end();
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

  #opened(url: string): void {
    if (this.#ended) return;
    this.#listen();
    this.#open = [];
    this.#leftOut = 0n;
    this.#subscribe(url);
    this.#teller = url;
  }

  #listen(): void {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => {
      const nobody = encodeMessage([[5, utf8(`${this.options.name ?? NAME}-silence`)]]);
      this.#socket.send(encodeMessage([[3, MESSAGE], [4, nobody], [5, utf8("unsubscribe")]]));
      this.#silence = setTimeout(() => this.#socket.renew("silence"), ANSWER_MS);
    }, SILENCE_MS);
  }

  #subscribe(url: string): void {
    const { level = "All", ...rest } = { ...this.options.filter } as { level?: string } & Record<string, unknown>;
    const text = (name: string): Uint8Array => utf8(String(rest[name] ?? ""));
    // A topic may be empty, which stands for anything in its place: it is written where the encoding leaves fields out.
    const topics = ((rest.topics ?? []) as string[]).map((topic) => (topic ? encodeMessage([[4, utf8(topic)]]) : fromHex("2200")));
    const wish = encodeMessage([[1, utf8(level)], [2, text("address")], [3, text("identifier")]]);
    const name = encodeMessage([[5, utf8(this.options.name ?? NAME)]]);
    const whole = concat([wish, ...topics, name, this.#whereToGoOn(url)]);
    this.#socket.send(encodeMessage([[3, MESSAGE], [4, whole], [5, utf8("subscribe")]]));
  }

  #whereToGoOn(url: string): Uint8Array<ArrayBuffer> {
    this.#after = undefined;
    const place = this.#told.place(this.#came);
    if (place) return encodeMessage(placeFields(place));
    if (this.#newest === undefined) return new Uint8Array();
    if (this.#newest && this.#teller !== url) {
      this.#newest = undefined; // it would mean something else to this one
      this.#push({ type: "missed", reason: "connection" });
      return new Uint8Array();
    }
    this.#after = this.#newest;
    // An optional number is written where it is 0, too: from the beginning is another wish than from now on.
    return this.#after ? encodeMessage([[6, this.#after], [9, utf8(this.#journal)]]) : fromHex("3000");
  }

  /** What cannot be read ends the iteration: told again it would be the same, and to pass it over would lose an event. */
  #take(data: string | ArrayBuffer): void {
    if (this.#ended || typeof data === "string") return;
    this.#listen();
    try {
      this.#read(new Uint8Array(data));
    } catch (error) {
      this.#end(new Unreachable(`a message of the hub cannot be read: ${(error as Error).message}`));
    }
  }

  #read(data: Uint8Array<ArrayBuffer>): void {
    const envelope = read(data);
    if (number(envelope, 3) !== MESSAGE) return;
    this.#socket.works();
    const payload = bytes(envelope, 4);
    const topic = text(envelope, 5);
    if (topic === "subscribe") return this.#subscribed(read(payload));
    if (topic === "unsubscribe") return; // the answer to the question above
    if (topic === "gap") return this.#gap(read(payload));
    const [sequence, id] = [number(envelope, 2), text(envelope, 8)];
    const marks = Number(number(envelope, 7));
    if (id ? this.#told.has(id) : this.#newest !== undefined && sequence <= this.#newest) {
      this.#leftOut = sequence; // it came before the connection ended
      return this.#acknowledge();
    }
    this.#newest = sequence;
    this.#lacking.clear();
    if (sequence > this.#head) this.#head = sequence;
    this.#came++;
    if (id) this.#told.add(this.#came, sequence, id, this.#journal);
    this.#open.push(sequence);
    this.#push({ type: "event", topic, sequence, payload: payload.slice(), marks, id });
  }

  #gap(gap: Values): void {
    const [last, uncounted, teller] = [number(gap, 2), number(gap, 4) !== 0n, this.#teller as string];
    if (uncounted && this.#socket.others.length && this.#told.place(this.#came) && !this.#lacking.has(teller)) {
      this.#lacking.add(teller);
      return this.#socket.renew("it lacks events, which the next one may have");
    }
    // A journal that was put back gives the lost sequences out once more, to other events.
    this.#newest = gap.has(3) ? number(gap, 3) : last;
    this.#push({ type: "gap", first: number(gap, 1), last, uncounted });
  }

  #subscribed(reply: Values): void {
    this.#head = number(reply, 4);
    if (number(reply, 2)) {
      this.#journal = text(reply, 6);
      if (this.#newest === undefined) {
        this.#newest = this.#head;
        this.#last ??= this.#head;
      }
      return;
    }
    if (this.#after === undefined || this.#after <= this.#head) {
      return this.#end(new Refused({ reason: text(reply, 3), code: "hub_refused", detail: "change the filter" }));
    }
    // The hub's journal is another one than it was, and does not have what would come next: begin with what it has.
    const first = (this.#last ?? -1n) + 1n;
    this.#newest = this.#head;
    this.#push({ type: "gap", first, last: this.#head, uncounted: true });
    this.#subscribe(this.#teller as string);
  }

  #push(item: HubEvent): void {
    if (this.#waiting) {
      const { resolve } = this.#waiting;
      this.#waiting = undefined;
      return resolve({ value: this.#hand(item), done: false });
    }
    if (this.#items.length >= (this.options.size ?? SIZE)) {
      // Nothing may be left out: what did not fit is asked for again when there is room.
      const oldest = this.#items.length;
      return this.#end(new SlowReader(`${oldest} events wait for their reader: resume after the last one handled`));
    }
    this.#items.push(item);
  }

  #hand(item: HubEvent): HubEvent {
    return (this.#given = item);
  }

  /** Says what was handled; what was left out counts as that once all before it was handled. */
  #acknowledge(sequence = 0n): void {
    let newest = sequence;
    if (!this.#open.length) {
      if (this.#leftOut > newest) newest = this.#leftOut;
      this.#leftOut = 0n;
    }
    if (newest) this.#socket.send(encodeMessage([[2, newest], [3, ACKNOWLEDGEMENT]]));
  }
}

function read(message: Uint8Array<ArrayBuffer>): Values {
  return new Map(decodeMessage(message).map(({ number: name, value }) => [name, value]));
}

function number(message: Values, name: number): bigint {
  const value = message.get(name) ?? 0n;
  if (typeof value !== "bigint") throw new RangeError(`its field ${name} is no number`);
  return value;
}

function bytes(message: Values, name: number): Uint8Array<ArrayBuffer> {
  const value = message.get(name);
  return value instanceof Uint8Array ? value : new Uint8Array();
}

function text(message: Values, name: number): string {
  return new TextDecoder().decode(bytes(message, name));
}
