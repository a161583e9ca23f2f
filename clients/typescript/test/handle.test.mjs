import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { TransactionHandle } from "@millrace/client";

/** Statuses that a test pushes, and a connection that notes what it is asked. */
function parts() {
  const asked = { lookups: 0, refreshed: [] };
  const statuses = {
    next: () => new Promise(() => {}),
    return: () => Promise.resolve({ done: true }),
    [Symbol.asyncIterator]() {
      return this;
    },
  };
  const live = { refresh: async (topic) => void asked.refreshed.push(topic) };
  return { asked, statuses, live };
}

/** Lets whatever is due run, with the clock put forward. */
async function pass(seconds) {
  for (let second = 0; second < seconds; second++) {
    mock.timers.tick(1000);
    for (let turn = 0; turn < 20; turn++) await Promise.resolve();
  }
}

test("while nothing is told it is asked every ten seconds, and subscribed to again before 60 s are over", async () => {
  mock.timers.enable({ apis: ["setTimeout", "Date"] });
  try {
    const { asked, statuses, live } = parts();
    let known;
    const lookup = async () => {
      asked.lookups++;
      return known;
    };
    const handle = new TransactionHandle({ clientHash: "ab" }, live, "tx-status/ab", statuses, lookup);
    const final = handle.final({ timeoutMs: 600_000 });
    await pass(50);
    assert.ok(asked.lookups >= 3 && asked.lookups <= 5, String(asked.lookups));
    assert.deepEqual(asked.refreshed, []);
    await pass(20);
    assert.deepEqual(asked.refreshed, ["tx-status/ab"]);
    known = { state: "superseded", reason: "nonce used", clientHash: "ab" };
    await pass(15);
    assert.equal((await final).state, "superseded");
  } finally {
    mock.timers.reset();
  }
});

test("a time without an end is OutcomeUnknown, which says whether it was taken", async () => {
  mock.timers.enable({ apis: ["setTimeout", "Date"] });
  try {
    const { statuses, live } = parts();
    const handle = new TransactionHandle({ clientHash: "ab" }, live, "tx-status/ab", statuses, async () => undefined);
    const final = handle.final({ timeoutMs: 30_000 });
    const refused = assert.rejects(final, /not known: ask again/);
    await pass(45);
    await refused;
  } finally {
    mock.timers.reset();
  }
});
