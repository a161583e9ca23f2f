// What an event of the hub says of itself, read from the first fields of its protobuf message.

const MARKS = [[1, "conflict"], [2, "without its block"], [4, "historical"], [8, "incomplete"]];
const META = 4_294_967_295;
const HASH = 4; // of BlockData
const BLOCKS = ["SaveBlock", "ExecutedBlock"];

/** The values of a message's fields, the last of each; what is cut off ends it. */
export function fields(bytes) {
  const found = new Map();
  let at = 0;
  const varint = () => {
    let value = 0;
    for (let shift = 0; at < bytes.length; shift += 7) {
      const byte = bytes[at++];
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  while (at < bytes.length) {
    const key = varint();
    const kind = key & 7;
    let value;
    if (kind === 0) value = varint();
    else if (kind === 2) {
      const size = varint();
      value = bytes.subarray(at, at + size);
      at += size;
    } else return found;
    found.set(Math.floor(key / 8), value);
  }
  return found;
}

const hex = (bytes) => (bytes instanceof Uint8Array ? [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("") : "");

/** An event, or a gap, as a row: `{sequence, topic, shard, hash, size, marks}`. */
export function told(item) {
  if (item.type === "gap") {
    return { sequence: `${item.first}–${item.last}`, topic: "gap", shard: "", hash: "", size: 0, marks: "gone for good" };
  }
  const { topic, sequence, payload, marks } = item;
  let message = fields(payload);
  let hash = topic === "FinalizedBlock" ? hex(message.get(2)) : "";
  if (topic === "RevertIndexedBlock") hash = hex(message.get(HASH));
  const shard = message.get(1) ?? 0;
  if (BLOCKS.includes(topic) && message.get(2)) {
    message = fields(message.get(2));
    hash = hex(message.get(HASH));
  }
  const words = MARKS.filter(([bit]) => marks & bit).map(([, word]) => word).join(", ");
  return { sequence: String(sequence), topic, shard: typeof shard !== "number" ? "" : shard === META ? "meta" : String(shard), hash, size: payload.length, marks: words };
}
