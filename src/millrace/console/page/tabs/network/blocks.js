// Blocks of each shard on a time line: those whose results are final, as the relayer heard of them.

import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { duration, number } from "../../lib/format.js";
import { useAnswer, useThrottled } from "../../lib/live.js";
import { get } from "../../lib/services.js";
import { Problem } from "../../lib/ui.js";

const SECONDS = 60;
const EVERY_MS = 1_000; // a round takes 600, and who looks on does not count them
const LATE_MS = 10_000; // a shard may become final so much later than the others
const ROW = 44;
const NARROW = 520; // pixels
const META = "meta";
const COLOURS = ["--x1", "--x2", "--x3", "--x4"];

/** Blocks by shard, oldest first; each question is about the newest alone. */
function useBlocks() {
  const known = useRef({});
  const ask = async () => {
    const newest = newestOf(known.current);
    const { blocks } = await get(`relayer/v1/network-stats/blocks?after=${Math.max(0, newest - (newest === 0 ? 0 : LATE_MS))}`);
    known.current = Object.fromEntries(Object.entries(blocks).map(([shard, fresh]) => [shard, joined(known.current[shard] ?? [], fresh)]));
    show(known.current);
  };
  const [shown, show] = useThrottled({}, 1);
  return { blocks: shown, error: useAnswer(ask, [], EVERY_MS).error };
}

const newestOf = (blocks) => Math.max(0, ...Object.values(blocks).map((list) => list.at(-1)?.timestampMs ?? 0));

function joined(before, fresh) {
  const first = fresh[0]?.nonce ?? Infinity;
  const all = [...before.filter(({ nonce }) => nonce < first), ...fresh.map((block) => before.find((known) => isSame(known, block)) ?? block)];
  const end = all.at(-1)?.timestampMs ?? 0;
  return all.filter(({ timestampMs }) => timestampMs > end - 2 * SECONDS * 1000);
}

const isSame = (one, other) => Object.keys(other).every((name) => one[name] === other[name]);

const drawn = new WeakMap();

/** The mark of a block: the same element as before while nothing of it has changed, which then is not looked at again. */
function mark(block, x, height, colour) {
  const wanted = `${x} ${height} ${colour}`;
  const before = drawn.get(block);
  if (before?.wanted === wanted) return before.element;
  const element = html`<rect key=${block.nonce} x=${x} y=${ROW - 4 - height} width="4" height=${height} rx="2"
    style=${`fill: var(${colour})`}><title>block ${block.nonce}: ${number(block.txCount)} transactions, ${number(block.executedTxCount)} executed</title></rect>`;
  drawn.set(block, { wanted, element });
  return element;
}

/** What the statistics tell: `medians` of how long blocks of each shard take, `gaps` and `doubles` of the last minute. */
export function Blocks({ medians, gaps, doubles }) {
  const box = useRef();
  const begun = useRef(0);
  const [width, setWidth] = useState(600);
  const { blocks, error } = useBlocks();
  useEffect(() => {
    const resized = new ResizeObserver(([entry]) => setWidth(Math.max(200, Math.round(entry.contentRect.width))));
    resized.observe(box.current);
    return () => resized.disconnect();
  }, []);
  const shards = Object.keys(blocks);
  const seconds = width < NARROW ? SECONDS / 2 : SECONDS;
  const end = newestOf(blocks);
  const lanes = shards.map((shard) => blocks[shard].filter(({ timestampMs }) => timestampMs > end - seconds * 1000));
  const most = Math.max(1, ...lanes.flat().map(({ txCount }) => txCount));
  begun.current ||= end;
  const x = (at) => Math.round(((at - begun.current) / (seconds * 1000)) * (width - 16)); // which stays: all move together
  const spoken = shards.map((shard) => `${nameOf(shard)}: block ${number(blocks[shard].at(-1)?.nonce)}`).join(", ");
  return html`<div ref=${box} class="blocks">
    <${Problem} error=${error}/>
    ${shards.map((shard, row) => html`<div class="lane" key=${shard}>
      <p><strong>${nameOf(shard)}</strong> <span class="sub">${described(blocks[shard], lanes[row], medians?.[shard])}</span></p>
      <svg width=${width} height=${ROW} role="img" aria-label=${`Blocks of ${nameOf(shard)} lately`}>
        <line x1="0" x2=${width} y1=${ROW - 4} y2=${ROW - 4} class="base"/>
        <g transform=${`translate(${width - 8 - x(end)} 0)`}>
          ${lanes[row].map((block) => mark(block, x(block.timestampMs) - 2, 6 + (30 * block.txCount) / most, COLOURS[row % COLOURS.length]))}
        </g>
      </svg></div>`)}
    <p class="sub">The last ${seconds} s, up to ${number(most)} transactions in a block. In the last minute ${number(gaps)} skipped and ${number(doubles)} doubled.</p>
    <p class="vh" aria-live="off">${spoken}</p>
  </div>`;
}

function described(all, shown, every) {
  if (!all.length) return "no block yet";
  const transactions = shown.reduce((sum, { txCount }) => sum + txCount, 0);
  return `block ${number(all.at(-1).nonce)} · ${number(transactions)} transactions${every ? ` · one in ${duration(every)}` : ""}`;
}

const nameOf = (shard) => (shard === META ? "Metachain" : `Shard ${shard}`);
