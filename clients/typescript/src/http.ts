// JSON over HTTP: refusals as exceptions, 429 and 503 waited for as told, within bounds.

import { toJson } from "./bytes.js";
import { ClientError, codeOf, Unreachable, Refused } from "./errors.js";
import { Pauses, type Patience, TIMEOUT_MS } from "./wait.js";

export interface HttpOptions extends Patience {
  /** Instead of the global one. */
  fetch?: typeof fetch;
  /** Sent with each request. */
  headers?: Record<string, string>;
  /** Asked for the W3C trace context of each question and submission, which is sent with it; undefined: not traced. */
  traceparent?: () => string | undefined;
}

export interface CallOptions {
  signal?: AbortSignal;
}

export type Query = Record<string, string | number | bigint | boolean | undefined>;

interface Call extends CallOptions {
  query?: Query;
  body?: unknown;
  /** Statuses beside 2xx whose body is an answer. */
  answers?: readonly number[];
  /** Milliseconds that this answer may take beyond the usual. */
  extraMs?: number;
}

const MAX_BODY = 64 * 1024 * 1024; // bytes; prices of ten thousand tokens are 1 MB, and a stranger's endless body must end

/** One service's REST interface. Every request may be sent twice: the services answer the same bytes the same way. */
export class Http {
  readonly #base: string;

  /** `splits`: error texts are `reason: detail`; otherwise the whole text is the reason. */
  constructor(base: string, readonly options: HttpOptions, readonly splits: boolean) {
    this.#base = base.replace(/\/+$/, "");
  }

  get<T>(path: string, call: Call = {}): Promise<T> {
    return this.#call<T>("GET", path, call);
  }

  post<T>(path: string, body: unknown, call: Call = {}): Promise<T> {
    return this.#call<T>("POST", path, { ...call, body });
  }

  url(path: string, query: Query = {}): string {
    const given = Object.entries(query).filter(([, value]) => value !== undefined);
    const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
    return this.#base + path + (given.length ? `?${search}` : "");
  }

  /** One request, once. Throws `Unreachable`, or the signal's reason. */
  async send(url: string, init: RequestInit, signal: AbortSignal | null): Promise<Response> {
    const go = this.options.fetch ?? fetch;
    const trace = this.options.traceparent?.();
    const traced = trace === undefined ? {} : { traceparent: trace };
    try {
      return await go(url, { ...init, signal, headers: { ...this.options.headers, ...traced, ...init.headers } });
    } catch (error) {
      if (signal?.aborted && signal.reason?.name !== "TimeoutError") throw error;
      throw lost(url, error);
    }
  }

  async #call<T>(method: string, path: string, call: Call): Promise<T> {
    const url = this.url(path, call.query);
    const init: RequestInit = { method };
    if (call.body !== undefined) {
      init.body = toJson(call.body);
      init.headers = { "Content-Type": "application/json" };
    }
    const pauses = new Pauses(this.options, call.signal ?? null);
    for (;;) {
      let failure: Unreachable | Refused;
      try {
        return await this.#once<T>(url, init, call);
      } catch (error) {
        if (!(error instanceof Unreachable || (error instanceof Refused && comesBack(error)))) throw error;
        failure = error;
      }
      const told = failure instanceof Refused ? failure.retryAfterMs : undefined;
      if (!(await pauses.next(told))) throw failure;
    }
  }

  async #once<T>(url: string, init: RequestInit, call: Call): Promise<T> {
    const limit = AbortSignal.timeout((this.options.timeoutMs ?? TIMEOUT_MS) + (call.extraMs ?? 0));
    const signal = call.signal ? AbortSignal.any([call.signal, limit]) : limit;
    const response = await this.send(url, init, signal);
    let text: string;
    try {
      text = await bounded(response, url);
    } catch (error) {
      if (call.signal?.aborted || error instanceof ClientError) throw error;
      throw lost(url, error);
    }
    if (!response.ok && !call.answers?.includes(response.status)) throw this.refusal(response, text);
    try {
      return JSON.parse(text) as T;
    } catch {
      throw new Refused({ reason: "the answer is no JSON", code: "no_json", detail: url, status: response.status });
    }
  }

  /** The exception for an error's body and status. */
  refusal(response: Response, body: string): Refused {
    let text = "";
    try {
      const { error } = JSON.parse(body) as { error?: unknown };
      if (typeof error === "string") text = error;
    } catch {
      // A proxy's own page: the status alone speaks.
    }
    text ||= `HTTP ${response.status}`;
    const [reason = text, ...rest] = this.splits ? text.split(": ") : [text];
    const code = codeOf((text.split(":")[0] ?? text));
    return new Refused({
      reason, code, detail: rest.join(": ") || undefined, retryAfterMs: retryAfterMs(response), status: response.status,
    });
  }
}

/** The body's text. Throws `ClientError` for one without end. */
async function bounded(response: Response, url: string): Promise<string> {
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (let size = 0; reader; ) {
    const { value, done } = await reader.read();
    if (done) break;
    size += value.byteLength;
    if (size > MAX_BODY) {
      reader.cancel().catch(() => {}); // the connection may be gone already
      throw new ClientError(`${url.split("?")[0]} answers with more than ${MAX_BODY} bytes`);
    }
    text += decoder.decode(value, { stream: true });
  }
  return text + decoder.decode();
}

const comesBack = (refused: Refused): boolean => refused.status === 429 || refused.status === 503;

/** Milliseconds that the answer's `Retry-After` names, in seconds or as a date by the service's own clock. */
export function retryAfterMs(response: Response): number | undefined {
  const text = response.headers.get("Retry-After");
  if (!text) return undefined;
  const now = Date.parse(response.headers.get("Date") ?? "") || Date.now();
  const ms = /^\d+(\.\d+)?$/.test(text) ? Number(text) * 1000 : Date.parse(text) - now;
  return Number.isFinite(ms) ? Math.max(0, ms) : undefined;
}

function lost(url: string, error: unknown): Unreachable {
  const cause = (error as { cause?: { message?: string } }).cause?.message ?? (error as Error).message;
  return new Unreachable(`${url.split("?")[0]} did not answer: ${cause}`, { cause: error });
}
