// The services as the console passes them on, all under this page's origin.

import { Millrace } from "../vendor/millrace/index.js";

const here = location.origin;
const sockets = here.replace(/^http/, "ws");

/**
 * `fetch`, but for event streams: those come over a WebSocket, as each would hold one of the six connections that a
 * browser opens to a host. The first message is the answer's status and headers, the others are its body.
 */
function fetchOrStream(url, init = {}) {
  if (init.headers?.Accept !== "text/event-stream") return fetch(url, init);
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url.replace(/^http/, "ws"));
    socket.binaryType = "arraybuffer";
    let body;
    // One that is closed before it is open is a warning of the browser.
    const stop = () => {
      if (socket.readyState === WebSocket.CONNECTING) socket.onopen = () => socket.close();
      else socket.close();
    };
    const fail = () => reject(new TypeError("the stream could not be opened"));
    init.signal?.addEventListener("abort", () => {
      stop();
      reject(init.signal.reason);
      try {
        body?.error(init.signal.reason);
      } catch {
        // It had ended before.
      }
    }, { once: true });
    socket.onmessage = ({ data }) => {
      if (body) return body.enqueue(new Uint8Array(data));
      const { status, headers } = JSON.parse(data);
      const stream = new ReadableStream({ start: (controller) => { body = controller; }, cancel: stop });
      resolve(new Response(stream, { status, headers }));
    };
    socket.onerror = fail;
    socket.onclose = ({ code }) => {
      fail();
      try {
        if (code === 1000) body?.close();
        else body?.error(new TypeError(`the stream ended with ${code}`));
      } catch {
        // It had ended before.
      }
    };
  });
}

export const millrace = new Millrace({
  aggregator: `${here}/aggregator`,
  relayer: `${here}/relayer`,
  socket: `${sockets}/relayer`,
  fetch: fetchOrStream,
});
export const { aggregator, relayer } = millrace;

/** JSON of a path of the console. Throws an `Error` with the service's own words. */
export async function get(path, init = {}) {
  const response = await fetch(path, init);
  const text = await response.text();
  let body;
  try {
    body = JSON.parse(text);
  } catch {
    body = undefined;
  }
  if (!response.ok || body === undefined) {
    const error = new Error(body?.error ?? body?.message ?? `HTTP ${response.status}`);
    throw Object.assign(error, { status: response.status });
  }
  return body;
}

export const post = (path, body, headers = {}) =>
  get(path, { method: "POST", headers: { "Content-Type": "application/json", ...headers }, body: JSON.stringify(body) });

/** What the console tells of itself: `services` that there are, `operators` (open, token, off), `faucet`, `contract`. */
let known;
export function settings() {
  known ??= get("settings.json").catch((error) => {
    known = undefined;
    throw error;
  });
  return known;
}

// The operators' token lives in this variable and nowhere else: it is gone with the tab.
let token = "";
export const operators = {
  get known() {
    return token !== "";
  },
  set(text) {
    token = text;
  },
  /** Headers of a request to `/operators/…`. */
  headers: () => (token ? { Authorization: `Bearer ${token}` } : {}),
  /** Subprotocols of a WebSocket to `/operators/…`, which takes no headers. */
  protocols() {
    if (!token) return ["millrace"];
    const bytes = String.fromCharCode(...new TextEncoder().encode(token));
    return ["millrace", `bearer.${btoa(bytes).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`];
  },
  url: (path) => `${here}/operators/${path}`,
  socket: (path) => `${sockets}/operators/${path}`,
};
