// Texts and bytes: hex, base64, UTF-8.

export const utf8 = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text);

export function toHex(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += byte.toString(16).padStart(2, "0");
  return text;
}

/** The bytes of lower-case hex digits. Throws `RangeError`. */
export function fromHex(text: string): Uint8Array<ArrayBuffer> {
  if (text.length % 2 || !/^[0-9a-f]*$/.test(text)) throw new RangeError("not lower-case hex digits in pairs");
  return Uint8Array.from({ length: text.length / 2 }, (_, i) => parseInt(text.slice(2 * i, 2 * i + 2), 16));
}

export function toBase64(bytes: Uint8Array): string {
  let text = "";
  // In parts: a call takes no more than some 60,000 arguments everywhere.
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

/** The bytes of standard base64 with padding. Throws `RangeError` for any other form of the same bytes. */
export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  let raw: string;
  try {
    raw = atob(text);
  } catch {
    throw new RangeError("not base64");
  }
  if (btoa(raw) !== text) throw new RangeError("not standard base64 with padding");
  return Uint8Array.from(raw, (character) => character.charCodeAt(0));
}

/** All of these, one behind the other. */
export function concat(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** The JSON of a value; a bigint becomes a number with all of its digits. */
export function toJson(value: unknown): string {
  if (typeof value === "bigint") return value.toString();
  if (Array.isArray(value)) return `[${value.map(toJson).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  const fields = Object.entries(value).filter(([, field]) => field !== undefined);
  return `{${fields.map(([name, field]) => `${JSON.stringify(name)}:${toJson(field)}`).join(",")}}`;
}
