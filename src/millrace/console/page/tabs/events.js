// The notifier's hub: its events as they come, how far behind each reader is, and what nobody understood.

import { html, useMemo, useRef, useState } from "../vendor/preact.js";
import { Hub } from "../vendor/millrace/hub.js";
import { told } from "./events/told.js";
import { samples, total } from "../lib/metrics.js";
import { clock, duration, number } from "../lib/format.js";
import { useAnswer, useStream, useThrottled } from "../lib/live.js";
import { Operator } from "../lib/operator.js";
import { get, operators, post } from "../lib/services.js";
import { Banner, Card, Choice, Dialog, Hash, Problem, State, Table, Tiles } from "../lib/ui.js";

const KEPT = 200; // events in the list
const SHOWN = 40;
const TOPICS = ["SaveBlock", "ExecutedBlock", "FinalizedBlock", "RevertIndexedBlock", "SaveAccounts", "SaveRoundsInfo", "SaveValidatorsPubKeys", "SaveValidatorsRating"];
const LEVELS = [["All", "All"], ["Address", "Address"], ["Identifier", "Identifier"]];
const QUIET_MS = 15_000; // blocks of the network's slowest rounds come every 6 s
const ask = (path) => get(operators.url(`notifier/${path}`), { headers: operators.headers() });

class OperatorSocket extends WebSocket {
  constructor(url) {
    super(url, operators.protocols());
  }
}

async function metrics() {
  const response = await fetch(operators.url("notifier/metrics"), { headers: operators.headers() });
  if (!response.ok) throw Object.assign(new Error(`HTTP ${response.status}`), { status: response.status });
  return samples(await response.text());
}

export default function Events() {
  const [token, setToken] = useState(0);
  const state = useAnswer(() => ask("v1/state"), [token], 2_000);
  const counts = useAnswer(metrics, [token], 2_000);
  return html`<div class="page one">
    <${Operator} error=${state.error} onToken=${() => setToken(token + 1)}/>
    <${Card} title="Delivery"><${Delivery} state=${state.value} counts=${counts.value}/></${Card}>
    <${Stream} key=${token}/>
    <${DeadLetters} key=${`letters-${token}`}/>
  </div>`;
}

function Delivery({ state, counts }) {
  if (!state || !counts) return html`<p class="sub">Loading…</p>`;
  const reverts = total(counts, "notifier_reverts_total");
  const rows = [{ name: "hub", ...state.hub, connected: true, problems: [] }, ...state.sinks];
  const columns = [
    { name: "name", label: "Reader", cell: (row) => (row.name === "hub" ? `hub, the slowest of ${number(state.consumers)}` : row.name) },
    { name: "state", label: "State", cell: (row) => html`<span class=${row.connected && !row.problems.length ? "good" : "bad"}>${row.problems[0] ?? (row.connected ? "✓ connected" : "✗ not connected")}</span>` },
    { name: "seconds", label: "Behind", end: true, cell: (row) => duration(row.lagSeconds * 1000) },
    { name: "events", label: "Events", end: true, cell: (row) => number(row.lag) },
  ];
  return html`<${Tiles} items=${[
    { label: "Events kept", value: number(Math.max(0, state.head - state.oldest + 1)), note: `the newest is ${state.head}` },
    { label: "Nodes", value: number(state.nodes), tone: state.nodes ? "" : "bad", note: "that send events" },
    { label: "Duplicates", value: number(total(counts, "notifier_duplicates_total")), note: "told by a further node" },
    { label: "Reverts", value: number(reverts), note: "blocks taken back" },
    { label: "Dead letters", value: number(total(counts, "notifier_dead_letters_total")), tone: total(counts, "notifier_dead_letters_total") ? "bad" : "", note: "since the notifier started" },
  ]}/><${Table} label="Readers of the events" columns=${columns} rows=${rows} rowKey=${(row) => row.name}/>`;
}

