// A WebSocket that connects again by itself, and says when it was away.

import { pauseMs } from "./wait.js";

/** What this client needs of a WebSocket: that of browsers, of Node 22, or of `ws`. */
export interface SocketLike {
  binaryType: string;
  readonly readyState: number;
  send(data: string | Uint8Array<ArrayBuffer>): void;
  close(code?: number, reason?: string): void;
  onopen: ((event: never) => unknown) | null;
  onmessage: ((event: never) => unknown) | null;
  onclose: ((event: never) => unknown) | null;
  onerror: ((event: never) => unknown) | null;
}
export type SocketClass = new (url: string, protocols?: string[], options?: { headers: Record<string, string> }) => SocketLike;

export interface SocketOptions {
  /** Instead of the platform's own. */
  WebSocket?: SocketClass;
  /** Sent with the handshake, in Node only: browsers cannot. */
  headers?: Record<string, string>;
}

export interface SocketEvents {
  /** There is a connection to this address. */
  open(url: string): void;
  message(data: string | ArrayBuffer): void;
  /** The connection ended, or could not be made; it is tried again. */
  down(reason: string): void;
}

/** A service is about to end: where to go, and when (absent: it closes now). */
export interface Shutdown {
  moveTo?: string[] | null;
  afterMs?: number | null;
}

const OPEN = 1;
const MAX_PLACES = 16;
const LAST_REPLIES_MS = 5_000;
const CONNECT_MS = 10_000;
const LATEST_MOVE_MS = 3_600_000; // a timer that is too long for the platform would be over at once
const STOOD_MS = 5_000; // a connection that ended earlier is no reason to make the next one without a pause

function isAddress(text: string): boolean {
  try {
    return Boolean(new URL(text));
  } catch {
    return false;
  }
}

declare const process: { versions?: { node?: string } } | undefined;

/** Whether this is Node, or what takes its place: only there a handshake can have headers. */
export const inNode = (): boolean => typeof process !== "undefined" && Boolean(process?.versions?.node);

/** The class to connect with. In Node the one that can send headers, where it has to or there is no other. */
async function socketClass(options: SocketOptions): Promise<SocketClass> {
  if (options.WebSocket) return options.WebSocket;
  const headers = Object.keys(options.headers ?? {}).length > 0;
  if (globalThis.WebSocket && !(headers && inNode())) return globalThis.WebSocket as unknown as SocketClass;
  // Not named as text: bundlers for browsers would follow it.
  const file = new URL("./node-socket.cjs", import.meta.url).href;
  const loaded = (await import(/* webpackIgnore: true */ /* @vite-ignore */ file)) as { default: SocketClass };
  return loaded.default;
}

/**
 * One connection that is made again, after 0.05 to 5 s, until it is closed. Of several addresses the next is tried at
 * once when one is lost, and the pause is made when all were tried.
 */
export class Socket {
  #socket: SocketLike | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #attempt = 0;
  #closed = false;
  /** Where to connect, in the order of trying; the client's own address is the last. */
  #places: string[];
  #leaving: ReturnType<typeof setTimeout> | undefined;
  #moved = false;
  #openedAt = Infinity;

  constructor(readonly url: string, readonly events: SocketEvents, readonly options: SocketOptions = {}, readonly others: readonly string[] = []) {
    this.#places = [url, ...others];
    void this.#connect();
  }

  get isOpen(): boolean {
    return this.#socket?.readyState === OPEN;
  }

  /** Whether it was sent; what is sent may still be lost with the connection. */
  send(data: string | Uint8Array<ArrayBuffer>): boolean {
    if (!this.isOpen) return false;
    this.#socket?.send(data);
    return true;
  }

  /** The other side works: the next pause is a short one. */
  works(): void {
    this.#attempt = 0;
  }

  /** Ends this connection and makes another: the other side has fallen silent. */
  renew(reason: string): void {
    const socket = this.#socket;
    if (!socket) return;
    this.#lost(socket, reason);
    socket.close(); // its closing handshake may never end: nobody waits for it
  }

  /** Goes where it is sent at its moment, once it is `answered()` or that lasts too long; encrypted stays encrypted. */
  move({ moveTo, afterMs }: Shutdown, answered: () => Promise<void> = () => Promise.resolve()): void {
    const path = new URL(this.url).pathname.endsWith("/ws/stats") ? "/ws/stats" : "/ws";
    const allowed = this.url.startsWith("wss:") ? /^wss:/ : /^wss?:/;
    const bases = (Array.isArray(moveTo) ? moveTo : []).slice(0, MAX_PLACES);
    const named = bases.filter((base) => allowed.test(base)).map((base) => String(base).replace(/\/+$/, "") + path);
    this.#places = [...named.filter(isAddress), this.url];
    this.#moved = true;
    const socket = this.#socket;
    if (typeof afterMs !== "number" || !socket || this.#leaving !== undefined) return;
    const leave = (): void => {
      if (this.#socket === socket) this.renew("sent elsewhere");
    };
    this.#leaving = setTimeout(() => {
      this.#leaving = setTimeout(leave, LAST_REPLIES_MS);
      void answered().then(leave);
    }, Math.min(afterMs, LATEST_MOVE_MS));
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#leaving);
    const socket = this.#socket;
    this.#socket = undefined;
    socket?.close(1000);
  }

  async #connect(): Promise<void> {
    let socket: SocketLike;
    let stood = false;
    this.#openedAt = Infinity;
    const url = this.#places[0] as string;
    try {
      const Class = await socketClass(this.options);
      if (this.#closed) return;
      const headers = this.options.headers;
      socket = headers && Object.keys(headers).length ? new Class(url, [], { headers }) : new Class(url);
    } catch (error) {
      this.#failed(url);
      this.#again(String(error));
      return;
    }
    this.#socket = socket;
    socket.binaryType = "arraybuffer";
    const timer = setTimeout(() => this.renew("no connection within 10 s"), CONNECT_MS);
    socket.onopen = () => {
      clearTimeout(timer);
      stood = true;
      this.#openedAt = Date.now();
      if (this.#socket === socket) this.events.open(url);
    };
    socket.onmessage = ({ data }: { data: string | ArrayBuffer }) => {
      if (this.#socket === socket) this.events.message(data);
    };
    socket.onerror = () => {}; // a close follows and says the same
    socket.onclose = ({ code, reason }: { code: number; reason: string }) => {
      clearTimeout(timer);
      if (!stood) this.#failed(url);
      this.#lost(socket, `closed with ${code}${reason ? `: ${reason}` : ""}`);
    };
  }

  /** Nobody is there: the next one then. Several of one's own take turns in any case. */
  #failed(url: string): void {
    if (this.#places[0] === url && !this.others.length) this.#turn();
  }

  #turn(): void {
    this.#places.push(this.#places.shift() as string);
  }

  #lost(socket: SocketLike, reason: string): void {
    if (this.#socket !== socket) return;
    this.#socket = undefined;
    clearTimeout(this.#leaving);
    this.#leaving = undefined;
    this.#again(reason);
  }

  #again(reason: string): void {
    if (this.#closed) return;
    if (this.others.length) this.#turn();
    const isUntried = this.#places[0] !== this.url && this.others.length > 0;
    const isSent = this.#moved && Date.now() - this.#openedAt > STOOD_MS;
    const pause = isUntried || isSent ? 0 : pauseMs(++this.#attempt);
    this.#moved = false;
    this.#timer = setTimeout(() => void this.#connect(), pause);
    this.events.down(reason);
  }
}
