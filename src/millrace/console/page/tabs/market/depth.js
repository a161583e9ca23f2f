// How much of a pair can be traded until its price has moved so far: a picture of both sides of it.

import { html, useEffect, useMemo, useRef, useState } from "../../vendor/preact.js";
import { dollars, number, percent, ticker } from "../../lib/format.js";
import { useAnswer } from "../../lib/live.js";
import { aggregator } from "../../lib/services.js";
import { listed, named } from "../../lib/tokens.js";
import { Banner, Card, Problem } from "../../lib/ui.js";
import { Coin, Picker } from "../swap/picker.js";

const STEPS = 24;
const PART = 6; // of them in one question: each has a deadline of its own
const FROM_USD = 50;
const TO_USD = 2_000_000;
const WIDEST = 0.06; // how far prices are followed
const EVERY_MS = 15_000;
const HEIGHT = 260;
const FIRST = { one: "WEGLD-bd4d79", other: "USDC-c76f1f" };

/** Inputs of a token, worth `FROM_USD` to `TO_USD`, in smallest units; to look at, so that floats do. */
function inputs({ priceUsdc, decimals }) {
  const step = (TO_USD / FROM_USD) ** (1 / (STEPS - 1));
  return Array.from({ length: STEPS }, (_, index) => {
    const whole = (FROM_USD * step ** index) / priceUsdc;
    return BigInt(Math.max(1, Math.round(whole * 1e6))) * 10n ** BigInt(decimals) / 1_000_000n || 1n;
  });
}

/** One side: `points` with `move` and `usd`, how far the average price is from the first one, and for how much; and how many amounts got no answer. */
async function side(from, to) {
  const steps = [];
  const amounts = inputs(from);
  for (let at = 0; at < STEPS; at += PART) {
    const part = amounts.slice(at, at + PART);
    try {
      steps.push(...(await aggregator.ladder({ from: from.identifier, to: to.identifier, amounts: part, includePaths: false })).steps);
    } catch (error) {
      if (error.status !== 503) throw error;
      steps.push(...part.map(() => ({ error: error.message }))); // a busy service: the other parts are shown without it
    }
  }
  const paid = steps.filter(({ rate }) => Number.isFinite(rate)); // under load some have no answer
  if (!paid.length) throw new Error(steps.find((step) => step.error)?.error ?? "no path between tokens");
  const best = Math.max(...paid.map(({ rate }) => rate));
  const points = paid.map(({ rate, amountIn }) => ({ move: 1 - rate / best, usd: (Number(amountIn) / 10 ** from.decimals) * from.priceUsdc, rate }));
  return { points, missed: steps.length - paid.length };
}

export function Depth() {
  const [chosen, setPair] = useState();
  const [picking, setPicking] = useState();
  const first = useAnswer(async () => {
    const rows = (await listed()).filter(({ isLp, priceUsdc }) => !isLp && priceUsdc > 0);
    return { one: (await named(FIRST.one)) ?? rows[0], other: (await named(FIRST.other)) ?? rows[1] };
  });
  const pair = chosen ?? first.value;
  const { value, error = first.error } = useAnswer(async () => {
    if (!pair) return undefined;
    if (!pair.one.priceUsdc || !pair.other.priceUsdc) throw new Error("one of these tokens has no price");
    const sold = await side(pair.one, pair.other); // one after the other: ladders are answered one at a time
    const bought = await side(pair.other, pair.one);
    return { pair, sold: sold.points, bought: bought.points, missed: sold.missed + bought.missed };
  }, [pair?.one.identifier, pair?.other.identifier], EVERY_MS);
  const pick = (token) => {
    setPair({ ...pair, [picking]: token });
    setPicking(undefined);
  };
  const choice = (name) => html`<button type="button" class="token" aria-haspopup="dialog" disabled=${!pair} aria-label=${`${pair ? ticker(pair[name].identifier) : "…"}: choose another token`} onClick=${() => setPicking(name)}>
    ${pair ? html`<${Coin} identifier=${pair[name].identifier}/>${ticker(pair[name].identifier)}` : "…"}</button>`;
  const shown = value && pair && value.pair.one.identifier === pair.one.identifier && value.pair.other.identifier === pair.other.identifier ? value : undefined;
  return html`<${Card} title="Depth" aside=${html`<span class="row">${choice("one")} ${choice("other")}</span>`}>
    <${Problem} error=${error}/>
    ${shown ? html`<${Picture} ...${shown}/>` : !error && html`<p class="sub">Asking for prices of ${2 * STEPS} amounts…</p>`}
    ${picking && html`<${Picker} title="Token" without=${pair[picking === "one" ? "other" : "one"].identifier} onPick=${pick} onClose=${() => setPicking(undefined)}/>`}
  </${Card}>`;
}

