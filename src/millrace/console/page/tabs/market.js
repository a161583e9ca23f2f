// The market: how deep a pair is, what can be traded, where it is traded, and cycles that end with more than they began.

import { html, useState } from "../vendor/preact.js";
import { colourOf } from "../lib/exchanges.js";
import { amount, compact, dollars, ends, number, percent, ticker } from "../lib/format.js";
import { useAnswer } from "../lib/live.js";
import { aggregator } from "../lib/services.js";
import { listed, named } from "../lib/tokens.js";
import { Card, Choice, Problem, Table } from "../lib/ui.js";
import { Depth } from "./market/depth.js";

const ROWS = 12;
const EVERY_MS = 15_000;
const CYCLE_TOKENS = 4; // the most liquid ones are asked for
const CYCLE_USD = 10_000; // profit never falls as the amount grows: what is not needed comes back

export default function Market() {
  return html`<div class="page one">
    <div class="two"><${Depth}/><${Cycles}/></div>
    <${Tokens}/>
    <${Pools}/>
  </div>`;
}

const Exchange = ({ name }) => html`<span class="exchange"><i style=${`background: ${colourOf(name)}`}></i>${name}</span>`;

/** Rows of a page and the way to others. */
function Pager({ offset, total, onChange }) {
  return html`<div class="row pager"><button type="button" class="ghost" disabled=${offset === 0} onClick=${() => onChange(offset - ROWS)}>Earlier</button>
    <span class="sub">${total === 0 ? "none" : `${number(offset + 1)} to ${number(Math.min(offset + ROWS, total))} of ${number(total)}`}</span>
    <button type="button" class="ghost" disabled=${offset + ROWS >= total} onClick=${() => onChange(offset + ROWS)}>Later</button></div>`;
}

function Tokens() {
  const [search, setSearch] = useState("");
  const [offset, setOffset] = useState(0);
  const { value, error } = useAnswer(() => aggregator.tokens({ limit: ROWS, offset, ...(search.trim() ? { search: search.trim() } : {}) }), [search, offset], EVERY_MS);
  const type = (event) => {
    setOffset(0);
    setSearch(event.target.value);
  };
  return html`<${Card} title="Tokens" aside=${html`<input type="search" aria-label="Search tokens" placeholder="Name or identifier" value=${search} onInput=${type}/>`}>
    <${Problem} error=${error}/>
    <${Table} label="Tokens" rows=${value?.tokens ?? []} rowKey=${({ identifier }) => identifier} empty=${value ? "No token has that in its name." : "Loading…"} columns=${[
      { name: "token", label: "Token", cell: ({ ticker: short, identifier, isLp }) => html`<strong>${short}</strong> <span class="sub">${identifier}${isLp ? " · share of a pool" : ""}</span>` },
      { name: "price", label: "Price", end: true, cell: ({ priceUsdc }) => dollars(priceUsdc) || "–" },
      { name: "egld", label: "in EGLD", end: true, cell: ({ priceEgld }) => number(priceEgld, 4) },
      { name: "liquidity", label: "Liquidity", end: true, cell: ({ liquidityUsdc }) => dollars(liquidityUsdc) || "–" },
      { name: "pools", label: "Pools", end: true, cell: ({ pools }) => number(pools) },
    ]}/>
    ${value && html`<${Pager} offset=${offset} total=${value.total} onChange=${setOffset}/>`}
  </${Card}>`;
}

