// A swap: what is paid, what is received, the route between them, and everything until it is done.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { amount, dollars, ends, grouped, number, percent, ticker, units } from "../lib/format.js";
import { useAnswer } from "../lib/live.js";
import { compared } from "../lib/scales.js";
import { relayer, settings } from "../lib/services.js";
import { listed, named, remembered } from "../lib/tokens.js";
import { Card, Choice, Hash, Problem } from "../lib/ui.js";
import { Coin, Picker } from "./swap/picker.js";
import { carryOut, Progress } from "./swap/progress.js";
import { useQuote } from "./swap/quotes.js";
import { Route } from "./swap/route.js";
import { balancesOf, choices, fund, openDemonstration, openExtension } from "./swap/wallet.js";

const SLIPPAGES = ["0.001", "0.005", "0.01"];
const STEEP = 0.05; // price impact beyond which a swap wants a second look
const GOOD_PROOF = 0.001;
const FIRST = { from: "USDC-c76f1f", to: "WEGLD-bd4d79" };
const STEPS = 3; // how many times the amount a faucet gives

export default function Swap() {
  const [pair, setPair] = useState();
  const asked = useAnswer(async () => {
    const rows = (await listed()).filter(({ isLp }) => !isLp);
    const [from, to] = await Promise.all([named(FIRST.from), named(FIRST.to)]);
    return { from: (from ?? rows[0]).identifier, to: (to ?? rows[1]).identifier };
  }, []);
  const known = useAnswer(settings, []);
  useEffect(() => { if (asked.value && !pair) setPair(asked.value); }, [asked.value]);
  if (!pair || !known.value) return html`<div class="page"><${Card} title="Swap"><p class="sub">Loading the tokens…</p><${Problem} error=${asked.error ?? known.error}/></${Card}></div>`;
  return html`<${Form} pair=${pair} setPair=${setPair} settings=${known.value}/>`;
}

function Form({ pair: { from, to }, setPair, settings: known }) {
  const [typed, setTyped] = useState({ side: "in", text: "1,000" });
  const [slippage, setSlippage] = useState("0.01");
  const [steps, setSteps] = useState([]);
  const [busy, setBusy] = useState(false);
  const wallet = useWallet(known);
  const decimals = { in: remembered(from)?.decimals ?? 18, out: remembered(to)?.decimals ?? 18 };
  const scales = useScales({ [from]: decimals.in, [to]: decimals.out }, known, `${typed.side} ${typed.text}`);
  const wanted = units(typed.text, decimals[typed.side]);
  const fraction = fractionOf(slippage);
  const asked = wanted && fraction !== null ? {
    from, to, slippage: fraction, [typed.side === "in" ? "amountIn" : "amountOut"]: wanted,
    ...(wallet.account ? { sender: wallet.account.address } : {}),
  } : null;
  const { quote, error, state } = useQuote(asked);
  const pays = quote ? BigInt(quote.amountInMax ?? quote.amountIn) : typed.side === "in" ? wanted : null;
  const short = Boolean(wallet.balances && pays !== null && pays > wallet.held(from));
  const text = (side) => (typed.side === side ? typed.text : quote ? amount(side === "in" ? quote.amountIn : quote.amountOut, decimals[side], 8) : "");
  const flip = () => {
    setPair({ from: to, to: from });
    setTyped({ side: "in", text: text("out") || typed.text });
  };
  const swap = async () => {
    setBusy(true);
    await carryOut({ asked, quote, wallet: wallet.account, contract: known.contract, tell: setSteps });
    setBusy(false);
    wallet.refresh();
  };
  const side = (name, token, other) => html`<${Side} key=${name} name=${name} token=${token} without=${other} text=${text(name)} wallet=${wallet}
    usd=${name === "in" ? quote?.amountInUsd : quote?.amountOutUsd} invalid=${typed.side === name && typed.text !== "" && wanted === null}
    onText=${(value) => setTyped({ side: name, text: value })} onToken=${({ identifier }) => setPair(name === "in" ? { from: identifier, to } : { from, to: identifier })}/>`;
  return html`<div class="page"><div class="stack">
    <${Card} title="Swap" aside=${html`<span class="sub">the relayer pays the gas</span>`}>
      <div class="form">
        ${side("in", from, to)}
        <button type="button" class="flip" aria-label="Turn the swap around" onClick=${flip}>↓↑</button>
        ${side("out", to, from)}
        <${Slippage} value=${slippage} onChange=${setSlippage}/>
        <${Problem} error=${error ?? (state === "reconnecting" && !quote ? "service unavailable" : undefined)}/>
        ${wallet.account
          ? html`<${Agreement} scales=${scales} quote=${quote} from=${from} to=${to} decimals=${decimals}/>
            <${Go} quote=${quote} busy=${busy} short=${short} from=${from} to=${to} wallet=${wallet} needed=${pays} agreed=${scales.agreed} onSwap=${swap}/>`
          : html`<${Connect} wallet=${wallet}/>`}
        <${Problem} error=${wallet.error}/>
        <${Problem} error=${scales.error}/>
      </div>
      ${quote && html`<${Facts} quote=${quote} from=${from} to=${to} decimals=${decimals}/>`}
    </${Card}>
    ${wallet.account && html`<${Account} wallet=${wallet}/>`}
  </div><div class="stack">
    ${steps.length > 0 && html`<${Progress} steps=${steps}/>`}
    <${Card} title="Route" aside=${quote && html`<span class="sub">${summary(quote)}</span>`}>
      ${quote?.paths?.length ? html`<${Route} paths=${quote.paths}/>` : html`<p class="sub">${error ? "There is no route to show." : wanted ? "Looking for the best route…" : "Enter an amount to see where it would flow."}</p>`}
    </${Card}>
    ${quote && html`<${Costs} quote=${quote} from=${from}/>`}
  </div></div>`;
}

