// Addresses: 32 bytes, bech32 (BIP-173) with the prefix `erd` as text; the shard they live in.

const ALPHABET = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";
const PREFIX = [3, 3, 3, 0, 5, 18, 4]; // "erd", as the checksum takes it: high bits, zero, low bits
const GENERATOR = [0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3];
const GROUPS = 52; // of five bits hold 32 bytes, the last four of these bits are zero
const CHECKSUM = 6;

export const METACHAIN = 0xffffffff;

/** How the shard follows from an address: `modulo` the number of shards, or the bit `mask` of live nodes. */
export type ShardRule = "modulo" | "mask";

function checksum(groups: readonly number[]): number {
  let state = 1;
  for (const group of groups) {
    const top = state >>> 25;
    state = ((state & 0x1ffffff) << 5) ^ group;
    GENERATOR.forEach((generator, bit) => {
      if ((top >>> bit) & 1) state ^= generator;
    });
  }
  return state;
}

/** The text of 32 bytes. Throws `RangeError` for any other number of them. */
export function encodeAddress(key: Uint8Array): string {
  if (key.length !== 32) throw new RangeError(`an address has 32 bytes, not ${key.length}`);
  let bits = 0n;
  for (const byte of key) bits = (bits << 8n) | BigInt(byte);
  bits <<= 4n;
  const groups = Array.from({ length: GROUPS }, (_, i) => Number((bits >> BigInt(5 * (GROUPS - 1 - i))) & 31n));
  const sum = checksum([...PREFIX, ...groups, ...Array<number>(CHECKSUM).fill(0)]) ^ 1;
  const tail = Array.from({ length: CHECKSUM }, (_, i) => (sum >>> (5 * (CHECKSUM - 1 - i))) & 31);
  return "erd1" + [...groups, ...tail].map((group) => ALPHABET[group]).join("");
}

/** The 32 bytes of an address. Throws `RangeError` for a text that is none; capitals are none here. */
export function decodeAddress(text: string): Uint8Array<ArrayBuffer> {
  const groups = [...text.slice(4)].map((character) => ALPHABET.indexOf(character));
  if (!text.startsWith("erd1") || groups.length !== GROUPS + CHECKSUM || groups.includes(-1)) {
    throw new RangeError(`not an address (erd1 and 58 characters): ${text.slice(0, 80)}`);
  }
  if (checksum([...PREFIX, ...groups]) !== 1) throw new RangeError(`the checksum of the address is wrong: ${text}`);
  let bits = 0n;
  for (const group of groups.slice(0, GROUPS)) bits = (bits << 5n) | BigInt(group);
  if (bits & 15n) throw new RangeError(`the padding bits of the address are not zero: ${text}`);
  bits >>= 4n;
  return Uint8Array.from({ length: 32 }, (_, i) => Number((bits >> BigInt(8 * (31 - i))) & 255n));
}

/** The shard an address lives in. */
export function shardOf(address: string | Uint8Array, rule: ShardRule, shards = 3): number {
  const key = typeof address === "string" ? decodeAddress(address) : address;
  const last = key[31] as number;
  if (rule === "modulo") return last % shards;
  const zero = (from: number, to: number): boolean => key.subarray(from, to).every((byte) => byte === 0);
  if (last === 0xff && zero(0, 8) && zero(10, 25)) return METACHAIN;
  const bits = 32 - Math.clz32(shards - 1);
  const shard = last & ((1 << bits) - 1);
  return shard < shards ? shard : last & ((1 << (bits - 1)) - 1);
}