function Pools() {
  const [exchange, setExchange] = useState("");
  const [offset, setOffset] = useState(0);
  const config = useAnswer(() => aggregator.config(), []);
  const { value, error } = useAnswer(() => aggregator.pools({ limit: ROWS, offset, ...(exchange ? { exchange } : {}) }), [exchange, offset], EVERY_MS);
  const choose = (name) => {
    setOffset(0);
    setExchange(name);
  };
  const names = (config.value?.exchanges ?? []).map((one) => (typeof one === "string" ? one : one.name));
  return html`<${Card} title="Pools" aside=${html`<${Choice} label="Exchange" value=${exchange} onChange=${choose} options=${[["", "All"], ...names.map((name) => [name, name])]}/>`}>
    <${Problem} error=${error}/>
    <${Table} label="Pools" stacked rows=${value?.pools ?? []} rowKey=${({ id }) => id} empty=${value ? "None." : "Loading…"} columns=${[
      { name: "exchange", label: "Exchange", cell: ({ dex }) => html`<${Exchange} name=${dex}/>` },
      { name: "pair", label: "Tokens", cell: ({ tokens, kind }) => html`<strong>${tokens.map(ticker).join(" / ")}</strong> <span class="sub">${kind.replaceAll("_", " ")}</span>` },
      { name: "reserves", label: "Reserves", end: true, cell: ({ reservesShort }) => reservesShort.map(compact).join(" / ") },
      { name: "liquidity", label: "Liquidity", end: true, cell: ({ liquidityUsdc }) => dollars(liquidityUsdc) || "–" },
      { name: "state", label: "State", cell: ({ state, tradable }) => (tradable ? "trades" : html`<span class="warn">${state}: does not trade</span>`) },
      { name: "address", label: "Address", cell: ({ address }) => html`<code title=${address}>${ends(address)}</code>` },
    ]}/>
    ${value && html`<${Pager} offset=${offset} total=${value.total} onChange=${setOffset}/>`}
  </${Card}>`;
}

/** The best cycle from a token to itself, without a quote where none earns: the stream's first word, which is no refusal. */
async function cycleOf(token) {
  const size = BigInt(Math.round((CYCLE_USD / token.priceUsdc) * 1e6)) * 10n ** BigInt(Math.max(0, token.decimals - 6));
  for await (const event of aggregator.stream({ from: token.identifier, to: token.identifier, amountIn: size })) {
    if (event.type === "quote") return { token, quote: event.quote };
    if (event.type === "error") return { token };
  }
  return { token };
}

function Cycles() {
  const { value, error } = useAnswer(async () => {
    const tokens = (await listed()).filter(({ isLp, priceUsdc }) => !isLp && priceUsdc > 0).slice(0, CYCLE_TOKENS);
    const found = []; // one after the other: what looks far is answered one at a time, and the others would wait too long
    for (const { identifier } of tokens) found.push(await cycleOf(await named(identifier)));
    return found;
  }, [], EVERY_MS);
  const traded = (quote) => (quote?.paths ?? []).filter(({ swaps }) => swaps.length > 0); // a path without swaps is what stays
  const round = ({ quote }) => traded(quote).length
    ? traded(quote).slice(0, 2).map(({ swaps }) => html`<span class="cycle">${ticker(swaps[0].from)}${swaps.map(({ to, dex }) => html` → ${ticker(to)} <i title=${dex} style=${`background: ${colourOf(dex)}`}></i>`)}</span>`)
    : html`<span class="sub">none earns at present</span>`;
  return html`<${Card} title="Cycles that earn" aside=${html`<span class="sub">of the most liquid tokens, asked every ${EVERY_MS / 1000} s</span>`}>
    <p class="sub">Prices of the exchanges differ: who trades around such a circle ends with more than they began with, before gas. Up to ${dollars(CYCLE_USD)} were to be traded; what is not needed comes back.</p>
    <${Problem} error=${error}/>
    <${Table} label="Cycles that earn" stacked rows=${value ?? []} rowKey=${({ token }) => token.identifier} empty="Looking…" columns=${[
      { name: "token", label: "Token", cell: ({ token }) => html`<strong>${token.ticker}</strong>` },
      { name: "profit", label: "Profit", end: true, cell: ({ token, quote }) => (quote ? html`${amount(quote.profit, token.decimals, 4)}<br/><span class="sub">${dollars(quote.profitShort * token.priceUsdc)} · ${percent(Number(quote.profit) / Number(quote.amountIn), 3)}</span>` : "–") },
      { name: "route", label: "Route", cell: round },
    ]}/>
  </${Card}>`;
}
