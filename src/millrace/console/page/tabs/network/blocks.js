// Blocks of each shard on a time line, as far as the statistics tell of them.

import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { duration, number } from "../../lib/format.js";

const SECONDS = 60;
const MOST = 600; // marks kept
const ROW = 44;
const NARROW = 520; // pixels
const META = "meta";
const COLOURS = ["--x1", "--x2", "--x3"];

/** What is known after one more message: `rows` of blocks, oldest first, and the newest block of each shard. */
export function heardOf({ rows, last }, { data: { blocks } }) {
  let next = rows;
  const newest = { ...last };
  for (const [shard, block] of [[blocks.latestShard.shardId, blocks.latestShard], [META, blocks.latestMeta]]) {
    if (shard === null || shard === undefined || block.nonce === null || block.nonce === newest[shard]?.nonce) continue;
    const before = newest[shard];
    newest[shard] = { nonce: block.nonce, at: block.timestampMs };
    next = [...next, ...between(shard, before, block), { shard, nonce: block.nonce, at: block.timestampMs, transactions: block.txCount }];
  }
  return { rows: next.slice(-MOST), last: newest };
}

/** A message tells of one block: those made since the one before are drawn where they must have been. */
function between(shard, before, block) {
  const count = before ? block.nonce - before.nonce - 1 : 0;
  if (count <= 0 || count > 100) return [];
  const step = (block.timestampMs - before.at) / (count + 1);
  return Array.from({ length: count }, (_, index) => ({ shard, nonce: before.nonce + index + 1, at: before.at + step * (index + 1) }));
}

/**
 * The blocks of one shard with how long `ago` they were, each by the clock of who told of them: of the statistics, or of
 * the notifier where those are silent about this shard.
 */
function laneOf(shard, rows, arrived, seconds) {
  const recent = (all) => {
    const end = Math.max(0, ...all.map(({ at }) => at));
    return all.map((block) => ({ ...block, ago: end - block.at })).filter((block) => block.ago < seconds * 1000 && String(block.shard) === shard);
  };
  const [told, taken] = [recent(rows), recent(arrived)];
  return 2 * told.length >= taken.length ? told : taken;
}

/**
 * `known` is what `heardOf` made of the statistics, `arrived` blocks that the notifier took (see arrivals.js): drawn
 * for the shards that the statistics are silent about.
 */
export function Blocks({ known: { rows, last }, arrived, data }) {
  const box = useRef();
  const [width, setWidth] = useState(600);
  useEffect(() => {
    const resized = new ResizeObserver(([entry]) => setWidth(Math.max(200, Math.round(entry.contentRect.width))));
    resized.observe(box.current);
    return () => resized.disconnect();
  }, []);
  const shards = [...Object.keys(data?.blocks.blockTimeMsP50ByShard ?? { 0: null, 1: null, 2: null }), META];
  const seconds = width < NARROW ? SECONDS / 2 : SECONDS;
  const lanes = shards.map((shard) => laneOf(shard, rows, arrived, seconds));
  const most = Math.max(1, ...lanes.flat().map(({ transactions }) => transactions ?? 0));
  const x = (ago) => width - 8 - (ago / (seconds * 1000)) * (width - 16);
  const { nonceGapEvents1m: gaps, duplicateNonceEvents1m: doubles } = data?.blocks ?? {};
  const spoken = shards.map((shard) => `${nameOf(shard)}: block ${number(last[shard]?.nonce)}`).join(", ");
  return html`<div ref=${box} class="blocks">
    ${shards.map((shard, row) => html`<div class="lane" key=${shard}>
      <p><strong>${nameOf(shard)}</strong> <span class="sub">${last[shard] ? `block ${number(last[shard].nonce)}` : "blocks as the notifier took them"}${shard === META ? "" : ` · one in ${duration(data?.blocks.blockTimeMsP50ByShard[shard])}`}</span></p>
      <svg width=${width} height=${ROW} role="img" aria-label=${`Blocks of ${nameOf(shard)} lately`}>
        <line x1="0" x2=${width} y1=${ROW - 4} y2=${ROW - 4} class="base"/>
        ${lanes[row].map((block) => {
          const height = block.transactions === undefined ? 6 : 8 + (28 * block.transactions) / most;
          const title = block.nonce === undefined ? "a block" : `block ${block.nonce}${block.transactions === undefined ? ": not told by itself" : `: ${block.transactions} transactions`}`;
          return html`<rect key=${block.nonce ?? block.at} x=${x(block.ago) - 2} y=${ROW - 4 - height} width="4" height=${height} rx="2"
            class=${block.transactions === undefined && block.nonce !== undefined ? "guess" : ""} style=${`fill: var(${COLOURS[row % 3]})`}><title>${title}</title></rect>`;
        })}
      </svg></div>`)}
    <p class="sub">The last ${seconds} s. Pale marks: blocks that no message told of by itself; low ones: taken by the notifier, which tells no number of transactions. In the last minute ${number(gaps)} skipped and ${number(doubles)} doubled.</p>
    <p class="vh" aria-live="off">${spoken}</p>
  </div>`;
}

const nameOf = (shard) => (shard === META ? "Metachain" : `Shard ${shard}`);
