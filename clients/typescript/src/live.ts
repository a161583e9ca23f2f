// The relayer's /ws: requests with their replies, subscriptions that survive the connection.

import { toJson } from "./bytes.js";
import { Unreachable, Refused } from "./errors.js";
import type { components } from "./generated/messages.js";
import { type Missed, Queue, type QueueOptions } from "./queue.js";
import { type Shutdown, Socket, type SocketOptions } from "./socket.js";
import { Pauses, type Patience, sleep, TIMEOUT_MS } from "./wait.js";

type Schemas = components["schemas"];
export type StatusMessage = Schemas["StatusMessage"];
export type AccountMessage = Schemas["AccountMessage"];
export type GasStatsMessage = Schemas["GasStatsMessage"];
export type NetworkStatsMessage = Schemas["NetworkStatsMessage"];
export type AllGasStatsMessage = Schemas["AllGasStatsMessage"];
type Push = StatusMessage | AccountMessage | GasStatsMessage | AllGasStatsMessage | NetworkStatsMessage;

/** What comes on a topic. */
export type MessageOf<Topic extends string> = Topic extends `tx-status/${string}` ? StatusMessage
  : Topic extends `address/${string}` | "accounts" ? AccountMessage
  : Topic extends "gasStats" ? GasStatsMessage
  : Topic extends "gasStats/all" ? AllGasStatsMessage
  : Topic extends "networkStats" ? NetworkStatsMessage
  : Push;

export interface LiveOptions extends SocketOptions, Patience {}

interface Reply {
  action?: string | null;
  status?: string;
  requestId?: string | number;
  reason?: string;
  code?: string;
  detail?: string;
  retryAfterMs?: number;
  topic?: string;
  failed?: unknown[] | null;
}

interface Topic {
  queues: Set<Queue<unknown>>;
  ready: Promise<void>;
  /** When the last message came, or the subscription was acknowledged. */
  heard: number | undefined;
  /** The connection was lost since then, and nobody has been told yet. */
  away: boolean;
}

/** A message has no answer although the connection stands. */
class NoAnswer extends Unreachable {}

interface Pending {
  resolve(reply: Reply): void;
  reject(error: Error): void;
  timer: ReturnType<typeof setTimeout>;
}

export const TOPICS_PER_CONNECTION = 60; // of 64, as of the control messages in five seconds: some are left
const SILENCE_MS = 20_000; // pings are not seen here: after so long a question is asked
const MAX_PENDING = 1_024;
const ASKED = 2; // how often one connection is asked for a topic it does not answer, before another one is
const RENEWED = 2; // connections given up for topics they do not answer, before those topics are
const QUIET_MS = 2_000; // for the first acknowledgement; where none comes no further one is waited for

/** One connection to `/ws`, made when it is first needed. */
export class Live {
  #socket: Socket | undefined;
  readonly #topics = new Map<string, Topic>();
  readonly #pending = new Map<string, Pending>();
  readonly #opened: (() => void)[] = [];
  #answered: (() => void) | undefined;
  #ids = 0;
  #silence: ReturnType<typeof setTimeout> | undefined;
  #closed = false;
  /** Whether control messages are acknowledged: the public interface does not promise it. */
  #acknowledges: boolean | undefined;
  /** What has come over this connection. */
  #came = { message: false, acknowledgement: false };
  /** How many connections in a row were given up for topics that they did not answer. */
  #renewed = 0;

  constructor(readonly url: string, readonly options: LiveOptions = {}) {}

  get topics(): number {
    return this.#topics.size;
  }

  holds(topic: string): boolean {
    return this.#topics.has(topic);
  }