/** A fraction from what somebody chose or typed in per cent; null for what is none, or makes no sense. */
function fractionOf(text) {
  return /^0?\.\d{1,6}$|^0$/.test(text) && Number(text) <= 0.5 ? text : null;
}

/** Whether amounts in whole tokens mean what the chain means by them, or who looks at the page agrees to the smallest units. */
function useScales(told, known, typed) {
  const key = JSON.stringify(told);
  const { value, error } = useAnswer(async () => ({ key, ...(await compared(told, known)) }), [key]);
  const [ticked, setTicked] = useState("");
  const sure = value?.key === key ? value.sure : undefined; // of another pair, or not known yet
  const asked = `${key} ${typed}`; // who types another amount agrees anew
  const ticks = ticked === asked;
  return { sure, error, ticked: ticks, tick: (is) => setTicked(is ? asked : ""), agreed: !error && (sure || (sure === false && ticks)) };
}

/** Where nobody but the aggregator says how many decimals tokens have: the numbers that are signed. */
function Agreement({ scales: { sure, ticked, tick }, quote, from, to, decimals }) {
  if (sure !== false || !quote) return null;
  return html`<label class="agreement"><input type="checkbox" id="agreed" checked=${ticked} onChange=${(event) => tick(event.target.checked)}/>
    <span>Only the aggregator says how many decimals these tokens have. I pay ${quote.amountInMax ? "at most " : ""}${quote.amountInMax ?? quote.amountIn} smallest units of ${from} (${decimals.in} decimals)
    and receive at least ${quote.amountOutMin} of ${to} (${decimals.out} decimals).</span></label>`;
}

/** The wallet that is open, with balances that are asked for again when its account has changed. */
function useWallet(known) {
  const [account, setAccount] = useState();
  const [balances, setBalances] = useState();
  const [state, setState] = useState({});
  const offered = useAnswer(() => choices(known), []);
  const refresh = async () => {
    if (!account || !known.services.chain) return;
    try {
      setBalances(await balancesOf(account.address));
    } catch (error) {
      setState({ error });
    }
  };
  useEffect(() => { void refresh(); }, [account]);
  useEffect(() => {
    if (!account) return undefined;
    let iterator;
    let gone = false;
    const hear = async () => {
      try {
        iterator = await relayer.subscribe(`address/${account.address}`, { policy: "latest" });
        for await (const _ of iterator) {
          if (gone) break;
          await refresh();
        }
      } catch {
        // Balances are asked for after each swap, too.
      }
    };
    void hear();
    return () => {
      gone = true;
      iterator?.return();
    };
  }, [account]);
  const doing = async (what) => {
    setState({ busy: true });
    try {
      await what();
      setState({});
    } catch (error) {
      setState({ error });
    }
  };
  return {
    account, balances, refresh, ...state, offered: offered.value, known,
    held: (token) => balances?.get(token) ?? 0n,
    open: (kind) => doing(async () => setAccount(kind === "extension" ? await openExtension() : await openDemonstration())),
    give: (token, units) => doing(async () => {
      await fund(account.address, token, units);
      await refresh();
    }),
    close: () => {
      setAccount(undefined);
      setBalances(undefined);
    },
  };
}

