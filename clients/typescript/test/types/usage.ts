// Never run: what users write has the types that they may lean on, and what is wrong is found by the compiler.
import { Millrace, OutcomeUnknown, Refused, type Signer, type Transaction, userSigner } from "@millrace/client";
import { Ed25519Signer } from "@millrace/client/ed25519";
import { Hub } from "@millrace/client/hub";

declare const official: { sign(data: Uint8Array): Promise<Uint8Array>; getAddress(hrp?: string): { toBech32(): string } };
declare const signed: Transaction;

export async function usage(millrace: Millrace): Promise<string> {
  const signers: Signer[] = [userSigner(official), await Ed25519Signer.fromSeed(new Uint8Array(32))];
  const [signer = userSigner(official)] = signers;
  const { quote, handle } = await millrace.swap({ from: "A", to: "B", amountOut: "5", amountInMax: 6n, slippage: 0.01, signer, maxHops: 3 });
  const paths: number = quote.paths?.flatMap((path) => path.swaps).length ?? 0;

  // @ts-expect-error: the service would say how much is sold
  void millrace.swap({ from: "A", to: "B", amountOut: "5", signer });
  // @ts-expect-error: both amounts
  void millrace.aggregator.quote({ from: "A", to: "B", amountIn: 1n, amountOut: 1n });
  // @ts-expect-error: an amount is no number
  void millrace.aggregator.quote({ from: "A", to: "B", amountIn: 1 });
  // @ts-expect-error: no such algorithm
  void millrace.aggregator.quote({ from: "A", to: "B", amountIn: 1n, algorithm: "fast" });

  for await (const item of millrace.aggregator.stream({ from: "A", to: "B", amountIn: 1n })) {
    if (item.type === "quote") return item.quote.amountOut;
    if (item.type === "missed") return item.reason;
    return item.error;
  }
  for await (const item of await millrace.relayer.subscribe("address/erd1x", { size: 10, policy: "close" })) {
    if (item.type !== "missed") return item.data.balances["EGLD"] ?? String(item.data.nonce);
  }
  for await (const item of await millrace.relayer.subscribe(`tx-status/${handle.hash}`)) {
    if (item.type !== "missed") return item.data.status;
  }
  for await (const item of await millrace.relayer.subscribe("gasStats")) {
    if (item.type !== "missed") return String(item.data.gasPrice.percentiles.p90 ?? item.data.shard);
  }
  for await (const item of millrace.relayer.networkStats()) {
    if (item.type !== "missed") return String(item.data.network.currentTps);
  }
  for await (const event of new Hub("ws://x/hub/ws", { filter: { level: "Topics", topics: ["a"] }, resumeAfter: 0n })) {
    if (event.type === "gap") return `${event.first}`;
  }
  const outcomes = await millrace.relayer.relayAll([signed]);
  for (const outcome of outcomes) if (outcome instanceof Refused) return outcome.code;
  const { state } = await handle.final().catch((error: unknown) => {
    if (error instanceof OutcomeUnknown) return { state: error.accepted };
    throw error;
  });
  return `${state} ${paths}`;
}
