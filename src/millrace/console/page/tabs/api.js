// The references of both interfaces, drawn from the documents that the services serve, each to try out.

import { html, useState } from "../vendor/preact.js";
import { duration } from "../lib/format.js";
import { useAnswer } from "../lib/live.js";
import { get } from "../lib/services.js";
import { Card, Choice, Problem } from "../lib/ui.js";
import { Fields } from "./api/fields.js";
import { example, resolved } from "./api/schema.js";
import { TrySocket } from "./api/socket.js";

const DOCUMENTS = [
  ["aggregator/openapi.json", "Aggregator"],
  ["relayer/openapi.json", "Relayer: REST"],
  ["relayer/asyncapi.json", "Relayer: WebSocket"],
];
const MOST_SHOWN = 20_000; // characters of an answer

export default function Api() {
  const [path, setPath] = useState(DOCUMENTS[0][0]);
  const { value, error } = useAnswer(async () => ({ path, document: await get(path) }), [path]);
  const document = value?.path === path ? value.document : undefined;
  return html`<div class="page one">
    <${Card} title="References" aside=${html`<${Choice} label="Reference" value=${path} onChange=${setPath} options=${DOCUMENTS}/>`}>
      <${Problem} error=${document ? null : error}/>
      ${document && html`<p class="sub">${document.info.title} ${document.info.version}. The document itself: <a href=${path} target="_blank" rel="noopener">${path}</a>${path.startsWith("aggregator") && html`; as a page of Swagger UI: <a href="aggregator/docs" target="_blank" rel="noopener">aggregator/docs</a>`}</p>`}
    </${Card}>
    ${document?.paths && html`<${Operations} key=${path} document=${document} service=${path.split("/")[0]}/>`}
    ${document?.channels && html`<${Channels} key=${path} document=${document}/>`}
  </div>`;
}

function Operations({ document, service }) {
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).filter(([, operation]) => operation.responses).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })));
  return operations.map(({ path, method, operation }) => html`<${Card} key=${method + path} title=${html`<span class="method">${method}</span> <code>${path}</code>`}>
    <p>${operation.summary ?? operation.description ?? ""}</p>
    <${Operation} document=${document} service=${service} path=${path} method=${method} operation=${operation}/>
  </${Card}>`);
}

function Operation({ document, service, path, method, operation }) {
  const body = operation.requestBody?.content?.["application/json"]?.schema;
  const answer = Object.entries(operation.responses).find(([status]) => status.startsWith("2"))?.[1];
  const schema = resolved(document, answer)?.content?.["application/json"]?.schema;
  return html`
    <${Try} document=${document} url=${service + path} method=${method} parameters=${(operation.parameters ?? []).map((one) => resolved(document, one))} body=${body}/>
    ${body && html`<details><summary>What is sent</summary><${Fields} document=${document} schema=${body}/></details>`}
    ${schema && html`<details><summary>What comes back</summary><${Fields} document=${document} schema=${schema}/></details>`}
    <p class="sub">${Object.entries(operation.responses).map(([status, each]) => `${status}: ${resolved(document, each).description}`).join(" · ")}</p>`;
}

/** A request by hand. */
function Try({ document, url, method, parameters, body }) {
  const [values, setValues] = useState(() => Object.fromEntries(parameters.map(({ name, example: given, schema }) => [name, String(given ?? schema?.example ?? "")])));
  const [text, setText] = useState(() => (body ? JSON.stringify(example(document, body), null, 2) : ""));
  const [answer, setAnswer] = useState();
  const ask = async (event) => {
    event.preventDefault();
    const began = performance.now();
    try {
      const response = await fetch(address(url, parameters, values), { method, headers: body ? { "Content-Type": "application/json" } : {}, body: body ? text : undefined });
      const said = await shown(response);
      setAnswer({ status: response.status, ms: performance.now() - began, said });
    } catch (error) {
      setAnswer({ error });
    }
  };
  return html`<details class="try"><summary>Try it</summary><form onSubmit=${ask}>
    ${parameters.map((one) => html`<${Parameter} key=${one.name} id=${`${method}-${url}-${one.name}`} one=${one} value=${values[one.name]} onChange=${(value) => setValues({ ...values, [one.name]: value })}/>`)}
    ${body && html`<label class="sub">Body <textarea class="code" rows="8" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>`}
    <button class="ghost">Send ${method}</button>
    </form>
    <div role="status">${answer?.said !== undefined && html`<p class=${answer.status < 400 ? "good" : "bad"}>${answer.status} in ${duration(answer.ms)}</p><pre tabindex="0" role="region" aria-label="Answer">${answer.said}</pre>`}</div>
    <${Problem} error=${answer?.error}/>
  </details>`;
}

function Parameter({ id, one: { name, required, description, schema = {} }, value, onChange }) {
  const choices = schema.enum ?? (schema.type === "boolean" ? ["true", "false"] : undefined);
  const change = (event) => onChange(event.target.value);
  return html`<div class="parameter"><label for=${id}><code>${name}</code>${required && html` <span class="warn">needed</span>`}</label>
    ${choices ? html`<select id=${id} value=${value} onChange=${change}><option value=""></option>${choices.map((choice) => html`<option key=${choice}>${String(choice)}</option>`)}</select>` : html`<input id=${id} type="text" value=${value} onInput=${change}/>`}
    <span class="sub">${description ?? ""}</span></div>`;
}

function address(url, parameters, values) {
  const query = new URLSearchParams();
  let path = url;
  for (const { name, in: place } of parameters) {
    if (place === "path") path = path.replace(`{${name}}`, encodeURIComponent(values[name]));
    else if (place === "query" && values[name] !== "") query.set(name, values[name]);
  }
  return query.size ? `${path}?${query}` : path;
}

/** The answer as text; of a stream what comes within five seconds. */
async function shown(response) {
  let text = "";
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const timer = setTimeout(() => void reader.cancel(), 5_000);
  for (;;) {
    const { value, done } = await reader.read();
    if (done || text.length > MOST_SHOWN) break;
    text += value;
  }
  clearTimeout(timer);
  void reader.cancel();
  try {
    text = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // It is no JSON, or not all of it.
  }
  return text.length > MOST_SHOWN ? `${text.slice(0, MOST_SHOWN)}\n…` : text;
}

/** AsyncAPI: what may be sent on a channel, and what comes from it. */
function Channels({ document }) {
  return html`${Object.entries(document.operations).map(([name, { action, channel, messages }]) => {
    const place = resolved(document, channel).address;
    const title = html`<span class="method">${action === "receive" ? "Send" : "Hear"}</span> <code>${place}</code>`;
    return html`<${Card} key=${name} title=${title}>
      ${action === "receive" && html`<${TrySocket} path=${`relayer${place}`}/>`}
      ${messages.map((reference) => html`<${Message} key=${reference.$ref} document=${document} reference=${reference}/>`)}
    </${Card}>`;
  })}`;
}

function Message({ document, reference }) {
  const schema = resolved(document, resolved(document, reference)).payload;
  const { description } = resolved(document, schema);
  return html`<details><summary><b>${reference.$ref.split("/").at(-1)}</b> <span class="sub">${description ?? ""}</span></summary><${Fields} document=${document} schema=${schema}/></details>`;
}