  /**
   * Messages of a topic, until the iteration is left. After a lost connection the topic is subscribed to again, and a
   * `missed` item says for how long nobody listened. Resolves once the subscription stands. Throws `Refused`.
   */
  async subscribe<T extends string>(
    name: T, options: QueueOptions = {},
  ): Promise<AsyncIterableIterator<MessageOf<T> | Missed>> {
    const queue = new Queue<MessageOf<T>>(options, () => this.#leave(name, queue as Queue<unknown>));
    let topic = this.#topics.get(name);
    if (!topic) {
      topic = { queues: new Set(), ready: Promise.resolve(), heard: undefined, away: false };
      this.#topics.set(name, topic);
      topic.ready = this.#enter(name, topic);
    }
    topic.queues.add(queue as Queue<unknown>);
    try {
      await topic.ready;
    } catch (error) {
      if (this.#topics.get(name) === topic) this.#topics.delete(name);
      throw error;
    }
    return queue;
  }

  /**
   * Subscribes again to a topic whose subscription may have ended at the relayer by itself, as those of `tx-status` do
   * after 60 s.
   */
  async refresh(name: string): Promise<void> {
    const topic = this.#topics.get(name);
    if (!topic) return;
    await this.#control("unsubscribe", name);
    if (this.#topics.get(name) === topic) await this.#control("subscribe", name);
  }

  /** Sends a message and waits for its reply. Throws `Refused`, or `Unreachable` where no reply came. */
  async request<T>(message: Record<string, unknown>): Promise<T> {
    await this.#open();
    return (await this.#ask(message)) as T;
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#silence);
    this.#socket?.close();
    for (const topic of this.#topics.values()) for (const queue of topic.queues) queue.end();
    this.#topics.clear();
    this.#fail(new Unreachable("the client was closed"));
    for (const opened of this.#opened.splice(0)) opened();
  }

  /** The first subscription of a topic, tried until it stands, is refused, or there is no more patience. */
  async #enter(name: string, topic: Topic): Promise<void> {
    const pauses = new Pauses(this.options);
    for (;;) {
      try {
        await this.#open();
        await this.#control("subscribe", name);
        topic.heard ??= Date.now();
        return;
      } catch (error) {
        if (!(error instanceof Unreachable) || this.#closed || !(await pauses.next())) throw error;
      }
    }
  }

  /** A control message, sent again as long as told where there were too many of them. */
  async #control(action: "subscribe" | "unsubscribe", topic: string): Promise<void> {
    const pauses = new Pauses(this.options);
    for (;;) {
      try {
        const answer = this.#ask({ action, topic }, this.#acknowledges ? undefined : QUIET_MS);
        if (this.#acknowledges === false) return void answer.catch(() => {});
        await answer;
        this.#acknowledges = true;
        return;
      } catch (error) {
        if (error instanceof NoAnswer && !this.#acknowledges) {
          this.#acknowledges = false;
          return;
        }
        const wait = error instanceof Refused ? error.retryAfterMs : undefined;
        if (wait === undefined || !(await pauses.next(wait))) throw error;
      }
    }
  }

  #leave(name: string, queue: Queue<unknown>): void {
    const topic = this.#topics.get(name);
    if (!topic?.queues.delete(queue) || topic.queues.size) return;
    this.#topics.delete(name);
    // A status is told once and its subscription then ends by itself; whatever else goes wrong ends with the connection.
    if (this.#socket?.isOpen) this.#control("unsubscribe", name).catch(() => {});
  }

  async #open(): Promise<void> {
    if (this.#closed) throw new Unreachable("the client was closed");
    this.#socket ??= new Socket(
      this.url,
      { open: () => this.#up(), message: (data) => this.#take(data), down: (reason) => this.#down(reason) },
      this.options,
    );
    if (this.#socket.isOpen) return;
    if (this.#opened.length >= MAX_PENDING) throw tooMany();
    await new Promise<void>((resolve, reject) => {
      const ms = this.options.timeoutMs ?? TIMEOUT_MS;
      const timer = setTimeout(() => {
        this.#opened.splice(this.#opened.indexOf(opened), 1);
        reject(new Unreachable(`no connection to ${this.url} within ${ms} ms`));
      }, ms);
      const opened = (): void => {
        clearTimeout(timer);
        if (this.#closed) reject(new Unreachable("the client was closed"));
        else resolve();
      };
      this.#opened.push(opened);
    });
  }

  #ask(message: Record<string, unknown>, most = Infinity): Promise<Reply> {
    if (this.#pending.size >= MAX_PENDING) {
      return Promise.reject(tooMany());
    }
    const requestId = String(++this.#ids);
    return new Promise((resolve, reject) => {
      if (!this.#socket?.send(toJson({ ...message, requestId }))) {
        reject(new Unreachable(`not connected to ${this.url}`));
        return;
      }
      const ms = Math.min(most, this.options.timeoutMs ?? TIMEOUT_MS);
      const timer = setTimeout(() => {
        this.#settle(requestId);
        reject(new NoAnswer(`${this.url} did not answer ${String(message.action)} within ${ms} ms`));
      }, ms);
      this.#pending.set(requestId, { resolve, reject, timer });
    });
  }

  /** What waited for a reply, and does no more. */
  #settle(requestId: string): Pending | undefined {
    const pending = this.#pending.get(requestId);
    clearTimeout(pending?.timer);
    this.#pending.delete(requestId);
    if (this.#pending.size === 0) this.#answered?.();
    return pending;
  }

  /** Resolves when no reply is waited for, and who waited has had a turn with the last one. */
  async #idle(): Promise<void> {
    while (this.#pending.size) {
      await new Promise<void>((resolve) => (this.#answered = resolve));
      await sleep(0);
    }
  }

  #up(): void {
    this.#came = { message: false, acknowledgement: false };
    this.#listen();
    for (const opened of this.#opened.splice(0)) opened();
    for (const [name, topic] of this.#topics) {
      if (topic.away) void this.#back(name, topic);
    }
  }

  /**
   * Subscribes again after a lost connection and says what was missed; a refusal ends the subscription. So does silence
   * about this topic alone, on several connections: each that is given up costs all other topics what comes meanwhile.
   */
  async #back(name: string, topic: Topic): Promise<void> {
    for (let asked = 1; ; asked++) {
      try {
        await this.#control("subscribe", name);
        break;
      } catch (error) {
        if (this.#topics.get(name) !== topic) return;
        if (error instanceof Refused) return this.#end(name, topic, error);
        if (!(error instanceof NoAnswer)) return; // lost again: the next one tells
        if (asked < ASKED) continue;
        const isDead = !this.#came.message;
        if (isDead || this.#renewed < RENEWED) {
          if (!isDead) this.#renewed++;
          return this.#socket?.renew("a subscription is not answered");
        }
        if (this.#came.acknowledgement) return this.#end(name, topic, error);
        this.#acknowledges = false; // as where a first one is not answered
        break;
      }
    }
    // Lost while it waited to ask again, and told by the one that began then; or left.
    if (!topic.away || this.#topics.get(name) !== topic) return;
    const from = topic.heard ?? Date.now();
    topic.away = false;
    topic.heard = Date.now();
    for (const queue of topic.queues) queue.push({ type: "missed", reason: "connection", from, to: topic.heard });
    this.#stands();
  }

  #end(name: string, topic: Topic, error: Error): void {
    this.#topics.delete(name);
    for (const queue of topic.queues) queue.end(error);
    this.#stands();
  }

  #stands(): void {
    if (![...this.#topics.values()].some(({ away }) => away)) this.#renewed = 0;
  }

  #down(reason: string): void {
    clearTimeout(this.#silence);
    // Those that never stood are entered by whoever waits for them.
    for (const topic of this.#topics.values()) topic.away ||= topic.heard !== undefined;
    this.#fail(new Unreachable(`the connection to ${this.url} has ended: ${reason}`));
  }

  #fail(error: Error): void {
    for (const requestId of this.#pending.keys()) this.#settle(requestId)?.reject(error);
  }

  /** A connection that is dead without having ended is found by asking something that changes nothing. */
  #listen(): void {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => {
      const topic = this.#topics.keys().next().value;
      if (topic === undefined || !this.#acknowledges) return this.#listen();
      this.#ask({ action: "subscribe", topic }).catch((error) => {
        if (error instanceof Unreachable) this.#socket?.renew("silence");
      });
    }, SILENCE_MS);
  }

  #take(data: string | ArrayBuffer): void {
    this.#listen();
    let message: Reply & { type?: string; data?: { hash?: string; address?: string } };
    try {
      message = JSON.parse(data as string);
    } catch {
      return; // no message of this interface
    }
    if (typeof message !== "object" || message === null) return;
    this.#socket?.works();
    this.#came.message = true;
    if (message.action !== undefined) this.#reply(message);
    else if (message.type === "serverShutdown") this.#socket?.move(message as Shutdown, () => this.#idle());
    else if (typeof message.type === "string") {
      for (const name of topicsOf(message.type, message.data ?? {})) this.#deliver(name, message);
    }
  }

  #reply(message: Reply): void {
    if (message.action === "subscribe") this.#acknowledges = this.#came.acknowledgement = true; // a late one, too
    const pending = this.#settle(String(message.requestId));
    if (!pending) return;
    const isNone = message.status === "failed" && !message.failed?.length; // refused as a whole
    if (message.status !== "fail" && message.status !== "error" && !isNone) return pending.resolve(message);
    const { reason = "refused", code = "refused", detail, retryAfterMs } = message;
    pending.reject(new Refused({ reason, code, detail, retryAfterMs }));
  }

  #deliver(name: string, message: unknown): void {
    const topic = this.#topics.get(name);
    if (!topic) return;
    if (!topic.away) topic.heard = Date.now(); // else it would be missed from then on only
    for (const queue of topic.queues) queue.push(message);
  }
}

function tooMany(): Refused {
  return new Refused({ reason: "too many requests under way", code: "client_busy", detail: "wait for some of them" });
}

function topicsOf(type: string, data: { hash?: string; address?: string }): string[] {
  if (type === "tx-status") return [`tx-status/${data.hash}`];
  if (type === "accountDelta" || type.startsWith("address")) return [`address/${data.address}`, "accounts"];
  return [type];
}
