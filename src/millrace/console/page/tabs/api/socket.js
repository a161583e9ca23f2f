// A WebSocket by hand: a message out, and what comes back.

import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { clock } from "../../lib/format.js";

const KEPT = 30;
const FIRST = JSON.stringify({ action: "subscribe", topic: "networkStats", requestId: "1" }, null, 2);

export function TrySocket({ path }) {
  const socket = useRef();
  const [text, setText] = useState(FIRST);
  const [state, setState] = useState("closed");
  const [lines, setLines] = useState([]);
  const note = (way, said) => setLines((before) => [{ at: clock(Date.now()), way, said: String(said).slice(0, 2_000) }, ...before].slice(0, KEPT));
  const close = () => {
    socket.current?.close();
    socket.current = undefined;
  };
  useEffect(() => close, []);
  const send = (event) => {
    event.preventDefault();
    if (socket.current?.readyState === WebSocket.OPEN) {
      socket.current.send(text);
      return note("→", text);
    }
    close();
    const opened = new WebSocket(new URL(path, location.origin.replace(/^http/, "ws") + "/"));
    socket.current = opened;
    setState("connecting");
    opened.onopen = () => {
      setState("open");
      opened.send(text);
      note("→", text);
    };
    opened.onmessage = ({ data }) => note("←", data);
    opened.onclose = ({ code }) => {
      if (socket.current !== opened && socket.current) return;
      setState("closed");
      note("✗", `closed with ${code}`);
    };
  };
  return html`<details class="try"><summary>Try it</summary><form onSubmit=${send}>
      <label class="sub">Message <textarea class="code" rows="6" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>
      <div class="row"><button class="ghost">Send</button>${state === "open" && html`<button type="button" class="ghost" onClick=${close}>Close</button>`}<span class="sub" role="status">The connection is ${state}.</span></div>
    </form>
    ${lines.length > 0 && html`<pre tabindex="0" role="region" aria-label="Messages">${lines.map(({ at, way, said }) => `${at} ${way} ${said}`).join("\n")}</pre>`}
  </details>`;
}
