// Blocks of each shard on a time line, as far as the statistics tell of them.

import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { duration, number } from "../../lib/format.js";

const SECONDS = 60;
const MOST = 600; // marks kept
const ROW = 44;
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

export function Blocks({ known: { rows, last }, data }) {
  const box = useRef();
  const [width, setWidth] = useState(600);
  useEffect(() => {
    const resized = new ResizeObserver(([entry]) => setWidth(Math.max(200, Math.round(entry.contentRect.width))));
    resized.observe(box.current);
    return () => resized.disconnect();
  }, []);
  const shards = [...Object.keys(data?.blocks.blockTimeMsP50ByShard ?? { 0: null, 1: null, 2: null }), META];
  const end = Math.max(0, ...Object.values(last).map(({ at }) => at));
  const seen = rows.filter(({ at }) => end - at < SECONDS * 1000);
  const most = Math.max(1, ...seen.map(({ transactions }) => transactions ?? 0));
  const left = 8;
  const x = (at) => width - 8 - ((end - at) / (SECONDS * 1000)) * (width - left - 16);
  const { nonceGapEvents1m: gaps, duplicateNonceEvents1m: doubles } = data?.blocks ?? {};
  const spoken = shards.map((shard) => `${nameOf(shard)}: block ${number(last[shard]?.nonce)}`).join(", ");
  return html`<div ref=${box} class="blocks">
    ${shards.map((shard, row) => html`<div class="lane" key=${shard}>
      <p><strong>${nameOf(shard)}</strong> <span class="sub">block ${number(last[shard]?.nonce)}${shard === META ? "" : ` · one in ${duration(data?.blocks.blockTimeMsP50ByShard[shard])}`}</span></p>
      <svg width=${width} height=${ROW} role="img" aria-label=${`Blocks of ${nameOf(shard)} in the last minute`}>
        <line x1="0" x2=${width} y1=${ROW - 4} y2=${ROW - 4} class="base"/>
        ${seen.filter((block) => String(block.shard) === shard).map((block) => {
          const height = block.transactions === undefined ? 6 : 8 + (28 * block.transactions) / most;
          const title = `block ${block.nonce}${block.transactions === undefined ? ": not told by itself" : `: ${block.transactions} transactions`}`;
          return html`<rect key=${block.nonce} x=${x(block.at) - 2} y=${ROW - 4 - height} width="4" height=${height} rx="2"
            class=${block.transactions === undefined ? "guess" : ""} style=${`fill: var(${COLOURS[row % 3]})`}><title>${title}</title></rect>`;
        })}
      </svg></div>`)}
    <p class="sub">The last ${SECONDS} s. Pale marks: blocks that no message told of by itself. In the last minute ${number(gaps)} skipped and ${number(doubles)} doubled.</p>
    <p class="vh" aria-live="off">${spoken}</p>
  </div>`;
}

const nameOf = (shard) => (shard === META ? "Metachain" : `Shard ${shard}`);
