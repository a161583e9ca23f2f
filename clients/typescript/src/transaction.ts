// Transactions: the bytes that are signed, the protobuf form, and the three hashes of a relayed one.

import { blake2b } from "@noble/hashes/blake2.js";
import { keccak_256 } from "@noble/hashes/sha3.js";

import { decodeAddress } from "./address.js";
import { concat, fromBase64, fromHex, toHex, utf8 } from "./bytes.js";
import { ClientError } from "./errors.js";
import type { components } from "./generated/relayer.js";
import { encodeMessage } from "./protobuf.js";

/** A whole number: a bigint, or a number that is exact (below 2^53). */
export type Integer = number | bigint;

type Wire = components["schemas"]["TransactionJson"];

/** The transaction object of the public interfaces. Amounts are decimal strings; data is base64. */
export type Transaction = Omit<Wire, "nonce" | "gasPrice" | "gasLimit"> & {
  nonce: Integer;
  gasPrice: Integer;
  gasLimit: Integer;
};

/** Option bit: signatures are over the Keccak-256 of the signing bytes. */
export const HASH_SIGNED = 1;
/** Option bit: a guardian must sign too. */
export const GUARDED = 2;

const MAX_U64 = 2n ** 64n - 1n;
const MAX_U32 = 2n ** 32n - 1n;
const VALUE = /^(0|[1-9][0-9]{0,79})$/;
const CHAIN_ID = /^[A-Za-z0-9 ._-]{1,64}$/; // nothing that JSON would escape: the signing bytes hold it as it is
const MAX_DATA = 1_048_576;
const MAX_USERNAME = 32;
const SIGNATURE = 64;
/** The relayer's signature, field 17 and the last of the protobuf form, without a byte in it. */
const EMPTY_RELAYER_SIGNATURE = Uint8Array.of(0x8a, 0x01, 0x00);

/** A transaction has an impossible field; `field` is its name. */
export class TransactionError extends ClientError {
  override name = "TransactionError";
  constructor(readonly field: string, text: string) {
    super(`${field}: ${text}`);
  }
}

/** The three hashes under which a transaction can be asked for; without a relayer all are one. */
export interface Hashes {
  /** Without the relayer's signature: known before it is sent, and what the official Python SDK computes then. */
  clientHash: string;
  /** With an empty field for that signature, as the official JavaScript SDK computes it; only with a relayer. */
  sdkHash?: string;
  /** With every signature, as the chain knows it; absent while the relayer's is missing. */
  chainHash?: string | undefined;
}

/** The canonical JSON that sender, guardian and relayer sign. Throws `TransactionError`. */
export function signingBytes(tx: Transaction): Uint8Array<ArrayBuffer> {
  check(tx);
  const text = (name: string, value: string | undefined): string => (value ? `,"${name}":"${value}"` : "");
  return utf8(
    `{"nonce":${tx.nonce},"value":"${tx.value}","receiver":"${tx.receiver}","sender":"${tx.sender}"` +
      text("senderUsername", tx.senderUsername) + text("receiverUsername", tx.receiverUsername) +
      `,"gasPrice":${tx.gasPrice},"gasLimit":${tx.gasLimit}${text("data", tx.data)}` +
      `,"chainID":"${tx.chainID}","version":${tx.version}${tx.options ? `,"options":${tx.options}` : ""}` +
      `${text("guardian", tx.guardian)}${text("relayer", tx.relayer)}}`,
  );
}

/** What a key signs: the signing bytes, or their Keccak-256 where the option bit says so. Throws `TransactionError`. */
export function signingMessage(tx: Transaction): Uint8Array<ArrayBuffer> {
  const bytes = signingBytes(tx);
  return tx.version >= 2 && (tx.options ?? 0) & HASH_SIGNED ? Uint8Array.from(keccak_256(bytes)) : bytes;
}

