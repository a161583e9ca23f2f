// A quote that stays true: the stream's newest answer to exactly what is asked now.

import { useEffect, useState } from "../../vendor/preact.js";
import { follow } from "../../lib/live.js";
import { aggregator } from "../../lib/services.js";

const PAUSE_MS = 200; // while somebody types
const QUIET_MS = 3_600_000; // a stream is silent while nothing changes; the client notices a dead one by itself

/**
 * `{quote, error, state}` for the parameters of a quote, or for none. A quote is that of these parameters, never of those
 * before; `null` parameters ask nothing.
 */
export function useQuote(asked) {
  const key = JSON.stringify(asked, (_, value) => (typeof value === "bigint" ? String(value) : value));
  const [answer, setAnswer] = useState({});
  useEffect(() => {
    if (!asked) return undefined;
    const stop = new AbortController();
    const tell = (more) => setAnswer((before) => (stop.signal.aborted ? before : { ...(before.key === key ? before : {}), key, ...more }));
    const item = (event) => {
      if (event.type === "quote") tell({ quote: event.quote, error: undefined, at: Date.now() });
      if (event.type === "error") tell({ quote: undefined, error: event.error });
    };
    const fail = (error) => {
      tell({ quote: undefined, error });
      // A question that is refused is not asked again; it would be refused again.
      if (error.name === "Refused" || error.name === "RangeError") stop.abort();
    };
    const begin = () => follow(() => aggregator.stream(asked), { item, fail, signal: stop.signal, silence: QUIET_MS, state: (state) => tell({ state }) });
    const timer = setTimeout(begin, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [key]);
  return asked && answer.key === key ? answer : {};
}
