"""Gets transactions to the chain and keeps trying: gossip in batches; without peers or answers the chain API.

One batch per topic leaves at once after a pause, further ones every 250 ms or when 256 KiB are full, so that
three shards stay far below the rate at which nodes ban a peer. Sender shards never share a batch.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from millrace.chain.gossip import split_batches, wrap_transactions
from millrace.chain.network import NetworkProfile
from millrace.chain.transaction import Transaction
from millrace.relayer.ledger.followed import Followed
from millrace.relayer.ledger.inflight import Entry
from millrace.relayer.network.api_queue import ApiQueue
from millrace.relayer.network.chain_api import Taken
from millrace.relayer.network.publishing import Publish, Publishing
from millrace.runtime.tasks import end_tasks

log = logging.getLogger(__name__)

BATCH_SECONDS = 0.25
LINGER_SECONDS = 0.004
"""The first of a batch waits this long for others of the same moment."""
BYTES_PER_SECOND = 3_000_000
"""As fast as a peer may publish. Until a batch is through, those of other topics wait: the work of all is spread."""
RETRY_SECONDS = 1.0
"""First pause after nobody took a transaction; doubled up to the usual one."""


class _Queue:
    """Entries that wait for the next batch of their topic: as many as are in flight at most, each in one queue."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.filled = asyncio.Event()

    def put(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.filled.set()

    def take(self) -> list[Entry]:
        """All that wait, in order."""
        entries, self.entries = self.entries, []
        self.filled.clear()
        return entries


SubmitToApi = Callable[[Transaction], Awaitable[Taken]]


class Broadcaster:
    """Sends entries until `is_wanted` says no; `on_expired` is told of those whose lifetime is over."""

    def __init__(
        self,
        network: NetworkProfile,
        publish: Publish,
        submit: SubmitToApi | None,
        *,
        is_wanted: Callable[[Entry], bool],
        on_expired: Callable[[Entry], None],
        regossip: float,
        lifetime: float,
        followed: Followed | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._network = network
        self.gossip = Publishing(publish, self._peers_are_back, clock)
        self._submit = submit
        self._is_wanted = is_wanted
        self._on_expired = on_expired
        self._regossip = regossip
        self._lifetime = lifetime
        self._followed = Followed() if followed is None else followed
        self._clock = clock
        self._until: dict[bytes, float] = {}
        """When the lifetime of an entry is over, on the clock that nobody sets."""
        self._queues: dict[str, _Queue] = {}
        self._queue_of: dict[tuple[int, int], _Queue] = {}
        """The same by shard of sender and receiver."""
        self._workers: list[asyncio.Task[None]] = []
        self._due: list[tuple[float, int, tuple[Entry, ...]]] = []
        """When to send again what was sent together; in tuples, which the garbage collector leaves alone."""
        self._order = itertools.count()
        self._free_at = 0.0
        """When the last batch is through."""
        self._pauses: dict[bytes, float] = {}
        self._to_api = ApiQueue(self._hand_to_api, lambda entry: self._untaken([entry]))
        self.sent = 0
        self.sent_to_api = 0
        self.untaken = 0
        """Sends that neither a peer nor the chain API took; each is tried again."""

    def send(self, entry: Entry) -> None:
        """Begin to send an entry, or to send it anew: its lifetime is that of its last beginning."""
        age = max(0.0, time.time() - entry.created_ms / 1000)
        self._until[entry.client_hash] = self._clock() + self._lifetime - age
        self._put(entry)

    def _put(self, entry: Entry) -> None:
        """Into the next batch of its topic."""
        shards = entry.sender_shard, entry.receiver_shard
        queue = self._queue_of.get(shards) or self._open_queue(*shards)
        queue.put(entry)

    def _open_queue(self, sender_shard: int, receiver_shard: int) -> _Queue:
        """The queue of the topic of transactions between these shards, with its worker."""
        topic = self._network.transactions_topic(sender_shard, receiver_shard)
        queue = self._queues.get(topic)
        if queue is None:
            queue = self._queues[topic] = _Queue()
            self._workers.append(asyncio.create_task(self._work(topic, queue), name=f"broadcast-{topic}"))
        self._queue_of[sender_shard, receiver_shard] = queue
        return queue

    @property
    def queued(self) -> int:
        """Entries waiting for a batch, or for their turn with the chain API."""
        return sum(len(queue.entries) for queue in self._queues.values()) + len(self._to_api)

    async def run(self) -> None:
        """Send again what is due, for ever."""
        while True:
            await asyncio.sleep(0.25)
            self.gossip.look()
            self.send_due()

    def send_due(self) -> None:
        """Send again every entry whose pause is over; let go of those that are over."""
        now = self._clock()
        while self._due and self._due[0][0] <= now:
            due, _, entries = heapq.heappop(self._due)
            for entry in entries:
                if entry.due != due:
                    continue  # it was given up and sent anew: there is another plan
                entry.due = 0.0
                if not self._is_wanted(entry):
                    self._forget(entry)
                elif now > self._until.get(entry.client_hash, now):
                    self._forget(entry)
                    self._on_expired(entry)
                else:
                    self._put(entry)

    def _forget(self, entry: Entry) -> None:
        self._pauses.pop(entry.client_hash, None)
        self._until.pop(entry.client_hash, None)

    async def stop(self) -> None:
        """Stop sending; what was not sent is in the journal."""
        await end_tasks(self._workers)
        await self.gossip.stop()
        await self._to_api.stop()

    async def _work(self, topic: str, queue: _Queue) -> None:
        while True:
            await queue.filled.wait()
            await asyncio.sleep(LINGER_SECONDS)
            while (wait := self._free_at - self._clock()) > 0:
                await asyncio.sleep(wait)
            began = self._clock()
            wanted = []
            for entry in queue.take():
                if self._is_wanted(entry):
                    wanted.append(entry)
                else:
                    self._forget(entry)
            await self._send_all(topic, wanted)
            await asyncio.sleep(max(0.0, BATCH_SECONDS - (self._clock() - began)))

    async def _send_all(self, topic: str, entries: list[Entry]) -> None:
        position = 0
        for batch in split_batches(entry.proto for entry in entries):
            part = entries[position : position + len(batch)]
            position += len(batch)
            try:
                data = wrap_transactions(batch, int(time.time()))
                self._free_at = max(self._free_at, self._clock()) + len(data) / BYTES_PER_SECOND
                peers = await self.gossip.publish(topic, data)
            except Exception:  # a defect with one batch must not stop the others
                log.exception("a batch was not sent", extra={"topic": topic})
                self._again(part, taken=False)
                continue
            if peers:
                self.sent += len(part)
                self._followed.sent(part, "gossip")
                self._again(part, taken=True)
                self._peers_are_back()
            elif self._submit is not None:
                self._to_api.put(part)
            else:
                self._untaken(part)

    def _peers_are_back(self) -> None:
        """What waits for the chain API goes out by gossip."""
        for entry in self._to_api.take_back():
            self._put(entry)

    async def _hand_to_api(self, entry: Entry) -> bool:
        """No gossip peer is known, or gossip is silent; whether the sender's next may go to the chain API too."""
        if not self._is_wanted(entry):
            self._forget(entry)
            return True
        assert self._submit is not None
        taken = await self._submit(entry.tx)
        if taken == "later":
            self._untaken([entry])
            return False
        if taken == "taken":
            self.sent_to_api += 1
            self._followed.sent([entry], "api")
        self.untaken += taken != "taken"
        # What it will never take is not pressed on it: it may still go out by gossip when a peer is found.
        self._again([entry], taken=True)
        return True

    def _untaken(self, entries: list[Entry]) -> None:
        self.untaken += len(entries)
        self._again(entries, taken=False)

    def _again(self, entries: Sequence[Entry], *, taken: bool) -> None:
        """Plan the next send of each entry."""
        if taken:
            for entry in entries if self._pauses else ():
                self._pauses.pop(entry.client_hash, None)
            self._plan(self._regossip, entries)
            return
        after: dict[float, list[Entry]] = {}
        for entry in entries:
            pause = min(self._pauses.get(entry.client_hash, RETRY_SECONDS / 2) * 2, self._regossip)
            self._pauses[entry.client_hash] = pause
            after.setdefault(pause, []).append(entry)
        for pause, part in after.items():
            self._plan(pause, part)

    def _plan(self, pause: float, entries: Sequence[Entry]) -> None:
        due = self._clock() + pause
        for entry in entries:
            entry.due = due
        heapq.heappush(self._due, (due, next(self._order), tuple(entries)))
