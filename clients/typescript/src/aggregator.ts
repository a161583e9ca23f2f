// The aggregator: quotes, ladders, many inputs, a stream of quotes, and what there is to choose from.

import { decodeAddress } from "./address.js";
import { type Bounds, checkMultiSwap, checkQuote, Mismatch, type Trust } from "./checks.js";
import { Refused, Unreachable } from "./errors.js";
import type { components, paths } from "./generated/aggregator.js";
import { type CallOptions, Http, type HttpOptions, type Query } from "./http.js";
import { type Missed, Queue, type QueueOptions } from "./queue.js";
import { readEvents } from "./sse.js";
import { pauseMs, sleep } from "./wait.js";

type Schemas = components["schemas"];
type Parameters<Path extends keyof paths> = paths[Path] extends {
  get: { parameters: { query?: infer Q } };
} ? NonNullable<Q> : never;

/** Smallest units of a token, a whole number: a bigint or its decimal digits. Never a number: those are not exact. */
export type Amount = bigint | string;

export type Quote = Schemas["QuoteResponse"];
export type PairConfig = Schemas["PairConfig"];
export type Ladder = Schemas["LadderResponse"];
export type MultiSwap = Schemas["MultiSwapResponse"];
export type BatchQuote = Schemas["BatchResponse"];
export type Tokens = Schemas["TokensResponse"];
export type Pools = Schemas["PoolsResponse"];
export type Prices = Schemas["PricesResponse"];
export type AggregatorConfig = Schemas["ConfigResponse"];
export type AggregatorHealth = Schemas["Health"];

type Asked = Omit<Parameters<"/api/v1/quote">, "amountIn" | "amountOut" | "slippage" | "maxPriceImpact"> & {
  /** A fraction, such as "0.01"; a decimal string keeps all of its digits. */
  slippage?: string | number;
  maxPriceImpact?: string | number;
};
/** The parameters of a quote; exactly one of `amountIn` and `amountOut` (a reverse quote) is there. */
export type QuoteParameters = Asked &
  ({ amountIn: Amount; amountOut?: never } | { amountOut: Amount; amountIn?: never });
export type LadderParameters = Omit<Parameters<"/api/v1/price-ladder">, "amounts" | "maxPriceImpact"> & {
  amounts: readonly Amount[];
  maxPriceImpact?: string | number;
};
export interface SwapInput {
  token: string;
  amount: Amount;
}
export interface MultiSwapParameters {
  inputs: readonly SwapInput[];
  to: string;
  slippage?: string | number;
  maxHops?: number;
  /** Of each input. */
  maxSplits?: number;
  maxPools?: number;
  maxBuiltinCalls?: number;
  /** Of each input, a fraction: one with more is not sold. */
  maxPriceImpact?: string | number;
  maxAgeMs?: number;
  referralId?: number;
  includeExchanges?: string | readonly string[];
  excludeExchanges?: string | readonly string[];
  includePools?: string | readonly string[];
  excludePools?: string | readonly string[];
  /** Of the transactions. */
  gasPrice?: number;
  /** Leave out what cannot be sold (the default), or refuse the whole. */
  dustMode?: boolean;
  sender?: string;
}

/** One item of a quote stream: a quote of a new state of the market, the error in its place, or what was missed. */
export type StreamItem =
  | { type: "quote"; id: string; quote: Quote }
  | { type: "error"; id: string; error: string }
  | Missed;

const LONGEST_WAIT_MS = 60_000; // a stream that was told to come back much later looks from time to time
const SILENCE_MS = 40_000; // a stream says something every 15 s: two of these and a little have not come

/** The REST interface of an aggregator. */
export class Aggregator {
  readonly #http: Http;
  readonly #trust: Trust;

  constructor(url: string, { contract, maxGasPrice, ...options }: HttpOptions & Trust = {}) {
    if (contract !== undefined && contract !== "any") decodeAddress(contract); // a typing error is told now
    this.#trust = optional({ contract, maxGasPrice });
    this.#http = new Http(url, options, false);
  }

