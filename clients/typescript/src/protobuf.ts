// As much of the protobuf encoding as transactions and the hub's envelope need.

import { concat } from "./bytes.js";

export type Field = { readonly number: number; readonly value: bigint | Uint8Array<ArrayBuffer> };

function varint(value: bigint): number[] {
  const bytes: number[] = [];
  do {
    const low = Number(value & 127n);
    value >>= 7n;
    bytes.push(value ? low | 128 : low);
  } while (value);
  return bytes;
}

/** A message of these fields, in the order given. Fields that are empty or 0 are left out, as proto3 does. */
export function encodeMessage(fields: readonly (readonly [number, bigint | Uint8Array])[]): Uint8Array<ArrayBuffer> {
  const parts: Uint8Array[] = [];
  for (const [number, value] of fields) {
    if (typeof value === "bigint") {
      if (value) parts.push(Uint8Array.from([...varint(BigInt(number << 3)), ...varint(value)]));
    } else if (value.length) {
      parts.push(Uint8Array.from([...varint(BigInt((number << 3) | 2)), ...varint(BigInt(value.length))]), value);
    }
  }
  return concat(parts);
}

/** The fields of a message, in their order; numbers of fixed size are passed over. Throws `RangeError`. */
export function decodeMessage(bytes: Uint8Array<ArrayBuffer>): Field[] {
  const fields: Field[] = [];
  let at = 0;
  const number = (): bigint => {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = bytes[at++];
      if (byte === undefined) break;
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
    throw new RangeError("a protobuf number is cut off or too long");
  };
  const skip = (size: number): Uint8Array<ArrayBuffer> => {
    if (at + size > bytes.length) throw new RangeError("a protobuf field is cut off");
    at += size;
    return bytes.subarray(at - size, at);
  };
  while (at < bytes.length) {
    const key = Number(number());
    const kind = key & 7;
    if (kind === 0) fields.push({ number: key >>> 3, value: number() });
    else if (kind === 2) fields.push({ number: key >>> 3, value: skip(Number(number())) });
    else if (kind === 1 || kind === 5) skip(kind === 1 ? 8 : 4);
    else throw new RangeError(`unknown protobuf wire type ${kind}`);
  }
  return fields;
}
