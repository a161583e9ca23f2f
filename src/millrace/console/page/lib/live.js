// Streams in components: they begin with the component and end with it, and say when nothing comes.

import { useEffect, useRef, useState } from "../vendor/preact.js";

const SILENCE_MS = 3_000;
const LONGEST_MS = 10_000;
const SOON_MS = 2_000; // after an error

/**
 * Follows `open()`, an async iterable or a promise of one, until `signal` aborts; a stream that ends or fails is opened
 * again after 0.25 to 10 s. `item` gets each item, `state` "live", "no data" or "reconnecting", and `fail` an error.
 */
export async function follow(open, { item, state = () => {}, fail = () => {}, signal, silence = SILENCE_MS }) {
  for (let pause = 250; !signal.aborted; pause = Math.min(2 * pause, LONGEST_MS)) {
    let iterator;
    let timer;
    const leave = () => iterator?.return?.();
    try {
      iterator = (await open())[Symbol.asyncIterator]();
      signal.addEventListener("abort", leave, { once: true });
      let heard = performance.now();
      const listen = (ms) => {
        timer = setTimeout(() => {
          const left = heard + silence - performance.now();
          if (left <= 0) state("no data");
          listen(left > 0 ? left : silence);
        }, ms);
      };
      listen(silence);
      for (;;) {
        const { value, done } = await iterator.next();
        if (done || signal.aborted) break;
        heard = performance.now();
        pause = 250;
        if (value?.type !== "missed") state("live");
        item(value);
      }
    } catch (error) {
      if (!signal.aborted) fail(error);
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", leave);
    }
    if (signal.aborted) {
      leave();
      return;
    }
    state("reconnecting");
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

/** A stream while the component is shown and the tab is visible; its state. Opened anew when `keys` change. */
export function useStream(open, item, keys = [], options = {}) {
  const [state, setState] = useState("connecting");
  const latest = useRef(item);
  latest.current = item;
  useEffect(() => {
    let stop = new AbortController();
    const start = () => void follow(open, { ...options, item: (value) => latest.current(value), state: setState, signal: stop.signal });
    // A hidden tab costs nothing: what it would have shown is asked for again.
    const seen = () => {
      if (document.hidden === stop.signal.aborted) return;
      if (document.hidden) return stop.abort();
      stop = new AbortController();
      start();
    };
    if (document.hidden) stop.abort();
    else start();
    document.addEventListener("visibilitychange", seen);
    return () => {
      document.removeEventListener("visibilitychange", seen);
      stop.abort();
    };
  }, keys);
  return state;
}

/** What `load` answers, asked again every `every` milliseconds while it is shown, sooner after an error: `{value, error, again}`. */
export function useAnswer(load, keys = [], every = 0) {
  const [answer, setAnswer] = useState({});
  const again = useRef(() => {});
  useEffect(() => {
    let ended = false;
    let timer;
    const ask = async () => {
      clearTimeout(timer);
      let wait = every;
      try {
        const value = await load();
        if (!ended) setAnswer({ value });
      } catch (error) {
        wait = error.retryAfterMs ?? Math.min(every || SOON_MS, SOON_MS);
        if (!ended) setAnswer((before) => ({ ...before, error }));
      }
      if (!ended && wait) timer = setTimeout(ask, document.hidden ? 4 * wait : wait);
    };
    again.current = ask;
    void ask();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, keys);
  return { ...answer, again: again.current };
}

/** A value that changes often, shown at most `perSecond` times a second, all such values of a page at once: `[shown, set]`. */
export function useThrottled(first, perSecond = 4) {
  const [shown, setShown] = useState(first);
  const held = useRef({ timer: undefined, value: first });
  useEffect(() => () => clearTimeout(held.current.timer), []);
  const set = (value) => {
    held.current.value = typeof value === "function" ? value(held.current.value) : value;
    const every = 1000 / perSecond;
    held.current.timer ??= setTimeout(() => {
      held.current.timer = undefined;
      setShown(held.current.value);
    }, every - (performance.now() % every));
  };
  return [shown, set];
}
