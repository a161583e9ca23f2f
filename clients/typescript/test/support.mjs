// Stand-ins for the services: an HTTP server and a WebSocket server whose answers a test chooses.
import { createServer } from "node:http";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { WebSocketServer } from "ws";
import { encodeAddress } from "@millrace/client";
import { Ed25519Signer } from "@millrace/client/ed25519";

const vectors = new URL("../../../tests/vectors/", import.meta.url);
export const readVectors = (name) => JSON.parse(readFileSync(new URL(name, vectors), "utf8"));

/** Short pauses: what is tested is that they are made, and bounded. */
export const PATIENCE = { timeoutMs: 5_000, attempts: 5, longestWaitMs: 5_000 };

/** An HTTP server; `answer(request)` gives `{status, headers, body}`, or nothing and answers `response` itself. */
export class FakeHttp {
  requests = [];
  #server;

  async start(answer, port = 0) {
    this.#server = createServer(async (request, response) => {
      let body = "";
      for await (const part of request) body += part;
      const { pathname, searchParams } = new URL(request.url, "http://x");
      const asked = { method: request.method, path: pathname, query: Object.fromEntries(searchParams), body, headers: request.headers };
      this.requests.push(asked);
      const given = await answer(asked, response);
      if (!given) return;
      response.writeHead(given.status ?? 200, { "Content-Type": "application/json", ...given.headers });
      response.end(typeof given.body === "string" ? given.body : JSON.stringify(given.body ?? {}));
    });
    this.#server.listen(port, "127.0.0.1");
    await once(this.#server, "listening");
    return this;
  }

  get port() {
    return this.#server.address().port;
  }

  get url() {
    return `http://127.0.0.1:${this.port}`;
  }

  get server() {
    return this.#server;
  }

  async stop() {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, "close");
  }
}

/** A relayer's `/ws`: acknowledges topics, and answers submissions as `submitted(message, socket)` says. */
export class FakeSockets {
  messages = [];
  sockets = [];
  submitted = (message) => ({ status: "completed", failed: [], results: [], hashes: [] });
  control = () => ({ status: "ok" });
  #server;
  #waiting = [];

  async start(port = 0) {
    this.#server = new WebSocketServer({ host: "127.0.0.1", port });
    await once(this.#server, "listening");
    this.#server.on("connection", (socket, request) => {
      socket.path = request.url;
      socket.headers = request.headers;
      this.sockets.push(socket);
      this.#tell();
      socket.on("message", async (data) => {
        const message = JSON.parse(data);
        this.messages.push(message);
        const { action, requestId, topic } = message;
        const isControl = action === "subscribe" || action === "unsubscribe";
        const reply = isControl ? this.control(message, socket) : await this.submitted(message, socket);
        if (reply) socket.send(JSON.stringify({ action, requestId, ...(topic ? { topic } : {}), ...reply }));
        this.#tell();
      });
    });
    return this;
  }

  get port() {
    return this.#server.address().port;
  }

  get url() {
    return `ws://127.0.0.1:${this.port}`;
  }

  get live() {
    return this.sockets.findLast((socket) => socket.readyState === 1);
  }

  push(message, socket = this.live) {
    socket.send(JSON.stringify(message));
  }

  status(hash, status = "success", more = {}) {
    this.push({ type: "tx-status", data: { hash, status, ...more } });
  }

  /** Resolves as soon as `condition()` holds; looked at whenever something came. */
  until(condition) {
    if (condition()) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push({ condition, resolve }));
  }

  sent(action, topic) {
    return this.messages.filter((message) => message.action === action && (!topic || message.topic === topic));
  }

  drop() {
    for (const socket of this.sockets) socket.terminate();
  }

  async stop() {
    this.drop();
    this.#server.close();
    await once(this.#server, "close");
  }

  #tell() {
    this.#waiting = this.#waiting.filter(({ condition, resolve }) => {
      if (condition()) resolve();
      else return true;
    });
  }
}

const KEYS = readVectors("clients.json").keys;
export const SENDER = KEYS[0];
export const RELAYER = KEYS[3];

/** A transaction the sender of the vectors has signed. */
export async function signedTransaction(changes = {}) {
  const signer = await Ed25519Signer.fromSeed(SENDER.seed);
  return signer.sign({
    nonce: 7, value: "0", receiver: KEYS[1].address, sender: SENDER.address, gasPrice: 1_000_000_000, gasLimit: 100_000,
    chainID: "local", version: 2, relayer: RELAYER.address, ...changes,
  });
}

/** Address of a contract: eight zero bytes, and here more of them. */
export const contractAddress = (last) => encodeAddress(Uint8Array.from({ length: 32 }, (_, i) => (i === 31 ? last : 0)));
export const payload = (text) => Buffer.from(text).toString("base64");

/** A call of the aggregator contract: at least so much of `tokens[out]`; no addresses, amounts or instructions. */
export function program({ least = 990, out = "01", referral = "", tokens = ["A", "B"] } = {}) {
  const hex = (number) => Buffer.from(number.toString(16).padStart(4, "0"), "hex").toString("hex");
  return ["786f", hex(least), out, referral, `0${tokens.length}`, ...tokens.map((token) => Buffer.from(token).toString("hex")), "", ""].join("@");
}
