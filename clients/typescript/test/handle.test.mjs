import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { Handle } from "@millrace/client";

/** Ears that note what they are asked; nothing is ever told to them. */
function ears(lookup = async () => undefined) {
  const asked = { lookups: 0, refreshed: 0, listened: 0, left: 0 };
  const statuses = () => {
    let end;
    const ended = new Promise((resolve) => (end = resolve));
    return {
      next: () => ended,
      return: async () => {
        asked.left++;
        end({ done: true });
      },
      [Symbol.asyncIterator]() {
        return this;
      },
    };
  };
  const made = {
    listen: async () => (asked.listened++, statuses()),
    refresh: async () => void asked.refreshed++,
    lookup: async (hash) => (asked.lookups++, lookup(hash)),
  };
  return { asked, handle: new Handle({ clientHash: "ab" }, statuses(), made) };
}

/** Lets whatever is due run, with the clock put forward. */
async function pass(seconds) {
  for (let second = 0; second < seconds; second++) {
    mock.timers.tick(1000);
    for (let turn = 0; turn < 20; turn++) await Promise.resolve();
  }
}

test("while nothing is told it is asked every five seconds, and subscribed to again before 60 s are over", async () => {
  mock.timers.enable({ apis: ["setTimeout", "setInterval", "Date"] });
  mock.method(performance, "now", () => Date.now());
  try {
    let known;
    const { asked, handle } = ears(async () => known);
    const final = handle.final({ timeoutMs: 600_000 });
    await pass(50);
    assert.ok(asked.lookups >= 8 && asked.lookups <= 10, String(asked.lookups));
    assert.equal(asked.refreshed, 0);
    await pass(20);
    assert.equal(asked.refreshed, 1);
    known = { state: "superseded", reason: "nonce used", clientHash: "ab" };
    await pass(15);
    assert.equal((await final).state, "superseded");
  } finally {
    mock.timers.reset();
    mock.restoreAll();
  }
});

test("a time without an end is OutcomeUnknown, which says whether it was taken", async () => {
  mock.timers.enable({ apis: ["setTimeout", "setInterval", "Date"] });
  mock.method(performance, "now", () => Date.now());
  try {
    const { handle } = ears();
    const final = handle.final({ timeoutMs: 30_000 });
    const refused = assert.rejects(final, /acceptance not known: no end was told/);
    await pass(45);
    await refused;
  } finally {
    mock.timers.reset();
    mock.restoreAll();
  }
});

test("a handle nobody awaits leaves its subscription, and listens again when somebody does", async () => {
  mock.timers.enable({ apis: ["setTimeout", "setInterval", "Date"] });
  mock.method(performance, "now", () => Date.now());
  try {
    let known;
    const { asked, handle } = ears(async () => known);
    await pass(60);
    assert.deepEqual([asked.left, asked.lookups, asked.listened], [1, 0, 0]);
    const final = handle.final();
    await pass(5);
    assert.deepEqual([asked.lookups, asked.listened], [1, 1]);
    known = { state: "success", clientHash: "ab" };
    await pass(15);
    assert.equal((await final).state, "success");
  } finally {
    mock.timers.reset();
    mock.restoreAll();
  }
});
