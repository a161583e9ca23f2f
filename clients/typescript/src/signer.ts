// Who signs: one small interface, and what fits it.

import { toHex } from "./bytes.js";
import { WalletError } from "./errors.js";
import { GUARDED, signingMessage, type Transaction } from "./transaction.js";

/** A wallet: its address, and a transaction with its signature in it. Nothing else is asked of it. */
export interface Signer {
  readonly address: string;
  /** The same transaction with `signature`, and with `guardianSignature` where a guardian co-signs. */
  sign(transaction: Transaction): Promise<Transaction>;
}

/** A signer that signs bytes: `sign` gets what the key has to sign and gives the 64 bytes of the signature. */
export function bytesSigner(address: string, sign: (message: Uint8Array) => Promise<Uint8Array> | Uint8Array): Signer {
  return {
    address,
    sign: async (transaction) => ({ ...transaction, signature: toHex(await sign(signingMessage(transaction))) }),
  };
}

/** The shape of the official SDK's `UserSigner`. */
export interface UserSignerLike {
  sign(data: Uint8Array): Promise<Uint8Array>;
  getAddress(hrp?: string): { toBech32(): string };
}

/** A signer of the official SDK's `UserSigner`, or of what has its shape. */
export function userSigner(signer: UserSignerLike): Signer {
  return bytesSigner(signer.getAddress("erd").toBech32(), (message) => signer.sign(message));
}

const ASKED = [
  "nonce", "value", "receiver", "sender", "senderUsername", "receiverUsername", "gasPrice", "gasLimit", "data", "chainID",
  "version", "options", "guardian", "relayer",
] as const;

/**
 * The transaction with the signature of its sender, and of its guardian if it has one: that wallet's, or what the sender's own
 * gave with it. Throws `WalletError` where a wallet signed something else than it was asked to.
 */
export async function signedBy(signer: Signer, transaction: Transaction, guardian?: Signer): Promise<Transaction> {
  if (transaction.sender !== signer.address) throw new WalletError(`the transaction is ${transaction.sender}'s, and the wallet is ${signer.address}`);
  if (guardian && transaction.guardian !== guardian.address) {
    throw new WalletError(`the transaction's guardian is ${transaction.guardian}, and the guardian's wallet is ${guardian.address}`);
  }
  const { signature, guardianSignature } = await signatureOf(signer, transaction);
  const second = guardian ? (await signatureOf(guardian, transaction)).signature : guardianSignature;
  if (Boolean((transaction.options ?? 0) & GUARDED) !== Boolean(second)) {
    throw new WalletError("a guarded transaction needs its guardian's signature, and no other one may have it");
  }
  // What was compared, and nothing that came beside it.
  return { ...transaction, signature, ...(second ? { guardianSignature: second } : {}) } as Transaction;
}

/** What a wallet gave for a transaction, which is the same in every field. */
async function signatureOf(signer: Signer, transaction: Transaction): Promise<Transaction> {
  const signed = await signer.sign({ ...transaction });
  const empty = (value: unknown): boolean => value === undefined || value === null || value === 0 || value === 0n;
  const text = (value: unknown): string => (empty(value) ? "" : String(value));
  for (const field of ASKED) {
    if (text(signed[field]) !== text(transaction[field])) {
      throw new WalletError(`the wallet changed ${field}: nothing was sent`);
    }
  }
  if (!/^[0-9a-f]{128}$/.test(signed.signature ?? "")) throw new WalletError("the wallet gave no signature");
  return signed;
}

const ANSWER_MS = 120_000; // a person reads before they sign

/** The browser extension, by its own message protocol: no package is needed. */
export class ExtensionSigner implements Signer {
  private constructor(readonly address: string) {}

  /** Whether this page sees an extension. */
  static get present(): boolean {
    const page = globalThis as { multiversxWallet?: unknown; elrondWallet?: unknown };
    return Boolean(page.multiversxWallet ?? page.elrondWallet);
  }

  /** Asks its user which account to use. Throws `WalletError` where that is refused, or not answered in 120 s. */
  static async connect(): Promise<ExtensionSigner> {
    const account = (await ask("connect", "")) as { address?: unknown } | undefined;
    if (typeof account?.address !== "string") throw new WalletError("the wallet refused to connect");
    return new ExtensionSigner(account.address);
  }

  async sign(transaction: Transaction): Promise<Transaction> {
    const whole = Object.entries(transaction).map(([name, value]) => [name, typeof value === "bigint" ? Number(value) : value]);
    const answer = await ask("signTransactions", { from: this.address, transactions: [Object.fromEntries(whole)] });
    const [signed] = Array.isArray(answer) ? (answer as Transaction[]) : [];
    if (!signed?.signature) throw new WalletError("the signature was refused in the wallet");
    return { ...transaction, ...signed };
  }
}

/** One question to the extension and its answer. */
function ask(type: string, data: unknown): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const hear = (event: MessageEvent<{ target?: unknown; data?: unknown }>): void => {
      if (event.source !== window || event.data?.target !== "erdw-contentScript") return;
      end();
      resolve(event.data.data);
    };
    const timer = setTimeout(() => {
      end();
      reject(new WalletError(`the wallet did not answer within ${ANSWER_MS / 1000} s`));
    }, ANSWER_MS);
    const end = (): void => {
      clearTimeout(timer);
      window.removeEventListener("message", hear);
    };
    window.addEventListener("message", hear);
    window.postMessage({ target: "erdw-inpage", type, data }, window.location.origin);
  });
}