  /**
   * The best swap of `amountIn`, or the cheapest for `amountOut`; `from` = `to` looks for profitable cycles. With `sender` the
   * answer holds a transaction. Throws `Refused`, and `Mismatch` for a transaction that does something else.
   */
  async quote({ amountInMax, amountOutMin, ...asked }: QuoteParameters & Bounds, call?: CallOptions): Promise<Quote> {
    const quote = await this.#http.get<Quote>("/api/v1/quote", { ...call, query: asQuery(asked) });
    return this.#checked({ ...asked, ...optional({ amountInMax, amountOutMin }) } as QuoteParameters & Bounds, quote);
  }

  /** The quote, if its transaction is what was asked for. Throws `Mismatch`. */
  #checked(asked: QuoteParameters & Bounds, quote: Quote): Quote {
    const most = asked.amountInMax ?? quote.amountIn; // who names none is told it, and may bound it before signing
    if (quote.transaction) checkQuote({ ...asked, amountInMax: most }, quote, asked.sender ?? quote.transaction.sender, this.#trust);
    return quote;
  }

  /** The answers for several inputs in one call. */
  ladder({ amounts, ...parameters }: LadderParameters, call?: CallOptions): Promise<Ladder> {
    const query = { ...asQuery(parameters), amounts: amounts.map((amount) => units("amounts", amount)).join(",") };
    return this.#http.get("/api/v1/price-ladder", { ...call, query });
  }

  /** Many inputs to one output, with transactions ready to be signed. */
  async multiSwap(parameters: MultiSwapParameters, call?: CallOptions): Promise<MultiSwap> {
    const answer = await this.#http.post<MultiSwap>("/api/v1/multi-swap", asBody(parameters), call);
    if (parameters.sender !== undefined) checkMultiSwap(parameters, answer, parameters.sender, this.#trust);
    return answer;
  }

  /** The same for those who build their transactions themselves. */
  batchQuote(parameters: Omit<MultiSwapParameters, "sender" | "dustMode">, call?: CallOptions): Promise<BatchQuote> {
    return this.#http.post("/api/v1/batch-quote", asBody(parameters), call);
  }

  /** Whether a pair can be traded, its decimals and its least input. */
  pairConfig(from: string, to: string, call?: CallOptions): Promise<PairConfig> {
    return this.#http.get("/api/v1/pair-config", { ...call, query: { from, to } });
  }

  tokens(parameters: Parameters<"/api/v1/tokens"> = {}, call?: CallOptions): Promise<Tokens> {
    return this.#http.get("/api/v1/tokens", { ...call, query: parameters });
  }

  pools(parameters: Parameters<"/api/v1/pools"> = {}, call?: CallOptions): Promise<Pools> {
    return this.#http.get("/api/v1/pools", { ...call, query: parameters });
  }

  /** Prices of these tokens, or of all. */
  prices(tokens?: readonly string[], call?: CallOptions): Promise<Prices> {
    return this.#http.get("/api/v1/prices", { ...call, query: { tokens: tokens?.join(",") } });
  }

  config(call?: CallOptions): Promise<AggregatorConfig> {
    return this.#http.get("/api/v1/config", call);
  }

  /** The service's state; it answers 503 with the same body while it has no market. */
  health(call?: CallOptions): Promise<AggregatorHealth> {
    return this.#http.get("/health", { ...call, answers: [503] });
  }

  /**
   * A quote for each new state of the market, until the iteration is left; reconnects by itself and says what was
   * missed. A reader who is slow gets the newest (`policy: "latest"`) unless told otherwise. Throws `Refused` where
   * the question itself is refused.
   */
  stream(
    { amountInMax, amountOutMin, ...asked }: QuoteParameters & Bounds, { signal, ...kept }: CallOptions & QueueOptions = {},
  ): AsyncIterableIterator<StreamItem> {
    const url = this.#http.url("/api/v1/quote/stream", asQuery(asked));
    const checked = (quote: Quote): Quote =>
      this.#checked({ ...asked, ...optional({ amountInMax, amountOutMin }) } as QuoteParameters & Bounds, quote);
    const stop = new AbortController();
    const queue = new Queue<StreamItem>({ policy: "latest", ...kept }, () => stop.abort());
    const until = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
    this.#follow(url, queue, until, checked).then(() => queue.end(), (error) => queue.end(stop.signal.aborted ? undefined : error));
    return queue;
  }

  async #follow(
    url: string, queue: Queue<StreamItem>, signal: AbortSignal, checked: (quote: Quote) => Quote,
  ): Promise<void> {
    let heard: number | undefined; // when something last came
    for (let attempt = 1; ; attempt++) {
      let told: number | undefined;
      try {
        await this.#read(url, queue, signal, checked, heard, () => {
          heard = Date.now();
          attempt = 0;
        });
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        if (error instanceof Mismatch) throw error;
        if (error instanceof Refused) {
          if (error.status !== 429 && error.status !== 503) throw error;
          told = error.retryAfterMs;
        }
      }
      await sleep(Math.min(told ?? pauseMs(Math.max(1, attempt)), LONGEST_WAIT_MS), signal);
    }
  }

  async #read(
    url: string, queue: Queue<StreamItem>, signal: AbortSignal, checked: (quote: Quote) => Quote, lastHeard: number | undefined, heard: () => void,
  ): Promise<void> {
    const silence = new AbortController();
    const give = (): void => silence.abort(new Unreachable("the stream fell silent"));
    let timer = setTimeout(give, SILENCE_MS);
    try {
      const init = { headers: { Accept: "text/event-stream" } };
      const response = await this.#http.send(url, init, AbortSignal.any([signal, silence.signal]));
      if (!response.ok || !response.body) throw this.#http.refusal(response, await response.text());
      if (lastHeard !== undefined) queue.push({ type: "missed", reason: "connection", from: lastHeard, to: Date.now() });
      const events = readEvents(response.body, () => {
        heard();
        clearTimeout(timer);
        timer = setTimeout(give, SILENCE_MS);
      });
      for await (const { event, id, data } of events) {
        if (event === "quote") queue.push({ type: "quote", id, quote: checked(JSON.parse(data) as Quote) });
        else if (event === "error") queue.push({ type: "error", id, error: String(JSON.parse(data).error) });
      }
    } finally {
      clearTimeout(timer);
    }
  }
}

