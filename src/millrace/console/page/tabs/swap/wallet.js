// Who signs: a wallet's browser extension, or on a local chain a key that lives in this tab alone.

import { Ed25519Signer } from "../../vendor/millrace/ed25519.js";
import { ExtensionSigner } from "../../vendor/millrace/index.js";
import { get, post, relayer } from "../../lib/services.js";

const LOCAL = "local";

/** Which wallets this page can open: `{demonstration, extension}`. */
export async function choices(settings) {
  const demonstration = settings.faucet && (await relayer.relayers()).chainId === LOCAL;
  return { demonstration, extension: ExtensionSigner.present };
}

/** A new key in this tab, which signs for a local chain and for no other. */
export async function openDemonstration() {
  const { signer } = await Ed25519Signer.generate();
  return {
    kind: "demonstration",
    address: signer.address,
    sign: (transaction) => {
      if (transaction.chainID !== LOCAL) throw new Error(`a demonstration wallet signs for a local chain, not for ${transaction.chainID}`);
      return signer.sign(transaction);
    },
  };
}

/** The browser extension, which asks its user. */
export async function openExtension() {
  const signer = await ExtensionSigner.connect();
  return { kind: "extension", address: signer.address, sign: (transaction) => signer.sign(transaction) };
}

/** Gives a demonstration wallet tokens. `amount`: smallest units, a bigint. */
export const fund = (address, token, amount) => post("chain/faucet", { address, token, amount: String(amount) });

/** Balances in smallest units by token, EGLD among them: bigints. */
export async function balancesOf(address) {
  const [account, tokens] = await Promise.all([get(`chain/accounts/${address}`), get(`chain/accounts/${address}/tokens`)]);
  const balances = new Map(tokens.map(({ identifier, balance }) => [identifier, BigInt(balance)]));
  return balances.set("EGLD", BigInt(account.balance));
}