/** The canonical protobuf form, with the signatures that are there. Throws `TransactionError`. */
export function toProtobuf(tx: Transaction): Uint8Array<ArrayBuffer> {
  check(tx);
  const base64 = (value: string | undefined): Uint8Array => fromBase64(value ?? "");
  const address = (value: string | undefined): Uint8Array => (value ? decodeAddress(value) : new Uint8Array());
  return encodeMessage([
    [1, BigInt(tx.nonce)],
    [2, valueBytes(BigInt(tx.value))],
    [3, decodeAddress(tx.receiver)],
    [4, base64(tx.receiverUsername)],
    [5, decodeAddress(tx.sender)],
    [6, base64(tx.senderUsername)],
    [7, BigInt(tx.gasPrice)],
    [8, BigInt(tx.gasLimit)],
    [9, base64(tx.data)],
    [10, utf8(tx.chainID)],
    [11, BigInt(tx.version)],
    [12, fromHex(tx.signature ?? "")],
    [13, BigInt(tx.options ?? 0)],
    [14, address(tx.guardian)],
    [15, fromHex(tx.guardianSignature ?? "")],
    [16, address(tx.relayer)],
    [17, fromHex(tx.relayerSignature ?? "")],
  ]);
}

/** All hashes that can be known of a transaction signed by its sender. Throws `TransactionError`. */
export function hashesOf(tx: Transaction): Hashes {
  const { relayerSignature, ...unsponsored } = tx;
  const bytes = toProtobuf(unsponsored);
  const clientHash = hash(bytes);
  if (!tx.relayer && !relayerSignature) return { clientHash, chainHash: clientHash };
  const sdk = tx.relayer ? { sdkHash: hash(concat([bytes, EMPTY_RELAYER_SIGNATURE])) } : {};
  return { clientHash, ...sdk, ...(relayerSignature ? { chainHash: hash(toProtobuf(tx)) } : {}) };
}

function hash(bytes: Uint8Array): string {
  return toHex(blake2b(bytes, { dkLen: 32 }));
}

/** A sign byte and the magnitude, big-endian; zero has two bytes. */
function valueBytes(value: bigint): Uint8Array {
  const digits = value.toString(16);
  return fromHex("00" + (digits.length % 2 ? "0" + digits : digits));
}

function check(tx: Transaction): void {
  whole("nonce", tx.nonce, MAX_U64);
  whole("gasPrice", tx.gasPrice, MAX_U64);
  whole("gasLimit", tx.gasLimit, MAX_U64);
  whole("version", tx.version, MAX_U32);
  whole("options", tx.options ?? 0, MAX_U32);
  if (tx.version < 1 || (tx.version === 1 && tx.options)) {
    throw new TransactionError("version", "at least 1, and 2 with options");
  }
  if (typeof tx.value !== "string" || !VALUE.test(tx.value)) {
    throw new TransactionError("value", "a decimal integer of at most 80 digits, as a string");
  }
  if (!CHAIN_ID.test(tx.chainID)) {
    throw new TransactionError("chainID", "1 to 64 letters, digits, spaces, dots, underscores or hyphens");
  }
  for (const name of ["receiver", "sender", "guardian", "relayer"] as const) {
    const text = tx[name];
    if (text || name === "receiver" || name === "sender") sized(name, () => decodeAddress(text ?? ""), 32);
  }
  sized("data", () => fromBase64(tx.data ?? ""), MAX_DATA, true);
  sized("senderUsername", () => fromBase64(tx.senderUsername ?? ""), MAX_USERNAME, true);
  sized("receiverUsername", () => fromBase64(tx.receiverUsername ?? ""), MAX_USERNAME, true);
  for (const name of ["signature", "guardianSignature", "relayerSignature"] as const) {
    if (tx[name]) sized(name, () => fromHex(tx[name] ?? ""), SIGNATURE);
  }
}

function whole(field: string, value: Integer, highest: bigint): void {
  const exact = typeof value === "bigint" || Number.isSafeInteger(value);
  if (!exact || value < 0 || value > highest) {
    throw new TransactionError(field, `a whole number from 0 to ${highest}; beyond 2^53 a bigint`);
  }
}

function sized(field: string, read: () => Uint8Array, size: number, atMost = false): void {
  let bytes: Uint8Array;
  try {
    bytes = read();
  } catch (error) {
    throw new TransactionError(field, (error as Error).message);
  }
  if (atMost ? bytes.length > size : bytes.length !== size) {
    throw new TransactionError(field, `${atMost ? "at most " : ""}${size} bytes, not ${bytes.length}`);
  }
}
