// Where a consumer of the hub is, in words that every notifier of a network understands. Sequences are one notifier's own,
// ids of events are the same on all: a place names some ids of each shard, the newest and others ever further back.

import { toJson, utf8 } from "./bytes.js";
import { encodeMessage } from "./protobuf.js";

/** Ids of a shard: half an hour of rounds of 600 ms, with marks and executions, and twice the furthest that is named. */
const KEPT = 8_192;
const FURTHEST = 4_096;
/** Events of a shard that a notifier tells again to who comes from another one and is not ahead of it. */
const REPEATED = 129;
const OF_BLOCKS = ["SaveBlock", "ExecutedBlock", "FinalizedBlock", "RevertIndexedBlock"];
/** Distances of the ids that are named: 0, 1, 2, 4, 8 and so on. */
const STEPS = [0, ...Array.from({ length: Math.log2(FURTHEST) + 1 }, (_, power) => 2 ** power)];

/** An id, and how many events of its shard were handled since. */
type Named = readonly [id: string, since: number];
interface Seen {
  number: number;
  sequence: bigint;
  id: string;
  journal: string;
}

/** Where reading goes on, also in another process. */
export interface Place {
  /** The last event's sequence, on the notifier that told it, … */
  after: bigint;
  /** … and its id. */
  id: string;
  handled: readonly Named[];
  /** Whose sequence it is; empty: not known. */
  journal: string;
}

/** To keep: the same text as the Python client's. */
export function placeText({ after, id, handled, journal }: Place): string {
  return toJson([after, id, handled, journal]);
}

/** What `placeText` gave. Throws `RangeError` for anything else. */
export function placeOf(text: string): Place {
  const after = /^\s*\[\s*([0-9]{1,19})\s*,/.exec(text)?.[1]; // all of its digits, which a number would not keep
  try {
    const [, id, handled, journal = ""] = JSON.parse(text) as unknown[];
    const isText = typeof id === "string" && typeof journal === "string";
    if (after !== undefined && isText && Array.isArray(handled) && handled.every(isNamed)) {
      return { after: BigInt(after), id, handled, journal };
    }
  } catch {
    // said below
  }
  throw new RangeError("not the place of a hub's consumer");
}

function isNamed(item: unknown): item is Named {
  return Array.isArray(item) && item.length === 2 && typeof item[0] === "string" && Number.isSafeInteger(item[1]) && item[1] >= 0;
}

/** The fields of a subscription that say where it goes on. */
export function placeFields({ after, id, handled, journal }: Place): (readonly [number, bigint | Uint8Array])[] {
  const named = handled.map(([name, since]) => [8, encodeMessage([[1, utf8(name)], [2, BigInt(since)]])] as const);
  return [[6, after], [7, utf8(id)], ...named, [9, utf8(journal)]];
}

/** The newest events of each shard; their `number` ascends over all notifiers, from 1. */
export class Told {
  readonly #shards = new Map<string, Seen[]>();
  readonly #ids = new Set<string>();
  /** What the place it began with says of each shard. */
  readonly #before = new Map<string, Named[]>();

  constructor(readonly begun?: Place) {
    for (const named of begun?.handled ?? []) listOf(this.#before, shardOf(named[0])).push(named);
  }

  has(id: string): boolean {
    return this.#ids.has(id);
  }

  add(number: number, sequence: bigint, id: string, journal: string): void {
    const seen = listOf(this.#shards, shardOf(id));
    seen.push({ number, sequence, id, journal });
    this.#ids.add(id);
    if (seen.length < 2 * KEPT) return; // in one go: to take the first of an array moves all others
    for (const old of seen.splice(0, KEPT)) this.#ids.delete(old.id);
  }

  /** The place behind the event `number`; undefined when no event with an id came. */
  place(number: number): Place | undefined {
    let newest: Seen | undefined;
    const handled: Named[] = [];
    for (const shard of new Set([...this.#before.keys(), ...this.#shards.keys()])) {
      const seen = this.#shards.get(shard) ?? [];
      const count = upTo(seen, number);
      const last = seen[count - 1];
      if (last && last.number > (newest?.number ?? 0)) newest = last;
      if (!shard) continue;
      const named = STEPS.filter((since) => since < count).map((since): Named => [(seen[count - 1 - since] as Seen).id, since]);
      const later = this.#later(seen, count);
      handled.push(...thinned([...named, ...(this.#before.get(shard) ?? []).map(([id, since]): Named => [id, since + later])]));
    }
    return newest ? { after: newest.sequence, id: newest.id, handled, journal: newest.journal } : this.begun;
  }

  /**
   * How many of the oldest `count` of these came behind the place that this began with. Of what another journal told first,
   * so many may have been there before: what is counted twice would make places reach less far back than they say.
   */
  #later(seen: readonly Seen[], count: number): number {
    const moved = this.begun && count > 0 && seen[0]?.journal !== this.begun.journal;
    return moved ? Math.max(0, count - REPEATED) : count;
  }
}

/** How many of them have this number or a lower one. */
function upTo(seen: readonly Seen[], number: number): number {
  let [low, high] = [0, seen.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((seen[middle] as Seen).number <= number) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The nearest and the furthest at 1, at 2 and 3, at 4 to 7 and so on: places taken from places stay short. */
function thinned(named: Named[]): Named[] {
  const nearest = new Map<number, Named>();
  const furthest = new Map<number, Named>();
  for (const item of named.sort((first, second) => first[1] - second[1])) {
    if (item[1] > FURTHEST) break;
    const scale = Math.clz32(item[1]);
    if (!nearest.has(scale)) nearest.set(scale, item);
    furthest.set(scale, item);
  }
  return [...new Set([...nearest.values(), ...furthest.values()])];
}

/** The shard of an event about a block; empty for others, which no place is told by. */
function shardOf(id: string): string {
  const [topic = "", shard = ""] = id.split(":");
  return OF_BLOCKS.includes(topic) ? shard : "";
}

function listOf<T>(lists: Map<string, T[]>, name: string): T[] {
  const list = lists.get(name) ?? [];
  lists.set(name, list);
  return list;
}
