// The network as the relayer sees it: what it does now, its blocks, its gas prices, and what it did before.

import { html, useMemo, useRef, useState } from "../vendor/preact.js";
import { Chart } from "../lib/chart.js";
import { clock, duration, number, percent } from "../lib/format.js";
import { useAnswer, useStream, useThrottled } from "../lib/live.js";
import { relayer } from "../lib/services.js";
import { Banner, Card, Choice, Problem, State, Tiles } from "../lib/ui.js";
import { Blocks } from "./network/blocks.js";

const MAJOR = 1; // of the schema that this page knows
const GAS_POINTS = 1_800; // half an hour of seconds
const A_SECOND = 1; // time that all of this tab is drawn: figures that change more often cannot be read
const PERCENTILES = [
  { label: "p50", colour: "--x1" },
  { label: "p75", colour: "--x4" },
  { label: "p90", colour: "--x2" },
];
const MEASURES = [
  ["avgTps10s", "Transactions per second", 1, ""],
  ["wsLagMs", "Lag of the stream", 1, " ms"],
  ["estimatedQueue", "Waiting transactions", 1, ""],
  ["pressure", "Pressure", 100, " %"],
  ["totalOnline", "Validators online", 1, ""],
  ["connectedPeers", "Peers", 1, ""],
];
const SPANS = [[3_600, "1 h"], [21_600, "6 h"], [86_400, "24 h"], [604_800, "7 days"]];

const billionths = (price) => (price === null || price === undefined ? "–" : number(price / 1e9, 6));

export default function Network() {
  const [stats, setStats] = useThrottled({}, A_SECOND);
  const take = (item) => setStats((before) => {
    if (item.type === "missed") return { ...before, missed: (before.missed ?? 0) + (item.count ?? 0), gap: item.reason === "connection" ? clock(item.to) : before.gap };
    return { ...before, message: item };
  });
  const state = useStream(() => relayer.networkStats(), take);
  const { message } = stats;
  const { blockTimeMsP50ByShard: medians, nonceGapEvents1m: gaps, duplicateNonceEvents1m: doubles } = message?.data.blocks ?? {};
  // The same element while nothing of it has changed, which then is not drawn again.
  const blocks = useMemo(() => html`<${Blocks} medians=${medians} gaps=${gaps} doubles=${doubles}/>`, [JSON.stringify([medians, gaps, doubles])]);
  return html`<div class="page one">
    <${Warnings} stats=${stats} state=${state}/>
    <${Card} title="Now" aside=${html`<${State} state=${state}/>`}><${Now} data=${message?.data}/></${Card}>
    <${Card} title="Blocks" aside=${html`<span class="sub">each mark is a block, newest at the right; its height is its transactions</span>`}>
      ${blocks}
    </${Card}>
    <div class="two"><${Gas}/><${History}/></div>
  </div>`;
}

