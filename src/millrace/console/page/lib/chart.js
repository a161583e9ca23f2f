// Lines over time, in the page's colours, with zoom: drag to look closer, double-click to go back.

import { html, useEffect, useRef } from "../vendor/preact.js";
import { uPlot } from "../vendor/chart.js";

const FONT = '12px "Inter", system-ui, sans-serif';
const dark = matchMedia("(prefers-color-scheme: dark)");

/** A custom property as the colour it is now: canvases do not know `light-dark()`. */
function colour(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

// Seconds between two marks of the axis of time: none below one, as their labels would be the same.
const STEPS = [1, 5, 10, 15, 30, ...[1, 5, 10, 15, 30].map((n) => n * 60), ...[1, 2, 3, 6, 12].map((n) => n * 3_600), ...[1, 2, 7].map((n) => n * 86_400)];

/** The legend tells the newest values while nobody points at others. */
function newest(plot) {
  const last = plot.data[0].length - 1;
  if (last >= 0 && (plot.cursor.left ?? -1) < 0) plot.setLegend({ idx: last }, false);
}

const span = (_, low, high) => {
  if (low === null || high === null) return [0, 1];
  return low === high ? [0, high * 2 || 1] : [Math.max(0, low - (high - low) * 0.1), high + (high - low) * 0.1];
};

function options(box, series, { unit, time, digits, least, xLabel, onZoom }) {
  const text = colour("--text2");
  const line = colour("--line");
  const spoken = (value) => (value === null || value === undefined ? "–" : `${value.toLocaleString("en-US", { maximumFractionDigits: digits })}${unit}`);
  const moment = (seconds) => (time ? new Date(seconds * 1000).toLocaleTimeString("en-GB") : spoken(seconds));
  return {
    width: box.clientWidth || 300,
    height: 220,
    padding: [8, 28, 0, 0],
    cursor: { y: false, points: { size: 7 }, drag: { x: true, y: false } },
    scales: { x: { time, ...(least ? { range: (_, low, high) => [Math.min(low, high - least), high] } : {}) }, y: { range: span } },
    hooks: { ready: [newest], setData: [newest], setCursor: [newest], setSelect: [(plot) => onZoom?.(plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x"))] },
    axes: [
      { stroke: text, font: FONT, space: 90, ...(time ? { incrs: STEPS } : {}), values: (_, values) => values.map(moment), grid: { show: false }, ticks: { stroke: line, width: 1 }, label: xLabel, labelFont: FONT, labelSize: xLabel ? 20 : 0 },
      { stroke: text, font: FONT, size: 62, grid: { stroke: line, width: 1 }, ticks: { show: false }, values: (_, values) => values.map(spoken) },
    ],
    series: [
      { label: time ? "Time" : (xLabel ?? ""), value: (_, value) => (value === null ? "–" : moment(value)) },
      ...series.map(({ label, colour: name, dash, fill }) => ({
        label, stroke: colour(name), width: 2, dash, points: { show: false }, value: (_, value) => spoken(value),
        ...(fill ? { fill: colour(name).replace("rgb(", "rgba(").replace(")", ", 0.12)") } : {}),
      })),
    ],
  };
}

/**
 * `data` is uPlot's: x values (seconds since 1970, unless `time` is false), then one list for each of `series`
 * (`{label, colour: "--accent", dash, fill}`). `label` says what it shows; so many x values as `least` are shown, whether there
 * are data or not; `onZoom(from, to)` hears of a selection.
 */
export function Chart({ data, series, label, unit = "", time = true, digits = 3, least = 0, xLabel, onZoom }) {
  const box = useRef();
  const plot = useRef();
  const given = useRef();
  given.current = { data, unit, time, digits, least, xLabel, onZoom };
  const shape = JSON.stringify(series);
  useEffect(() => {
    const make = () => {
      plot.current?.destroy();
      const now = given.current;
      const heard = (...ends) => given.current.onZoom?.(...ends);
      plot.current = new uPlot(options(box.current, series, { ...now, onZoom: heard }), now.data, box.current);
    };
    make();
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: box.current.clientWidth, height: 220 }));
    resized.observe(box.current);
    dark.addEventListener("change", make);
    addEventListener("themechange", make);
    return () => {
      resized.disconnect();
      dark.removeEventListener("change", make);
      removeEventListener("themechange", make);
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(data), [data]);
  return html`<div ref=${box} class="chart" role="img" aria-label=${label}></div>`;
}