/** The digits of an amount. Throws `RangeError` for what is not exact. */
export function units(name: string, amount: Amount): string {
  const text = String(amount);
  if (typeof amount === "number" || !/^[0-9]{1,78}$/.test(text)) {
    throw new RangeError(`${name}: whole smallest units as a bigint or a string of digits, not ${typeof amount} ${text}`);
  }
  return text;
}

function asQuery({ ...parameters }: Record<string, unknown>): Query {
  for (const name of ["amountIn", "amountOut"]) {
    if (parameters[name] !== undefined) parameters[name] = units(name, parameters[name] as Amount);
  }
  for (const name of ["slippage", "maxPriceImpact"]) {
    if (parameters[name] !== undefined) parameters[name] = fraction(name, parameters[name] as string | number);
  }
  return parameters as Query;
}

function asBody({ dustMode, slippage, maxPriceImpact, inputs, ...rest }: MultiSwapParameters): Record<string, unknown> {
  return {
    ...rest,
    ...(maxPriceImpact === undefined ? {} : { maxPriceImpact: fraction("maxPriceImpact", maxPriceImpact) }),
    inputs: inputs.map(({ token, amount }) => ({ token, amount: units("amount", amount) })),
    ...(slippage === undefined ? {} : { slippage: Number(fraction("slippage", slippage)) }),
    ...(dustMode === undefined ? {} : { dust_mode: dustMode }),
  };
}

/** Without what is undefined. */
export function optional<T extends object>(given: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as never;
}

/** A fraction in plain decimals. Throws `RangeError`. */
export function fraction(name: string, value: string | number): string {
  const text = typeof value === "number" ? value.toFixed(12).replace(/\.?0+$/, "") : value;
  if (!/^[0-9]*\.?[0-9]+$/.test(text)) throw new RangeError(`${name}: a fraction such as "0.01", not ${text}`);
  return text;
}
