import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { ExtensionSigner, signedBy, userSigner } from "@millrace/client";
import { Ed25519Signer } from "@millrace/client/ed25519";
import { readVectors, SENDER } from "./support.mjs";

const GUARDIAN = readVectors("clients.json").keys[2].address;
const { signature, ...UNSIGNED } = readVectors("sdk_hashes.json").vectors[0].transaction;

test("a UserSigner of the official SDK's shape signs what the SDK would", async () => {
  const key = await import("@noble/ed25519");
  const seed = Buffer.from(SENDER.seed, "hex");
  const official = { sign: (data) => key.signAsync(data, seed), getAddress: () => ({ toBech32: () => UNSIGNED.sender }) };
  const signer = userSigner(official);
  assert.equal(signer.address, UNSIGNED.sender);
  assert.equal((await signedBy(signer, UNSIGNED)).signature, signature);
});

test("what a wallet gives back is compared field by field; a guardian's signature may come with it", async () => {
  const wallet = (changes) => ({ address: UNSIGNED.sender, sign: async (tx) => ({ ...tx, signature, ...changes }) });
  const changes = [
    { receiver: UNSIGNED.sender }, { value: "6" }, { nonce: 1 }, { relayer: undefined }, { data: "YQ==" }, { gasPrice: 900_000_000_000 },
    { gasLimit: 600_000_000 }, { options: 1 }, { guardian: UNSIGNED.receiver }, { version: 1 }, { chainID: "x" }, { senderUsername: "YQ==" },
    { receiverUsername: "YQ==" }, { sender: UNSIGNED.receiver },
  ];
  for (const change of changes) {
    const [field] = Object.keys(change);
    await assert.rejects(signedBy(wallet(change), UNSIGNED), { name: "WalletError", message: new RegExp(`wallet changed ${field}:`) });
  }
  await assert.rejects(signedBy(wallet({ signature: "" }), UNSIGNED), /no signature/);
  const guarded = { ...UNSIGNED, options: 2, guardian: GUARDIAN };
  assert.equal((await signedBy(wallet({ guardianSignature: "ab" }), guarded)).guardianSignature, "ab");
  const second = (changes) => ({ ...wallet(changes), address: GUARDIAN });
  assert.equal((await signedBy(wallet(), guarded, second({ signature: "cd".repeat(64) }))).guardianSignature, "cd".repeat(64));
  for (const [transaction, ...wallets] of [
    [guarded, wallet()], [UNSIGNED, wallet(), second()], [{ ...guarded, guardian: SENDER.address }, wallet(), second()],
    [guarded, wallet(), second({ value: "6" })], [UNSIGNED, wallet({ guardianSignature: "ab" })], [UNSIGNED, second()],
  ]) {
    await assert.rejects(signedBy(wallets[0], transaction, wallets[1]), { name: "WalletError" });
  }
  assert.deepEqual(await signedBy(wallet({ relayerSignature: "cd", more: 1 }), UNSIGNED), { ...UNSIGNED, signature });
});

/** A page with an extension that answers as `answer(type, data)` says. */
function page(answer) {
  const listeners = new Set();
  globalThis.window = {
    location: { origin: "http://x" },
    addEventListener: (_, listener) => listeners.add(listener),
    removeEventListener: (_, listener) => listeners.delete(listener),
    postMessage: async (message) => {
      for (const listener of [...listeners]) listener({ source: window, data: message }); // a page hears itself
      const data = await answer(message.type, message.data);
      for (const listener of [...listeners]) listener({ source: {}, data: { target: "erdw-contentScript", data: "stranger" } });
      for (const listener of [...listeners]) listener({ source: window, data: { target: "erdw-contentScript", data } });
    },
  };
  return listeners;
}
afterEach(() => delete globalThis.window);

test("the extension is asked by its own messages: connect, then sign", async () => {
  const signer = await Ed25519Signer.fromSeed(SENDER.seed);
  const listeners = page(async (type, data) => (type === "connect" ? { address: signer.address } : [await signer.sign(data.transactions[0])]));
  const wallet = await ExtensionSigner.connect();
  assert.equal(wallet.address, SENDER.address);
  assert.equal((await signedBy(wallet, { ...UNSIGNED, nonce: BigInt(UNSIGNED.nonce) })).signature, signature);
  assert.equal(listeners.size, 0);
});

test("what is refused in the extension is an exception", async () => {
  page(async () => undefined);
  await assert.rejects(ExtensionSigner.connect(), { name: "WalletError" });
  page(async (type) => (type === "connect" ? { address: UNSIGNED.sender } : { error: "cancelled" }));
  const wallet = await ExtensionSigner.connect();
  await assert.rejects(wallet.sign(UNSIGNED), { name: "WalletError" });
});
