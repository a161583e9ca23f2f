// The client at work on real services: each line of stdin asks for something, each line of stdout is its answer.
import { createInterface } from "node:readline";
import { checkMultiSwap, checkQuote, Millrace } from "@millrace/client";
import { Ed25519Signer } from "@millrace/client/ed25519";
import { Hub } from "@millrace/client/hub";

const { AGGREGATOR, RELAYER, SOCKET, HUB, PEM } = process.env;
const millrace = new Millrace({ aggregator: AGGREGATOR, relayer: RELAYER, socket: SOCKET, attempts: 60, longestWaitMs: 90_000 });
const signer = await Ed25519Signer.fromPem(PEM);
const PAIR = { from: "USDC-c76f1f", to: "UTK-2f80e9" };
const kept = {};

async function items(stream, count, wanted = () => true) {
  const taken = [];
  for await (const item of stream) {
    if (wanted(item)) taken.push(item);
    if (taken.length >= count) break;
  }
  return taken;
}

const commands = {
  async surface() {
    const { aggregator, relayer } = millrace;
    const sender = signer.address;
    return {
      quote: await aggregator.quote({ ...PAIR, amountIn: 10n ** 9n, slippage: "0.005", sender }),
      reverse: await aggregator.quote({ ...PAIR, amountOut: 10n ** 18n, includePaths: false }),
      ladder: await aggregator.ladder({ ...PAIR, amounts: [10n ** 6n, 10n ** 9n] }),
      multiSwap: await aggregator.multiSwap({ inputs: [{ token: PAIR.from, amount: 10n ** 8n }], to: PAIR.to, sender }),
      batch: await aggregator.batchQuote({ inputs: [{ token: PAIR.from, amount: 10n ** 8n }], to: PAIR.to }),
      pair: await aggregator.pairConfig(PAIR.from, PAIR.to),
      tokens: await aggregator.tokens({ search: "usd", limit: 2 }),
      pools: await aggregator.pools({ token: PAIR.from, limit: 2 }),
      prices: await aggregator.prices([PAIR.from]),
      config: await aggregator.config(),
      health: await aggregator.health(),
      stream: await items(aggregator.stream({ ...PAIR, amountIn: 10n ** 9n, includePaths: false }), 2),
      relayers: await relayer.relayers(),
      relayer: await relayer.relayerOf(sender),
      ready: await relayer.ready(),
      history: await relayer.history({ resolution: 1 }),
      gas: await items(await relayer.subscribe("gasStats"), 3),
      stats: await items(relayer.networkStats(), 2),
    };
  },
  /** What the client would sign of genuine answers: value and first part of the data of each. */
  async checked() {
    const { aggregator } = millrace;
    const sender = signer.address;
    const { contract } = await aggregator.config();
    const seen = [];
    const ends = [[PAIR.from, PAIR.to], ["EGLD", PAIR.to], [PAIR.to, "EGLD"], ["EGLD", "WEGLD-bd4d79"], ["WEGLD-bd4d79", "EGLD"]];
    for (const [from, to] of ends) {
      for (const amount of [{ amountIn: 10n ** 9n, slippage: "0.005" }, { amountIn: 123_456_789_012n }, { amountOut: 10n ** 9n, slippage: 0.015 }]) {
        const asked = { from, to, ...amount, sender };
        seen.push(checkQuote({ ...asked, amountInMax: 10n ** 40n }, await millrace.quote(asked), sender, { contract }));
      }
    }
    const inputs = [PAIR.from, "EGLD", "WEGLD-bd4d79"].map((token) => ({ token, amount: 10n ** 9n }));
    const asked = { inputs, to: PAIR.to, slippage: 0.003, sender };
    seen.push(...checkMultiSwap(asked, await aggregator.multiSwap(asked), sender, { contract }));
    return seen.map(({ value, data }) => [value, atob(data).split("@")[0]]);
  },
  async swap() {
    const account = await millrace.relayer.subscribe(`address/${signer.address}`);
    kept.account = account;
    const { quote, handle } = await millrace.swap({ ...PAIR, amountIn: 2_500_000_000n, slippage: "0.02", signer });
    kept.handle = handle;
    return { hash: handle.clientHash, accepted: handle.accepted, least: quote.amountOutMin };
  },
  async final() {
    const final = await kept.handle.final({ timeoutMs: 90_000 });
    return { ...final, known: (await millrace.relayer.outcome(final.hash)).state };
  },
  /** The first update that the transaction made, or that one may have been missed. */
  async account() {
    return await items(kept.account, 1, (item) => item.type === "missed" || PAIR.to in item.data.balances);
  },
  async refused() {
    const outcome = await millrace.send(
      { receiver: signer.address, value: "1", data: "", gasLimit: 50_000, chainID: "local", options: 0, nonce: 10_000 }, { signer },
    ).catch(({ name, reason, code }) => ({ name, reason, code }));
    return outcome;
  },
  async listen() {
    kept.gas = await millrace.relayer.subscribe("gasStats", { policy: "latest" });
    return items({ [Symbol.asyncIterator]: () => ({ next: () => kept.gas.next() }) }, 1);
  },
  async heard() {
    const all = [];
    for (;;) {
      const { value } = await kept.gas.next();
      all.push(value.type);
      if (all.includes("missed") && value.type === "gasStats") return all;
    }
  },
  async stream() {
    kept.quotes = millrace.aggregator.stream({ ...PAIR, amountIn: 10n ** 9n, includePaths: false });
    return (await kept.quotes.next()).value.type;
  },
  async quoted() {
    for (let missed = false; ; ) {
      const { value } = await kept.quotes.next();
      missed ||= value.type === "missed";
      if (missed && value.type === "quote") return true;
    }
  },
  async hub() {
    const first = new Hub(HUB, { resumeAfter: 0n });
    const before = await items(first, 10, ({ topic }) => topic === "SaveBlock");
    const nobody = HUB.replace(/:[0-9]+/, ":1"); // it is passed over
    const second = new Hub([nobody, HUB], { place: first.place });
    const after = await items(second, 5, (item) => item.type === "event");
    const text = (all) => all.map(({ type, topic, sequence, payload }) => ({ type, topic, sequence: String(sequence), bytes: payload?.length }));
    return { before: text(before), last: String(first.last), after: text(after) };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  try {
    console.log(JSON.stringify({ answer: await commands[line]() }));
  } catch (error) {
    console.log(JSON.stringify({ error: `${error.stack}` }));
  }
}
millrace.close();
