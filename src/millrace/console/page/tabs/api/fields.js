// The fields of a message as a table; those that have fields themselves open below.

import { html, useState } from "../../vendor/preact.js";
import { inner, typed } from "./schema.js";

const DEEPEST = 6;

export function Fields({ document, schema, depth = 0 }) {
  const found = inner(document, schema);
  if (!found) return html`<p class="sub">${typed(document, schema)}</p>`;
  return html`<ul class="fields">${Object.entries(found.properties).map(([name, property]) => html`
    <${Field} key=${name} document=${document} name=${name} property=${property} needed=${found.required?.includes(name)} depth=${depth}/>`)}
  </ul>`;
}

/** What a field holds is drawn when it is opened: schemas may contain themselves. */
function Field({ document, name, property, needed, depth }) {
  const [open, setOpen] = useState(false);
  const words = html`<code>${name}</code> <span class="sub">${typed(document, property)}${needed ? "" : ", may be absent"}${property.description ? `: ${property.description}` : ""}</span>`;
  if (depth >= DEEPEST || !inner(document, property)) return html`<li>${words}</li>`;
  return html`<li><details onToggle=${(event) => setOpen(event.currentTarget.open)}><summary>${words}</summary>
    ${open && html`<${Fields} document=${document} schema=${property} depth=${depth + 1}/>`}
  </details></li>`;
}
