// A swap from the quote on the screen to its end on the chain, each step as it happens.

import { html, useEffect, useState } from "../../vendor/preact.js";
import { checkQuote } from "../../vendor/millrace/index.js";
import { explained } from "../../lib/errors.js";
import { amount, duration } from "../../lib/format.js";
import { millrace } from "../../lib/services.js";
import { Card, Hash } from "../../lib/ui.js";

/**
 * Has the quote that is shown signed, and follows it. `asked` are the parameters that this page sent; nothing is signed
 * that does not say the same, pays less than what is shown, or calls another contract than `contract`, where one is
 * named. `tell` gets the list of steps after each of them. Returns how it ended, or undefined.
 */
export async function carryOut({ asked, quote, wallet, contract, tell }) {
  const begun = performance.now();
  const steps = [];
  const say = (text, more = {}) => {
    steps.push({ text, at: performance.now() - begun, state: "done", ...more });
    tell([...steps]);
  };
  const hashes = {};
  try {
    const bounds = { amountOutMin: quote.amountOutMin, ...(quote.amountInMax ? { amountInMax: quote.amountInMax } : {}) };
    const unsigned = checkQuote({ ...asked, ...bounds }, quote, wallet.address, contract ? { contract } : {});
    say("The transaction says what was asked for");
    const signer = {
      address: wallet.address,
      sign: async (transaction) => {
        say(`The relayer will pay the gas, ${amount(BigInt(transaction.gasLimit) * BigInt(transaction.gasPrice), 18, 6)} EGLD at most`);
        if (wallet.kind === "extension") say("Waiting for your wallet", { state: "waiting" });
        const signed = await wallet.sign(transaction);
        if (wallet.kind === "extension") steps.pop();
        say(wallet.kind === "extension" ? "Signed by your wallet" : "Signed in this tab");
        return signed;
      },
    };
    const handle = await millrace.send(unsigned, { signer });
    hashes.client = handle.clientHash;
    say("Co-signed by the relayer and sent", { hashes: { ...hashes } });
    say("Waiting for the chain", { state: "waiting" });
    const final = await handle.final();
    steps.pop();
    if (final.chainHash) hashes.chain = final.chainHash;
    const done = final.state === "success";
    say(done ? "Executed: the tokens are yours" : "Not executed", { state: done ? "done" : "failed", hashes: { ...hashes }, problem: done ? undefined : (final.reason ?? final.state) });
    return final;
  } catch (error) {
    if (steps.at(-1)?.state === "waiting") steps.pop();
    say("Stopped", { state: "failed", problem: error, ...(hashes.client ? { hashes: { ...hashes } } : {}) });
    return undefined;
  }
}

const MARKS = { done: "✓", failed: "✗", waiting: "…" };

export function Progress({ steps }) {
  const { hashes } = steps.findLast((step) => step.hashes) ?? {};
  return html`<${Card} title="This swap">
    <ol class="steps" aria-live="polite">${steps.map(({ text, at, state, problem }) => html`<li key=${text} class=${state}>
      <span aria-hidden="true">${MARKS[state]}</span>
      <span>${text}${problem && html`<${Why} problem=${problem}/>`}</span>
      <span class="sub">${state === "waiting" ? html`<${Seconds}/>` : duration(at)}</span></li>`)}</ol>
    ${hashes && html`<dl class="facts hashes"><dt>Hash, known when it was signed</dt><dd><${Hash} text=${hashes.client} label="Copy hash"/></dd>
      <dt>Hash on the chain</dt><dd>${hashes.chain ? html`<${Hash} text=${hashes.chain} label="Copy hash on the chain"/>` : "–"}</dd></dl>`}
  </${Card}>`;
}

function Why({ problem }) {
  const { text, advice, detail } = explained(problem);
  return html`<span class="why"><br/>${text} ${advice}${detail && html`<br/><span class="own">${detail}</span>`}</span>`;
}

/** How long it has been waited for already. */
function Seconds() {
  const [begun] = useState(() => Date.now());
  const [now, setNow] = useState(begun);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return html`${Math.round((now - begun) / 1000)} s`;
}
