// The relayer's /ws/stats: statistics of the network four times a second.

import type { NetworkStatsMessage } from "./live.js";
import { type Missed, Queue, type QueueOptions } from "./queue.js";
import { type Shutdown, Socket, type SocketOptions } from "./socket.js";

const SILENCE_MS = 3_000; // twelve messages
const MAJOR = 1;

/**
 * Messages of `/ws/stats` until the iteration is left; connects again by itself. What the service left out (`sequence`
 * jumps) and what was missed while the connection was down comes as `missed`. `warn` hears of a schema that is newer.
 */
export function networkStats(
  url: string, options: SocketOptions & QueueOptions = {}, warn: (text: string) => void = console.warn,
): AsyncIterableIterator<NetworkStatsMessage | Missed> {
  let heard: number | undefined;
  let sequence: number | undefined;
  let warned = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const queue = new Queue<NetworkStatsMessage>({ size: 64, ...options }, () => {
    clearTimeout(timer);
    socket.close();
  });
  const listen = (): void => {
    clearTimeout(timer);
    timer = setTimeout(() => socket.renew("silence"), SILENCE_MS);
  };
  const message = (data: string | ArrayBuffer): void => {
    listen();
    let read: NetworkStatsMessage | ({ type: "serverShutdown" } & Shutdown);
    try {
      read = JSON.parse(data as string) as typeof read;
    } catch {
      return; // no message of this interface
    }
    if (typeof read !== "object" || read === null) return;
    if (read.type === "serverShutdown") return socket.move(read);
    if (read.type !== "networkStats") return;
    if (!warned && Number.parseInt(read.schemaVersion ?? "") > MAJOR) {
      warned = true;
      warn(`networkStats has schema ${read.schemaVersion}, this client knows ${MAJOR}: some fields may mean something else`);
    }
    socket.works();
    const now = Date.now();
    if (sequence === undefined && heard !== undefined) queue.push({ type: "missed", reason: "connection", from: heard, to: now });
    const left = sequence === undefined ? 0 : read.sequence - sequence - 1;
    if (left > 0) queue.push({ type: "missed", reason: "sender", count: left });
    sequence = read.sequence;
    heard = now;
    queue.push(read);
  };
  const down = (): void => {
    clearTimeout(timer);
    sequence = undefined; // counts of a connection begin with it
  };
  const socket = new Socket(url, { open: listen, message, down }, options);
  return queue;
}