function Stream() {
  const rows = useRef([]);
  const [, show] = useThrottled(0, 2);
  const [paused, setPaused] = useState(false);
  const [topic, setTopic] = useState("");
  const [level, setLevel] = useState("All");
  const [typed, setTyped] = useState("");
  const [sought, setSought] = useState("");
  const frozen = useRef();
  const take = (item) => {
    rows.current = [{ at: Date.now(), ...told(item) }, ...rows.current].slice(0, KEPT);
    show((count) => count + 1);
  };
  const filter = level === "All" || !sought ? { level: "All" } : { level, [level.toLowerCase()]: sought };
  const open = () => new Hub(operators.socket("notifier/hub/ws"), { WebSocket: OperatorSocket, filter, size: 1_024 });
  const state = useStream(open, take, [level, sought], { silence: QUIET_MS });
  if (!paused) frozen.current = rows.current;
  const shown = frozen.current.filter((row) => !topic || row.topic === topic).slice(0, SHOWN);
  const missing = rows.current.filter((row) => row.topic === "gap").length;
  const seek = (event) => {
    event.preventDefault();
    setSought(typed.trim());
  };
  const columns = [
    { name: "at", label: "Came", cell: (row) => clock(row.at) },
    { name: "sequence", label: "Sequence", end: true, cell: (row) => row.sequence },
    { name: "topic", label: "Topic", cell: (row) => row.topic },
    { name: "shard", label: "Shard", cell: (row) => row.shard },
    { name: "hash", label: "Block", cell: (row) => html`<${Hash} text=${row.hash} label="Copy the block's hash"/>` },
    { name: "size", label: "Bytes", end: true, cell: (row) => number(row.size) },
    { name: "marks", label: "Marks", cell: (row) => html`<span class="warn">${row.marks}</span>` },
  ];
  return html`<${Card} title="Events" aside=${html`<${State} state=${paused ? "paused" : state}/>`}>
    <div class="row">
      <button type="button" class="ghost" aria-pressed=${paused} onClick=${() => setPaused(!paused)}>${paused ? "Go on" : "Pause"}</button>
      <label class="sub">Topic <select value=${topic} onChange=${(event) => setTopic(event.target.value)}><option value="">all</option>${TOPICS.map((name) => html`<option key=${name}>${name}</option>`)}</select></label>
      <${Choice} label="Log events of" value=${level} options=${LEVELS} onChange=${(next) => { setLevel(next); setSought(""); }}/>
      ${level !== "All" && html`<form class="row" onSubmit=${seek}><label class="sub">${level} <input type="text" value=${typed} onInput=${(event) => setTyped(event.target.value)}/></label><button class="ghost">Filter</button></form>`}
    </div>
    ${missing > 0 && html`<${Banner}>${number(missing)} gaps: the hub no longer had what came in between.</${Banner}>`}
    <${Table} label="Events of the hub" columns=${columns} rows=${shown} rowKey=${(row) => row.sequence + row.topic}/>
    <p class="sub">The latest ${number(SHOWN)} of up to ${number(KEPT)} that this tab keeps. Paused, the list stands still, and events go on being counted.</p>
  </${Card}>`;
}

function DeadLetters() {
  const { value, error, again } = useAnswer(() => ask("v1/dead-letters"), [], 5_000);
  const [chosen, setChosen] = useState();
  const columns = [
    { name: "at", label: "Came", cell: (row) => new Date(row.at).toLocaleString("en-GB") },
    { name: "topic", label: "Topic", cell: (row) => row.topic },
    { name: "remote", label: "From", cell: (row) => row.remote },
    { name: "reason", label: "Why it was not understood", cell: (row) => row.reason },
    { name: "bytes", label: "Bytes", end: true, cell: (row) => number(row.bytes) },
    { name: "show", label: html`<span class="vh">Show</span>`, end: true, cell: (row) => html`<button type="button" class="ghost" onClick=${() => setChosen(row)}>Show</button>` },
  ];
  return html`<${Card} title="Dead letters">
    ${error?.status !== 401 && html`<${Problem} error=${error}/>`}
    <${Table} label="Dead letters" stacked columns=${columns} rows=${value?.letters ?? []} rowKey=${(row) => row.id} empty="Everything was understood."/>
    ${chosen && html`<${Letter} letter=${chosen} onClose=${() => { setChosen(undefined); again(); }}/>`}
  </${Card}>`;
}

function Letter({ letter, onClose }) {
  const { value, error } = useAnswer(() => ask(`v1/dead-letters/${letter.id}`), [letter.id]);
  const [done, setDone] = useState({});
  const text = useMemo(() => (value ? readable(value.payload) : ""), [value]);
  const replay = async () => {
    try {
      const { before, head } = await post(operators.url("notifier/control/replay-dead-letter"), { id: letter.id }, operators.headers());
      setDone({ text: head > before ? "It was understood: its events are told." : "It told nothing new: known already, or not understood again." });
    } catch (problem) {
      setDone({ error: problem.status === 404 && !/dead letter/.test(problem.message) ? new Error("the notifier has no operators_token, so that nobody may act: set one") : problem });
    }
  };
  return html`<${Dialog} title="Dead letter" onClose=${onClose}>
    <p class="sub">${letter.topic} from ${letter.remote}: ${letter.reason}</p>
    <${Problem} error=${error}/><pre tabindex="0" role="region" aria-label="Payload">${text}</pre>
    ${value && !value.whole && html`<p class="sub">Its beginning alone.</p>`}
    <div class="row"><button type="button" class="ghost" onClick=${replay}>Replay</button><span class="sub">as if a node sent it now; wants the operators' token</span></div>
    <p role="status">${done.text}</p><${Problem} error=${done.error}/>
  </${Dialog}>`;
}

/** A payload as text where it is text, else its bytes in hexadecimal. */
function readable(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    if (!/[\u0000-\u0008\u000e-\u001f]/.test(text)) return text.slice(0, 4_096);
  } catch {
    // It is no text.
  }
  return [...bytes.slice(0, 1_024)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
}
