// The relayer as its operator sees it: what its keys hold and may spend, what it refused, and its latest transactions.

import { html, useState } from "../vendor/preact.js";
import { amount, clock, duration, number } from "../lib/format.js";
import { useAnswer } from "../lib/live.js";
import { get, operators, post, relayer } from "../lib/services.js";
import { Banner, Card, Hash, Problem, Table } from "../lib/ui.js";
import { Operator } from "../lib/operator.js";

const DECIMALS = 18;
const STATES = { ok: "✓ pays", paused: "paused", "short of funds": "✗ short of funds", "unknown balance": "balance not known yet" };
const egld = (units) => (units === undefined ? "–" : `${amount(units, DECIMALS, 4)} EGLD`);
const ask = (path) => get(operators.url(`relayer/v1/${path}`), { headers: operators.headers() });

export default function Relayer() {
  const [token, setToken] = useState(0);
  const state = useAnswer(() => ask("state"), [token], 2_000);
  const latest = useAnswer(() => ask("transactions"), [token], 2_000);
  return html`<div class="page one">
    <${Operator} error=${state.error} onToken=${() => setToken(token + 1)}/>
    ${state.value?.ready === false && html`<${Banner} tone="bad">The relayer takes nothing at present${state.value.sponsoring === "ok" ? "" : `: ${state.value.sponsoring}`}.</${Banner}>`}
    <${Card} title="Keys" aside=${html`<span class="sub">${number(state.value?.inFlight)} transactions on their way</span>`}>
      <${Keys} state=${state.value} again=${state.again}/>
    </${Card}>
    <div class="two">
      <${Card} title="Refused" aside=${html`<span class="sub">since the relayer started</span>`}><${Refused} counts=${state.value?.refused}/></${Card}>
      <${Explain}/>
    </div>
    <${Card} title="Latest transactions"><${Problem} error=${latest.value ? null : latest.error}/><${Latest} items=${latest.value?.transactions ?? []}/></${Card}>
  </div>`;
}

function Keys({ state, again }) {
  const [error, setError] = useState();
  if (!state) return html`<p class="sub">Loading…</p>`;
  const turn = async (shard) => {
    const shards = state.paused.includes(shard) ? state.paused.filter((other) => other !== shard) : [...state.paused, shard];
    try {
      await post(operators.url("relayer/control/pause"), { shards }, operators.headers());
      setError(undefined);
    } catch (problem) {
      setError(problem.status === 404 ? new Error("the relayer has no operators_token, so that nobody may act: set one") : problem);
    }
    again();
  };
  const columns = [
    { name: "shard", label: "Shard", cell: (key) => key.shard },
    { name: "address", label: "Address", cell: (key) => html`<${Hash} text=${key.address} label="Copy the address"/>` },
    { name: "state", label: "State", cell: (key) => html`<span class=${key.state === "ok" ? "good" : "bad"}>${STATES[key.state] ?? key.state}</span>${key.isLow && html` <span class="warn">low</span>`}` },
    { name: "balance", label: "Balance", end: true, cell: (key) => egld(key.balance) },
    { name: "empty", label: "Empty in", end: true, cell: (key) => (key.secondsToEmpty === undefined ? "–" : duration(key.secondsToEmpty * 1000)) },
    { name: "risk", label: "At risk", end: true, cell: (key) => egld(key.atRisk) },
    { name: "left", label: "May still spend", end: true, cell: (key) => egld(key.left) },
    { name: "budget", label: "Minute, hour, day", cell: (key) => html`<${Budget} windows=${key.budget}/>` },
    { name: "pause", label: html`<span class="vh">Pause</span>`, end: true, cell: (key) => html`<button type="button" class="ghost" onClick=${() => turn(key.shard)}>${state.paused.includes(key.shard) ? "Go on" : "Pause"}<span class="vh"> shard ${key.shard}</span></button>` },
  ];
  return html`<${Table} label="Relayer keys" stacked columns=${columns} rows=${state.relayers} rowKey=${(key) => key.shard} empty="This relayer has no keys: it only broadcasts."/>
    <p class="sub">A pause holds over restarts; what was signed goes on. It wants the operators' token.</p><${Problem} error=${error}/>`;
}

/** How full each window is, as a meter and in words. */
function Budget({ windows }) {
  return html`<span class="windows">${windows.map(({ window, spent, limit }) => {
    const share = BigInt(limit) > 0n ? Number((BigInt(spent) * 1000n) / BigInt(limit)) / 1000 : 1;
    const text = `${egld(spent)} of ${egld(limit)} in the last ${window}`;
    return html`<meter key=${window} min="0" max="1" low="0.5" high="0.85" optimum="0" value=${Math.min(1, share)} title=${text} aria-label=${text}></meter>`;
  })}</span>`;
}