/** Until where a side is followed: its points up to the widest move. */
const followed = (points) => points.filter(({ move }) => move <= WIDEST);
/** How much can be traded before the price has moved by this fraction. */
const until = (points, move) => Math.max(0, ...points.filter((point) => point.move <= move).map(({ usd }) => usd));

function Picture({ pair: { one, other }, sold, bought, missed }) {
  const box = useRef();
  const [width, setWidth] = useState(560);
  useEffect(() => {
    const resized = new ResizeObserver(([entry]) => setWidth(Math.max(240, Math.round(entry.contentRect.width))));
    resized.observe(box.current);
    return () => resized.disconnect();
  }, []);
  const [left, right] = [followed(sold), followed(bought)];
  const most = Math.max(1, ...[...left, ...right].map(({ usd }) => usd));
  const reach = Math.max(0.001, ...[...left, ...right].map(({ move }) => move));
  const y = (usd) => HEIGHT - 24 - (usd / most) * (HEIGHT - 44);
  const outline = (points, sign) => {
    const x = (move) => width / 2 + (sign * move * (width / 2 - 8)) / reach;
    const ends = points.reduce((path, { move, usd }) => `${path}L${x(move)} ${y(usd)}`, `M${x(0)} ${y(0)}`);
    return `${ends}L${x(points.at(-1)?.move ?? 0)} ${y(0)}Z`;
  };
  const shapes = useMemo(() => [outline(left, -1), outline(right, 1)], [sold, bought, width]);
  const mid = sold.length && bought.length ? Math.sqrt(sold[0].rate / bought[0].rate) : undefined;
  const moves = [0.001, 0.01, 0.05];
  const [sell, buy] = [`Sell ${ticker(one.identifier)}`, `Buy ${ticker(one.identifier)}`];
  return html`<div ref=${box} class="depth">
    <p class="figure">${number(mid, 6)} <span class="sub">${ticker(other.identifier)} for one ${ticker(one.identifier)}</span></p>
    ${missed > 0 && html`<${Banner}>${number(missed)} of ${2 * STEPS} amounts got no answer: more may be tradable than is shown here.</${Banner}>`}
    <svg width=${width} height=${HEIGHT} role="img" aria-label=${`How much can be traded before the price moves; the table below says the same`}>
      <path d=${shapes[0]} class="sell"/><path d=${shapes[1]} class="buy"/>
      <line x1=${width / 2} x2=${width / 2} y1="8" y2=${HEIGHT - 24}/><line x1="0" x2=${width} y1=${HEIGHT - 24} y2=${HEIGHT - 24}/>
      <text x="4" y=${HEIGHT - 6}>−${percent(reach, 1)}</text><text x=${width / 2} y=${HEIGHT - 6} text-anchor="middle">price now</text><text x=${width - 4} y=${HEIGHT - 6} text-anchor="end">+${percent(reach, 1)}</text>
      <text x="4" y="16">${sell}, up to ${dollars(most)}</text><text x=${width - 4} y="16" text-anchor="end">${buy}</text>
    </svg>
    <div class="table"><table><caption class="vh">How much can be traded before the price has moved</caption>
      <thead><tr><th scope="col">Price moves by</th>${moves.map((move) => html`<th key=${move} scope="col" class="end">${percent(move, 1)}</th>`)}</tr></thead>
      <tbody>${[[sell, sold], [buy, bought]].map(([name, points]) => html`<tr key=${name}><th scope="row">${name}</th>${moves.map((move) => html`<td key=${move} class="end">${dollars(until(points, move))}</td>`)}</tr>`)}</tbody></table></div>
    <p class="sub">Average price over all routes, of ${STEPS} amounts from ${dollars(FROM_USD)} to ${dollars(TO_USD)} on each side, asked again every ${EVERY_MS / 1000} s.</p>
  </div>`;
}
