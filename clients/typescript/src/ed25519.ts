// Keys in this process: WebCrypto, or @noble/ed25519 where that is installed or given.

import { encodeAddress } from "./address.js";
import { concat, fromBase64, fromHex, toHex } from "./bytes.js";
import { ClientError } from "./errors.js";
import { bytesSigner, type Signer } from "./signer.js";
import type { Transaction } from "./transaction.js";

/** What is needed of a library: `@noble/ed25519` has this shape. */
export interface Ed25519Library {
  getPublicKeyAsync(seed: Uint8Array): Promise<Uint8Array>;
  signAsync(message: Uint8Array, seed: Uint8Array): Promise<Uint8Array>;
}

const SEED = 32;
/** PKCS #8 of an Ed25519 key, up to its 32 bytes (RFC 8410). */
const PKCS8 = fromHex("302e020100300506032b657004220420");

/** A signer whose key is in memory. */
export class Ed25519Signer implements Signer {
  readonly #signer: Signer;

  private constructor(readonly publicKey: Uint8Array, sign: (message: Uint8Array) => Promise<Uint8Array>) {
    this.#signer = bytesSigner(encodeAddress(publicKey), sign);
  }

  get address(): string {
    return this.#signer.address;
  }

  sign(transaction: Transaction): Promise<Transaction> {
    return this.#signer.sign(transaction);
  }

  /** From 32 secret bytes or their hex digits. Pages without https have no WebCrypto: give a `library` there. */
  static async fromSeed(seed: Uint8Array | string, library?: Ed25519Library): Promise<Ed25519Signer> {
    const secret = Uint8Array.from(typeof seed === "string" ? fromHex(seed) : seed);
    if (secret.length !== SEED) throw new RangeError(`a seed has ${SEED} bytes, not ${secret.length}`);
    return library ? withLibrary(secret, library, make) : ((await withWebCrypto(secret, make)) ?? withNoble(secret));
  }

  /** From a wallet's PEM file: the first key in it. Throws `RangeError` for a text that is none. */
  static fromPem(text: string, library?: Ed25519Library): Promise<Ed25519Signer> {
    const found = /-----BEGIN PRIVATE KEY for (erd1[a-z0-9]+)-----([\sA-Za-z0-9+/=]+)-----END/.exec(text);
    const digits = found?.[2] ? new TextDecoder().decode(fromBase64(found[2].replace(/\s+/g, ""))) : "";
    if (!/^[0-9a-f]{128}$/.test(digits)) throw new RangeError("not the PEM file of a wallet: BEGIN PRIVATE KEY for erd1…");
    return Ed25519Signer.fromSeed(digits.slice(0, 2 * SEED), library).then((signer) => {
      if (signer.address !== found?.[1]) throw new RangeError(`the PEM file's key is that of ${signer.address}, not of its name`);
      return signer;
    });
  }

  /** A new key at random; `toPem` keeps it. */
  static async generate(library?: Ed25519Library): Promise<{ signer: Ed25519Signer; pem: string }> {
    const seed = crypto.getRandomValues(new Uint8Array(SEED));
    const signer = await Ed25519Signer.fromSeed(seed, library);
    return { signer, pem: toPem(seed, signer) };
  }

  /** @internal */
  static made(publicKey: Uint8Array, sign: (message: Uint8Array) => Promise<Uint8Array>): Ed25519Signer {
    return new Ed25519Signer(publicKey, sign);
  }
}

type Make = typeof Ed25519Signer.made;
const make: Make = (key, sign) => Ed25519Signer.made(key, sign);

function toPem(seed: Uint8Array, signer: Ed25519Signer): string {
  const body = btoa(toHex(concat([seed, signer.publicKey]))).replace(/.{64}/g, "$&\n");
  const name = `PRIVATE KEY for ${signer.address}`;
  return `-----BEGIN ${name}-----\n${body.trimEnd()}\n-----END ${name}-----\n`;
}

async function withLibrary(seed: Uint8Array, library: Ed25519Library, maker: Make): Promise<Ed25519Signer> {
  return maker(await library.getPublicKeyAsync(seed), (message) => library.signAsync(message, seed));
}

/** Undefined where this platform has none: no secure context, or a browser of before 2025. */
async function withWebCrypto(seed: Uint8Array<ArrayBuffer>, maker: Make): Promise<Ed25519Signer | undefined> {
  const subtle = globalThis.crypto?.subtle as SubtleCrypto | undefined;
  let key: CryptoKey;
  let jwk: JsonWebKey;
  try {
    if (!subtle) return undefined;
    key = await subtle.importKey("pkcs8", concat([PKCS8, seed]), "Ed25519", true, ["sign"]);
    jwk = await subtle.exportKey("jwk", key);
  } catch {
    return undefined;
  }
  const text = (jwk.x ?? "").replace(/-/g, "+").replace(/_/g, "/");
  const publicKey = fromBase64(text.padEnd(Math.ceil(text.length / 4) * 4, "="));
  return maker(publicKey, async (message) => {
    const bytes = Uint8Array.from(message);
    return new Uint8Array(await subtle.sign("Ed25519", key, bytes));
  });
}

async function withNoble(seed: Uint8Array): Promise<Ed25519Signer> {
  const name = "@noble/ed25519";
  let library: Ed25519Library;
  try {
    library = (await import(/* webpackIgnore: true */ /* @vite-ignore */ name)) as Ed25519Library;
  } catch {
    throw new ClientError(
      "this platform has no Ed25519: use https, a newer browser, or npm install @noble/ed25519 and give it as `library`",
    );
  }
  return withLibrary(seed, library, make);
}