function Warnings({ stats: { message, missed, gap }, state }) {
  const version = message?.schemaVersion ?? "";
  const complete = message?.data.health.dataCompleteness ?? 1;
  return html`
    ${state === "no data" && html`<${Banner} tone="bad">The stream is open, but nothing has come for three seconds: what is shown is old.</${Banner}>`}
    ${state === "reconnecting" && html`<${Banner} tone="bad">The relayer's stream is away; this page goes on trying.</${Banner}>`}
    ${Number.parseInt(version) > MAJOR && html`<${Banner}>The relayer speaks version ${version} of this stream, this page knows ${MAJOR}: some figures may mean something else.</${Banner}>`}
    ${complete < 1 && html`<${Banner}>The data are incomplete: the relayer knows ${percent(complete, 0)} of these figures. Those that it does not know are dashes.</${Banner}>`}
    ${missed > 0 && html`<${Banner}>${number(missed)} messages were left out since this tab was opened, as it or the connection was slow: the lines skip what was in them.</${Banner}>`}
    ${gap && html`<${Banner}>The connection was away until ${gap}: blocks of that time are not drawn.</${Banner}>`}`;
}

function Now({ data }) {
  const network = data?.network ?? {};
  const { estimatedQueue, ingressTps, inclusionTps, pressure } = data?.mempool ?? {};
  const falling = pressure > 0.5;
  const online = Object.entries(data?.validators.onlineByShard ?? {}).map(([shard, count]) => `${shard === "meta" ? "meta" : shard}: ${number(count)}`).join("  ");
  return html`<${Tiles} items=${[
    { label: "Transactions per second", value: number(network.avgTps10s, 3), note: `now ${number(network.currentTps, 3)} · 30 s ${number(network.avgTps30s, 3)}` },
    { label: "Waiting", value: number(estimatedQueue), note: `in ${number(ingressTps, 3)}/s · out ${number(inclusionTps, 3)}/s` },
    { label: "Pressure", value: percent(pressure, 0), tone: falling ? "bad" : "", note: falling ? "the network is falling behind" : "blocks keep up" },
    { label: "Validators online", value: number(data?.validators.totalOnline), note: online },
    { label: "Peers", value: number(network.connectedPeers), note: `${percent(data?.health.p2pDedupRatio1m, 0)} of gossip comes twice` },
    { label: "Lag", value: duration(network.wsLagMs), note: "from a block to this page" },
  ]}/>`;
}

function Gas() {
  const rows = useRef({});
  const [chosen, setShard] = useState();
  const [latest, setLatest] = useThrottled({}, A_SECOND);
  const take = (item) => {
    if (item.type === "missed") return;
    const { shard: from, gasPrice } = item.data;
    const list = (rows.current[from] ??= []);
    const now = Math.floor(Date.now() / 1000);
    const point = [now, ...PERCENTILES.map(({ label }) => (gasPrice.percentiles[label] === null ? null : gasPrice.percentiles[label] / 1e9))];
    if (list.at(-1)?.[0] === now) list[list.length - 1] = point;
    else list.push(point);
    if (list.length > GAS_POINTS) list.shift();
    setLatest((before) => ({ ...before, [from]: gasPrice, at: now }));
  };
  const state = useStream(() => relayer.subscribe("gasStats"), take);
  const asked = useAnswer(() => relayer.relayers(), [], 60_000);
  const shards = asked.value?.shards ?? 3;
  const busy = Object.keys(latest).find((key) => latest[key]?.percentiles?.p50 !== null); // one with prices to show
  const shard = chosen ?? Number(busy ?? 0);
  const shown = rows.current[shard] ?? [];
  const data = useMemo(() => [0, 1, 2, 3].map((index) => shown.map((row) => row[index])), [latest.at, shard, shown.length]);
  const price = latest[shard];
  const suggested = price?.percentiles.p50;
  return html`<${Card} title="Gas price" aside=${html`<${Choice} label="Shard" value=${shard} onChange=${setShard} options=${Array.from({ length: shards }, (_, index) => [index, `Shard ${index}`])}/>`}>
    <p class="figure">${billionths(suggested)} <span class="sub">billionths of an EGLD per unit of gas: suggested (p50)</span></p>
    <p class="sub">Percentiles over the last 30 minutes; the line begins when this tab was opened. Lowest ${billionths(price?.min)}, highest ${billionths(price?.max)}. <${State} state=${state}/></p>
    <${Chart} data=${data} series=${PERCENTILES} least=${60} label=${`Gas price percentiles of shard ${shard} over time`}/>
  </${Card}>`;
}

function History() {
  const [measure, setMeasure] = useState(MEASURES[0][0]);
  const [span, setSpan] = useState(SPANS[0][0]);
  const [zoom, setZoom] = useState();
  const ask = () => {
    const now = Date.now();
    return relayer.history(zoom ?? { from: now - span * 1000, to: now });
  };
  const { value, error } = useAnswer(ask, [span, zoom], zoom ? 0 : 15_000);
  const [name, title, factor, unit] = MEASURES.find(([key]) => key === measure);
  const data = useMemo(() => {
    const points = value?.points ?? [];
    return [points.map((point) => point.ts / 1000), points.map((point) => (point[name] === undefined ? null : point[name] * factor))];
  }, [value, name]);
  const closer = (from, to) => {
    if (to - from >= 5) setZoom({ from: Math.floor(from * 1000), to: Math.ceil(to * 1000) });
  };
  const series = useMemo(() => [{ label: title, colour: "--accent", fill: true }], [title]);
  return html`<${Card} title="History" aside=${html`<${Choice} label="Span" value=${zoom ? 0 : span} options=${SPANS} onChange=${(next) => { setZoom(undefined); setSpan(next); }}/>`}>
    <div class="row">
      <label class="sub">Show <select value=${measure} onChange=${(event) => setMeasure(event.target.value)}>${MEASURES.map(([key, text]) => html`<option key=${key} value=${key}>${text}</option>`)}</select></label>
      ${zoom && html`<button type="button" class="ghost" onClick=${() => setZoom(undefined)}>Whole span</button>`}
    </div>
    <p class="sub">${value ? `${number(value.points.length)} points of ${duration(value.resolution * 1000)}; drag over the picture to look closer.` : "Loading…"}</p>
    <${Problem} error=${error}/>
    <${Chart} data=${data} series=${series} unit=${unit} label=${`${title} over time`} onZoom=${closer}/>
  </${Card}>`;
}