function Side({ name, token, without, text, usd, wallet, invalid, onText, onToken }) {
  const [picking, setPicking] = useState(false);
  const label = name === "in" ? "You pay" : "You receive";
  const known = remembered(token);
  const picked = (chosen) => {
    setPicking(false);
    onToken(chosen);
  };
  const held = amount(wallet.held(token), known?.decimals ?? 18, 4);
  const all = () => onText(amount(wallet.held(token), known.decimals, 18));
  const tidy = () => text !== grouped(text) && onText(grouped(text));
  return html`<div class="field">
    <div class="lab"><label for=${`amount-${name}`}>${label}</label>
      ${wallet.balances && html`<span>${name === "in" ? html`<button type="button" class="all" aria-label=${`Pay all: ${held}`} onClick=${all}>balance ${held}</button>` : `balance ${held}`}</span>`}</div>
    <div class="line"><input id=${`amount-${name}`} class="amount" inputmode="decimal" autocomplete="off" spellcheck=${false} placeholder="0" value=${text} aria-invalid=${invalid}
        aria-describedby=${`note-${name}`} onInput=${(event) => onText(event.target.value)} onBlur=${tidy}/>
      <button type="button" class="token" aria-haspopup="dialog" aria-label=${`${ticker(token)}: choose the token you ${name === "in" ? "pay" : "receive"}`} onClick=${() => setPicking(true)}><${Coin} identifier=${token}/>${ticker(token)}</button></div>
    <p id=${`note-${name}`} class=${invalid ? "note bad" : "note"}>${invalid ? `A number like 2,500.75, with ${known?.decimals ?? 18} decimals at most` : (dollars(usd) || "\u00a0")}</p>
    ${picking && html`<${Picker} title=${name === "in" ? "Pay with" : "Receive"} balances=${wallet.balances} without=${without} onPick=${picked} onClose=${() => setPicking(false)}/>`}
  </div>`;
}

function Slippage({ value, onChange }) {
  const [own, setOwn] = useState("");
  const chosen = SLIPPAGES.includes(value) ? value : "own";
  const type = (text) => {
    setOwn(text);
    // Per cent, moved by two decimals as text: no float comes near it.
    const [, whole, rest = ""] = /^(\d{1,2})(?:\.(\d{0,4}))?$/.exec(text.trim()) ?? [];
    onChange(whole === undefined ? "none" : `0.${whole.padStart(2, "0")}${rest}`.replace(/^0\.0+$/, "0"));
  };
  return html`<div class="slippage"><div class="row"><span class="sub">Slippage</span>
      <${Choice} label="Slippage" value=${chosen} onChange=${onChange} options=${SLIPPAGES.map((item) => [item, percent(Number(item), 1)])}/>
      <label class="sub"><input type="text" inputmode="decimal" size="4" value=${own} placeholder="own" aria-label="Slippage of your own, in per cent" onInput=${(event) => type(event.target.value)}/> %</label></div>
    <p class=${fractionOf(value) === null ? "note bad" : "note"}>${fractionOf(value) === null ? "A number up to 50." : "If the price moves further than this before the swap is executed, the contract undoes it and you keep your tokens."}</p></div>`;
}

function Connect({ wallet }) {
  const { offered, busy } = wallet;
  if (!offered) return html`<button type="button" class="primary" disabled>Looking for wallets…</button>`;
  return html`
    ${offered.demonstration && html`<button type="button" class="primary" id="demonstration" disabled=${busy} onClick=${() => wallet.open("demonstration")}>Open a demonstration wallet</button>`}
    ${offered.extension && html`<button type="button" class=${offered.demonstration ? "ghost" : "primary"} id="extension" disabled=${busy} onClick=${() => wallet.open("extension")}>Connect your wallet</button>`}
    ${!offered.demonstration && !offered.extension && html`<p class="sub">To swap, install a wallet's browser extension and load this page again.</p>`}`;
}

