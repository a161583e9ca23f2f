// Choosing a token: search by name, with price and balance.

import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { amount, dollars, number, ticker } from "../../lib/format.js";
import { search } from "../../lib/tokens.js";
import { Dialog, Problem } from "../../lib/ui.js";

const PAUSE_MS = 150;

export const Coin = ({ identifier }) => html`<span class="coin" aria-hidden="true" data-letter=${ticker(identifier).slice(0, 1)}></span>`;

export function Picker({ title, balances, without, onPick, onClose }) {
  const [text, setText] = useState("");
  const [{ rows, error }, setFound] = useState({});
  const box = useRef();
  useEffect(() => {
    let gone = false;
    const look = async () => {
      try {
        const found = await search(text.trim());
        if (!gone) setFound({ rows: found });
      } catch (problem) {
        if (!gone) setFound({ error: problem });
      }
    };
    const timer = setTimeout(look, text ? PAUSE_MS : 0);
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [text]);
  useEffect(() => box.current.querySelector("input").focus(), []);
  const held = (token) => balances?.get(token.identifier) ?? 0n;
  const shown = (rows ?? []).filter(({ identifier }) => identifier !== without)
    .sort((one, other) => Number(held(other) > 0n) - Number(held(one) > 0n));
  const move = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const stops = [...box.current.querySelectorAll("input, .tokens button")];
    stops[(stops.indexOf(document.activeElement) + step + stops.length) % stops.length]?.focus();
  };
  return html`<${Dialog} title=${title} onClose=${onClose}><div ref=${box} onKeyDown=${move}>
    <input type="search" class="wide" placeholder="Name or identifier" aria-label="Search tokens" value=${text} onInput=${(event) => setText(event.target.value)}/>
    <${Problem} error=${error}/>
    <ul class="tokens" aria-label="Tokens">${shown.map((token) => html`<li key=${token.identifier}>
      <button type="button" onClick=${() => onPick(token)}><${Coin} identifier=${token.identifier}/>
        <span class="who"><strong>${token.ticker}</strong><span class="sub">${token.identifier}${token.isLp ? " · share of a pool" : ""}</span></span>
        <span class="what"><span>${held(token) ? amount(held(token), token.decimals, 4) : ""}</span><span class="sub">${token.priceUsdc === null ? "no price" : dollars(token.priceUsdc)}</span></span>
      </button></li>`)}</ul>
    ${rows?.length === 0 && html`<p class="sub">No token has “${text}” in its name.</p>`}
    <p class="vh" role="status">${rows ? `${number(shown.length)} tokens` : ""}</p>
  </div></${Dialog}>`;
}
