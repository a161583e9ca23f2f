// When the notifier took the blocks of each shard, for who may ask it: the statistics tell of the newest block alone, and
// where all shards make theirs at the same time that is always the same shard's.

import { useEffect } from "../../vendor/preact.js";
import { useThrottled } from "../../lib/live.js";
import { get, operators, settings } from "../../lib/services.js";

const EVERY_MS = 250; // less than half a round: no block is missed
const MOST = 600;
const META = "4294967295";
const SAME_MS = 40; // two answers about one block differ by less

/** `{shard, at}` of the newest blocks, while this is shown; empty where the notifier is not for us to ask. */
export function useArrivals() {
  const [blocks, setBlocks] = useThrottled([], 2);
  useEffect(() => {
    let ended = false;
    let timer;
    const newest = new Map();
    const take = ({ secondsSinceBlock }, now) => {
      const fresh = [];
      for (const [name, seconds] of Object.entries(secondsSinceBlock)) {
        const shard = name === META ? "meta" : name;
        const at = now - seconds * 1000;
        if (at - (newest.get(shard) ?? -Infinity) < SAME_MS) continue;
        newest.set(shard, at);
        fresh.push({ shard, at });
      }
      if (fresh.length) setBlocks((before) => [...before, ...fresh].slice(-MOST));
    };
    const ask = async () => {
      if (!document.hidden) {
        const asked = Date.now();
        const ready = await get("operators/notifier/ready", { headers: operators.headers() });
        take(ready, (asked + Date.now()) / 2);
      }
      if (!ended) timer = setTimeout(() => void ask().catch(() => {}), EVERY_MS);
    };
    const begin = async () => {
      const known = await settings();
      if (known.services["operators/notifier"] && (known.operators === "open" || operators.known)) await ask();
    };
    begin().catch(() => {}); // the statistics are shown without it
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, []);
  return blocks;
}
