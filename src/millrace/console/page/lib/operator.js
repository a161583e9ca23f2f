// The operators' token: asked for where a service or the console wants it.

import { html, useState } from "../vendor/preact.js";
import { operators } from "./services.js";
import { Problem } from "./ui.js";

/** A field for the token, open where it is missing; `onToken` is called when there is one. */
export function Operator({ error, onToken }) {
  const [text, setText] = useState("");
  const refused = error?.status === 401 || error?.status === 403;
  const take = (event) => {
    event.preventDefault();
    operators.set(text.trim());
    setText("");
    onToken();
  };
  return html`${!refused && html`<${Problem} error=${error}/>`}
    <details class="operator" open=${refused || undefined}>
      <summary>${operators.known ? "The operators' token is known to this tab" : "Act as an operator"}</summary>
      <form class="row" onSubmit=${take}>
        <label>Operators' token <input type="password" autocomplete="off" value=${text} onInput=${(event) => setText(event.target.value)}/></label>
        <button class="ghost">Use it</button>
        <span class="sub">${refused ? "The console wants it. " : ""}It stays in this tab and is gone with it.</span>
      </form>
    </details>`;
}