function Go({ quote, busy, short, from, to, wallet, needed, agreed, onSwap }) {
  if (short && wallet.account.kind === "demonstration") {
    const give = () => wallet.give(from, needed * BigInt(STEPS));
    return html`<button type="button" class="primary" id="fund" disabled=${wallet.busy} onClick=${give}>${wallet.busy ? "The faucet is filling it…" : `Get ${ticker(from)} from the faucet`}</button>`;
  }
  const steep = quote?.priceImpact > STEEP;
  const text = busy ? "Swapping…" : short ? `Not enough ${ticker(from)}` : steep ? `Swap anyway: the price moves by ${percent(quote.priceImpact)}` : `Swap ${ticker(from)} for ${ticker(to)}`;
  const ready = quote?.transaction && agreed && !busy && !short;
  return html`<button type="button" class=${steep ? "primary steep" : "primary"} id="swap" disabled=${!ready} onClick=${onSwap}>${text}</button>`;
}

function Facts({ quote, from, to, decimals }) {
  const gap = quote.optimalityGap;
  return html`<dl class="facts">
    <dt>Rate</dt><dd>1 ${ticker(from)} = ${number(quote.rate, 6)} ${ticker(to)}</dd>
    <dt>Price impact</dt><dd class=${quote.priceImpact > STEEP ? "bad" : ""}>${percent(quote.priceImpact)}</dd>
    ${quote.amountInMax && html`<dt>You pay at most</dt><dd>${amount(quote.amountInMax, decimals.in, 6)} ${ticker(from)}</dd>`}
    <dt>You receive at least</dt><dd>${amount(quote.amountOutMin, decimals.out, 6)} ${ticker(to)}</dd>
    ${quote.searchCut && html`<dt>Search</dt><dd class="warn">cut short, the service is busy</dd>`}
    <dt>No route could pay more than</dt><dd>${gap === null ? "not known" : gap < GOOD_PROOF ? html`<span class="pill good">+${percent(gap, 3)}: proven</span>` : `+${percent(gap, 2)}`}</dd>
  </dl>`;
}

function Costs({ quote, from }) {
  const pools = quote.poolFees ?? [];
  return html`<${Card} title="What it costs"><dl class="facts">
    <dt>Gas, paid by the relayer</dt><dd>up to ${number(quote.estimatedGasLimit)} units</dd>
    <dt>Fee of this service</dt><dd>${percent(quote.feeBps / 1e4)}${quote.feeAmountUsd ? ` · ${dollars(quote.feeAmountUsd)}` : ""}</dd>
    ${quote.transaction && html`<dt>Contract that is called</dt><dd><${Hash} text=${quote.transaction.receiver} label="Copy address"/></dd>`}
    </dl>${pools.length > 0 && html`<details><summary>Fees of ${pools.length} pools, part of the price</summary><dl class="facts">${pools.map(({ dex, token, amountShort, address }) => html`
      <dt>${dex} <span class="sub">${ends(address)}</span></dt><dd>${number(amountShort, 4)} ${ticker(token)}</dd>`)}</dl></details>`}
  </${Card}>`;
}

function Account({ wallet }) {
  const { account, balances } = wallet;
  const rows = [...(balances ?? [])].filter(([token, units]) => units > 0n || token === "EGLD");
  return html`<${Card} title=${account.kind === "demonstration" ? "Demonstration wallet" : "Wallet"} aside=${html`<button type="button" class="ghost" onClick=${wallet.close}>Close</button>`}>
    <p class="sub"><${Hash} text=${account.address} label="Copy address"/>${account.kind === "demonstration" && " · its key is in this tab only, and gone with it"}</p>
    <dl class="facts">${rows.map(([token, units]) => html`<dt key=${token}>${ticker(token)}</dt><dd>${amount(units, token === "EGLD" ? 18 : (remembered(token)?.decimals ?? 18), 4)}</dd>`)}</dl>
  </${Card}>`;
}

function summary({ paths, snapshot }) {
  const pools = new Set((paths ?? []).flatMap(({ swaps }) => swaps.map(({ address, pairId }) => `${address} ${pairId ?? ""}`))).size;
  return `${paths?.length ?? 0} ${paths?.length === 1 ? "path" : "paths"} over ${pools} ${pools === 1 ? "pool" : "pools"}, block ${number(snapshot.blockNonce)}`;
}
