// Small parts that every tab uses.

import { html, useEffect, useRef } from "../vendor/preact.js";
import { explained } from "./errors.js";
import { ends } from "./format.js";

let made = 0;

/** A card with a heading; `aside` stands at the heading's end. */
export function Card({ title, aside, children, className = "" }) {
  const id = useRef(`card-${++made}`).current;
  return html`<section class=${`card ${className}`} aria-labelledby=${id}>
    <div class="head"><h2 id=${id}>${title}</h2>${aside}</div>${children}
  </section>`;
}

/** Figures in a row: `items` are `{label, value, note, tone}`. */
export function Tiles({ items }) {
  return html`<dl class="tiles">${items.map(({ label, value, note, tone = "" }) => html`
    <div class="tile" key=${label}><dt>${label}</dt><dd class=${tone}>${value}</dd>${note && html`<dd class="sub">${note}</dd>`}</div>`)}
  </dl>`;
}

/** One of several, as buttons. `options` are `[value, label]`. */
export function Choice({ label, options, value, onChange }) {
  return html`<div class="seg" role="group" aria-label=${label}>${options.map(([key, text]) => html`
    <button type="button" key=${key} aria-pressed=${key === value} onClick=${() => onChange(key)}>${text}</button>`)}
  </div>`;
}

/** Something to know about all that is shown: `tone` is "warn" or "bad". */
export const Banner = ({ tone = "warn", children }) =>
  html`<p class=${`banner ${tone}`} role="status"><span aria-hidden="true">${tone === "bad" ? "✗" : "!"}</span> <span>${children}</span></p>`;

/** What went wrong, in words, with the service's own words below. */
export function Problem({ error }) {
  if (!error) return null;
  const { text, advice, detail } = explained(error);
  return html`<div class="problem" role="alert"><p>${text} ${advice}</p>${detail && html`<p class="own">${detail}</p>`}</div>`;
}

/** "live", "no data", "reconnecting": never by colour alone. */
export const State = ({ state }) =>
  html`<span class=${`pill ${state === "live" ? "good" : state === "connecting" ? "" : "bad"}`} role="status">${state}</span>`;

/** A hash or an address: its ends, whole for who copies it. */
export function Hash({ text, label = "Copy" }) {
  if (!text) return html`<span>–</span>`;
  const copy = () => navigator.clipboard?.writeText(text);
  return html`<button type="button" class="hash" title=${`${text}: click to copy`} aria-label=${`${label} ${ends(text)} ${text}`} onClick=${copy}>${ends(text)}</button>`;
}

/**
 * A table: `columns` are `{name, label, end, cell(row)}`; `end`: numbers, aligned at their ends. `stacked`: on a narrow
 * page each row stands by itself, with the columns below each other.
 */
export function Table({ columns, rows, label, rowKey, stacked = false, empty = "Nothing yet." }) {
  return html`<div class=${stacked ? "table stacked" : "table"} tabindex="0" role="region" aria-label=${label}><table>
    <thead><tr>${columns.map(({ name, label: text, end }) => html`<th key=${name} scope="col" class=${end ? "end" : ""}>${text}</th>`)}</tr></thead>
    <tbody>${rows.map((row, index) => html`<tr key=${rowKey ? rowKey(row) : index}>${columns.map(({ name, label: text, cell, end }) => html`
      <td key=${name} class=${end ? "end" : ""} data-label=${stacked && typeof text === "string" ? text : ""}>${cell(row)}</td>`)}</tr>`)}</tbody>
  </table>${rows.length === 0 && html`<p class="sub">${empty}</p>`}</div>`;
}

/** A dialog that Escape and a click beside it close; the focus goes in and comes back. */
export function Dialog({ title, onClose, children }) {
  const box = useRef();
  useEffect(() => {
    const before = document.activeElement;
    box.current.showModal();
    return () => queueMicrotask(() => before?.focus?.()); // while the dialog stands, what is behind it takes no focus
  }, []);
  const beside = (event) => {
    if (event.target === box.current) onClose();
  };
  return html`<dialog ref=${box} aria-label=${title} onClose=${onClose} onClick=${beside}><div class="dialog">
    <div class="head"><h2>${title}</h2><button type="button" class="ghost" onClick=${onClose}>Close</button></div>${children}
  </div></dialog>`;
}
