// The route as a flow: tokens are bars, pools are ribbons as wide as their share, in the colour of their exchange.

import { html, useEffect, useMemo, useRef, useState } from "../../vendor/preact.js";
import { sankey, sankeyJustify } from "../../vendor/sankey.js";
import { colourOf } from "../../lib/exchanges.js";
import { percent, ticker } from "../../lib/format.js";

const NARROW = 520; // below it the flow runs downwards
const BAR = 6;

const layoutOf = (graph) => sankey().nodeId((node) => node.id).nodeAlign(sankeyJustify)(structuredClone(graph));

/** Tokens and what flows between them. `byHop`: a token that a path visits twice is a bar for each hop. */
function graphOf(paths, byHop) {
  const nodes = new Map();
  const links = new Map();
  const last = paths[0].swaps.at(-1).to;
  const node = (token, hop) => {
    const id = byHop && token !== last ? `${token}@${hop}` : token;
    nodes.set(id, { id, token });
    return id;
  };
  for (const { swaps, splitPpm } of paths) {
    for (const [hop, { from, to, dex }] of swaps.entries()) {
      const source = node(from, hop);
      const target = node(to, hop + 1);
      const key = `${source} ${target} ${dex}`;
      const link = links.get(key) ?? { source, target, dex, value: 0, from, to };
      link.value += splitPpm;
      links.set(key, link);
    }
  }
  return { nodes: [...nodes.values()], links: [...links.values()] };
}

/** A ribbon that passes a layer gets a lane of its own there: it would run through another token's bar otherwise. */
function withLanes(graph) {
  const nodes = [...graph.nodes];
  const links = [];
  for (const [ribbon, link] of layoutOf(graph).links.entries()) { // the layout itself writes `index` into links
    const { dex, value, from, to } = link;
    let source = link.source.id;
    for (let layer = link.source.layer + 1; layer < link.target.layer; layer++) {
      const id = `lane ${ribbon} ${layer}`;
      nodes.push({ id, lane: true });
      links.push({ source, target: id, dex, value, from, to, ribbon });
      source = id;
    }
    links.push({ source, target: link.target.id, dex, value, from, to, ribbon });
  }
  return { nodes, links };
}

function laidOut(paths, length, breadth, down) {
  let graph;
  try {
    graph = withLanes(graphOf(paths, false));
  } catch {
    graph = withLanes(graphOf(paths, true)); // the paths together form a circle of tokens
  }
  const extent = down ? [[20, 8], [length - 24, breadth - 8]] : [[2, 26], [length - 2, breadth - 8]];
  return sankey().nodeId((node) => node.id).nodeAlign(sankeyJustify).nodeWidth(BAR).nodePadding(down ? 34 : 28).extent(extent)(structuredClone(graph));
}

/** A ribbon's outline, along its one edge and back along the other, through all of its `parts`; `turn` swaps the axes. */
function outline(parts, turn) {
  const at = (x, y) => (turn ? `${y} ${x}` : `${x} ${y}`);
  const edges = parts.map(({ source, target, y0, y1, width }) => ({
    x0: source.lane ? (source.x0 + source.x1) / 2 : source.x1, x1: target.lane ? (target.x0 + target.x1) / 2 : target.x0,
    y0, y1, half: Math.max(0.75, width / 2),
  }));
  const curve = (x0, y0, x1, y1) => `L${at(x0, y0)}C${at((x0 + x1) / 2, y0)} ${at((x0 + x1) / 2, y1)} ${at(x1, y1)}`;
  const there = edges.map(({ x0, x1, y0, y1, half }) => curve(x0, y0 - half, x1, y1 - half));
  const back = edges.toReversed().map(({ x0, x1, y0, y1, half }) => curve(x1, y1 + half, x0, y0 + half));
  return `M${at(edges[0].x0, edges[0].y0)}${there.join("")}${back.join("")}Z`;
}

/** `paths` of a quote. A list in words stands beside the picture for who cannot see it. */
export function Route({ paths }) {
  const box = useRef();
  const [width, setWidth] = useState(640);
  useEffect(() => {
    const resized = new ResizeObserver(([entry]) => setWidth(Math.max(240, Math.round(entry.contentRect.width))));
    resized.observe(box.current);
    return () => resized.disconnect();
  }, []);
  const down = width < NARROW;
  const tall = Math.min(320, 120 + 40 * paths.length); // a route of one path is no wall
  const [length, breadth] = down ? [400, width] : [width, tall];
  const shape = JSON.stringify(paths.map(({ splitPpm, swaps }) => [splitPpm, swaps.map(({ dex, from, to }) => [dex, from, to])]));
  const { nodes, links } = useMemo(() => laidOut(paths, length, breadth, down), [shape, length, breadth, down]);
  const ribbons = Map.groupBy(links, ({ ribbon }) => ribbon);
  const exchanges = [...new Set(links.map(({ dex }) => dex))];
  return html`<div ref=${box} class="route">
    <svg width=${width} height=${down ? length : breadth} role="img" aria-label="The route as a flow of tokens; the list below says the same">
      ${[...ribbons].map(([ribbon, parts]) => html`<path key=${ribbon} class="link" d=${outline(parts, down)} style=${`fill: ${colourOf(parts[0].dex)}`}>
        <title>${`${ticker(parts[0].from)} to ${ticker(parts[0].to)} at ${parts[0].dex}: ${percent(parts[0].value / 1e6, 1)}`}</title></path>`)}
      ${nodes.filter(({ lane }) => !lane).map((node) => html`<${Bar} key=${node.id} node=${node} down=${down} breadth=${breadth} last=${!down && node.x1 > length - 60}/>`)}
    </svg>
    <ul class="legend">${exchanges.map((dex) => html`<li key=${dex}><i style=${`background: ${colourOf(dex)}`}></i>${dex}</li>`)}</ul>
    <details><summary>${paths.length === 1 ? "One path" : `${paths.length} paths`} in words</summary><ol class="paths">${paths.map(({ splitPpm, swaps }) => html`
      <li><strong>${percent(splitPpm / 1e6, 1)}</strong> ${ticker(swaps[0].from)}${swaps.map(({ to, dex }) => html` → <span>${ticker(to)} <span class="sub">${dex}</span></span>`)}</li>`)}</ol></details>
  </div>`;
}

function Bar({ node: { token, x0, x1, y0, y1 }, down, breadth, last }) {
  const long = Math.max(2, y1 - y0);
  const middle = (y0 + y1) / 2;
  const name = ticker(token);
  if (!down) {
    return html`<g><rect x=${x0} y=${y0} width=${x1 - x0} height=${long} rx="2" class="bar"/>
      <text x=${last ? x1 : x0} y=${y0 - 7} text-anchor=${last ? "end" : "start"}>${name}</text></g>`;
  }
  if (long < 10) return html`<rect x=${y0} y=${x0} width=${long} height=${x1 - x0} rx="2" class="bar"><title>${name}</title></rect>`;
  const anchor = middle < 40 ? "start" : middle > breadth - 40 ? "end" : "middle";
  const x = { start: y0, end: y1, middle }[anchor];
  return html`<g><rect x=${y0} y=${x0} width=${long} height=${x1 - x0} rx="2" class="bar"/>
    <text x=${x} y=${x0 < 40 ? x0 - 6 : x1 + 15} text-anchor=${anchor}>${name}</text></g>`;
}