function Refused({ counts = {} }) {
  const rows = Object.entries(counts).sort(([, a], [, b]) => b - a);
  const columns = [
    { name: "code", label: "Reason", cell: ([code]) => code.replaceAll("_", " ").toLowerCase() },
    { name: "count", label: "Times", end: true, cell: ([, count]) => number(count) },
  ];
  return html`<${Table} label="Refusals by reason" columns=${columns} rows=${rows} rowKey=${([code]) => code} empty="Nothing was refused."/>`;
}

/** What would become of a transaction, or what became of one: by its JSON, or by its hash. */
function Explain() {
  const [text, setText] = useState("");
  const [answer, setAnswer] = useState({});
  const explain = async (event) => {
    event.preventDefault();
    try {
      setAnswer({ value: /^[0-9a-f]{64}$/.test(text.trim()) ? await known(text.trim()) : await prepared(text) });
    } catch (error) {
      setAnswer({ error: error instanceof SyntaxError ? new Error("this is neither a hash nor a transaction in JSON") : error });
    }
  };
  return html`<${Card} title="Explain">
    <form onSubmit=${explain}>
      <label class="sub" for="explain">A transaction in JSON (signed or not), or one of its hashes</label>
      <textarea id="explain" rows="5" class="code" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)} placeholder='{"sender": "erd1…", "receiver": "erd1…", "data": "…"}'></textarea>
      <button class="ghost">Explain</button>
    </form>
    <div aria-live="polite">
      <${Problem} error=${answer.error}/>
      ${answer.value && html`<${Verdict} value=${answer.value}/>`}
    </div>
  </${Card}>`;
}

async function known(hash) {
  const outcome = await relayer.outcome(hash);
  if (outcome) return outcome;
  throw new Error("transaction not known: it was not accepted here, or too long ago");
}

async function prepared(text) {
  const asked = JSON.parse(text);
  const transaction = asked.tx ?? asked.transaction ?? asked;
  const known = ["sender", "receiver", "value", "data", "nonce", "gasPrice", "gasLimit", "options", "guardian", "relayer", "senderUsername", "receiverUsername"];
  return post("relayer/v1/prepare", { transaction: Object.fromEntries(known.filter((name) => transaction[name] !== undefined && transaction[name] !== null).map((name) => [name, transaction[name]])) });
}

function Verdict({ value }) {
  if (value.sponsored === undefined) {
    return html`<p>Its state is <b>${value.state}</b>${value.reason ? `: ${value.reason}` : ""}.</p>`;
  }
  if (value.sponsored) {
    return html`<p class="good">✓ It would be paid for: at most ${egld(value.maxFee)}, by the key of shard ${value.shard}.</p>`;
  }
  return html`<p class="bad">✗ Refused by shard ${value.shard}: ${value.reason}</p>
    <p class="sub">${value.detail ?? ""}${value.retryAfterMs ? ` Try again in ${duration(value.retryAfterMs)}.` : ""}</p>`;
}

/** The stations of a transaction's life, and how far it has come. */
function Life({ transaction: { state, chainHash, sending, block } }) {
  const ended = { success: "✓ success", fail: "✗ fail" }[state] ?? state;
  const stations = [
    ["accepted", true], ["signed", Boolean(chainHash)], [sending ? "being sent" : "sent", Boolean(block) || sending || ["success", "fail", "included"].includes(state)],
    [block ? `block ${number(block.nonce)} of shard ${block.shard}` : "in a block", Boolean(block)],
    [["pending", "included"].includes(state) ? "end" : ended, !["pending", "included"].includes(state)],
  ];
  return html`<ol class="life">${stations.map(([name, done]) => html`<li key=${name} class=${done ? "done" : ""}>${name}<span class="vh">${done ? ", done" : ", still to come"}</span></li>`)}</ol>`;
}

function Latest({ items }) {
  const columns = [
    { name: "at", label: "Accepted", cell: (item) => clock(item.created) },
    { name: "hash", label: "Hash", cell: (item) => html`<${Hash} text=${item.transaction.hash} label="Copy the hash"/>` },
    { name: "sender", label: "Sender", cell: (item) => html`<span><${Hash} text=${item.transaction.sender} label="Copy the sender"/> · ${number(item.transaction.nonce)}</span>` },
    { name: "action", label: "Asked for", cell: (item) => item.transaction.action },
    { name: "fee", label: "Fee", end: true, cell: (item) => (item.transaction.fee === undefined ? html`<span class="sub">≤ ${egld(item.transaction.maxFee)}</span>` : egld(item.transaction.fee)) },
    { name: "life", label: "Life", cell: (item) => html`<${Life} transaction=${item.transaction}/>${item.transaction.reason && html`<span class="sub">${item.transaction.reason}</span>`}` },
  ];
  return html`<${Table} label="Latest transactions" stacked columns=${columns} rows=${items} rowKey=${(item) => item.transaction.hash}/>`;
}
