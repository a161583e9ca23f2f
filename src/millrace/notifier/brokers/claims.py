"""Several notifiers, one stream: who publishes what to a broker, agreed upon over Redis.

Every notifier of a group has a journal of its own with all events; sequences differ, message ids are the same. For
each broker one of them leads: it holds a lease and publishes. After the broker's confirm it leaves a mark for the
message id, never before. The others pass over what is marked, and wait at the first event that is not. When the
lease ends the first of them takes it and goes on there. So an event between the confirm and the mark, at the moment
of a death, comes twice, under one message id; none is lost.

Two things go beyond marks. An event that the leader does not have, because no node told it, is published by whoever
has it once the leader has been past it for a while. And marks of a block's saves and reverts say what was published
last: a notifier whose journal ends with the contrary, and goes on to, publishes its word again, under an id of its own
(`~<sequence>`).

While Redis is away the leader goes on, and after a lease's time so do the others: possibly twice, never not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from redis.exceptions import RedisError

from millrace.chain import outport
from millrace.notifier.brokers.item import Item, Verdict
from millrace.notifier.occasional import OccasionalLog
from millrace.notifier.rules.dedup import Block, State
from millrace.notifier.rules.entry import now_ms
from millrace.notifier.settings import NotifierSettings
from millrace.runtime.redis_client import quick_client
from millrace.runtime.tasks import end_tasks

log = logging.getLogger(__name__)
_log_away = OccasionalLog(log, logging.WARNING, "Redis cannot be asked; events may be published twice")

CALL_SECONDS = 2.0  # for one answer of Redis
_JUDGED_AT_ONCE = 256  # events
# Events while Redis is away: what is judged is sent, also when Redis is back and knows better. Where it takes long to
# find out that it is away they are as many as ever, which is 128 a second: four shards of 600 ms tell 27.
_JUDGED_ALONE = 16
_QUICK = 0.1  # seconds in which one that is not there refuses
_WAITING_MARKS = 65_536  # while Redis is away; older ones are forgotten, and their events may come twice
_RECENT_MARKS = 4_096  # told again to a Redis that has lost its memory
_MARKS_AT_ONCE = 512
_RETRY_SECONDS = 0.5
_ERRORS = (RedisError, OSError, TimeoutError)

_SAVED, _REVERTED = b"S", b"R"
_WORDS = {outport.SAVE_BLOCK: _SAVED, outport.REVERT_INDEXED_BLOCK: _REVERTED}

# Take or keep the lease if that is possible; tell whether we lead, how far the leader is, who first came upon an empty
# Redis, and the values of the other keys.
_TURN = """
redis.call('SET', KEYS[2], ARGV[1], 'NX')
local holder = redis.call('HGET', KEYS[1], 'holder')
if not holder or holder == ARGV[1] then
    redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'passed', ARGV[3])
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    holder = ARGV[1]
end
local values = {}
if #KEYS > 2 then values = redis.call('MGET', unpack(KEYS, 3)) end
return {holder == ARGV[1] and 1 or 0, redis.call('HGET', KEYS[1], 'passed'), redis.call('GET', KEYS[2]), values}
"""
_RELEASE = "if redis.call('HGET', KEYS[1], 'holder') == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class _Turn(NamedTuple):
    leading: bool
    passed_ms: int
    """The leader is done with all that it received before."""
    marked: list[bool]
    words: list[bytes | None]


class Claims:
    """One notifier's part in the agreement about one broker. All methods are for the event loop's thread."""

    def __init__(
        self,
        settings: NotifierSettings,
        sink: str,
        block: Callable[[int, bytes], Awaitable[Block | None]],
        count_failure: Callable[[], None],
    ) -> None:
        self._redis = quick_client(settings.redis_url, CALL_SECONDS)
        self._prefix = f"millrace:{{{settings.claim_group}:{sink}}}:"  # braces: all keys on one node of a cluster
        self._lease_ms = int(settings.claim_lease * 1000)
        self._patience_ms = int(settings.claim_patience * 1000)
        self._keep_ms = int(settings.claim_keep * 1000)
        self._token = secrets.token_hex(8)
        self._block = block
        self._caught_up: Callable[[], bool] = bool
        self._count_failure = count_failure
        self._passed_ms = 0
        self._heard = 0.0  # loop time of Redis' latest answer
        self._under_way: dict[int, Item] = {}
        self._marks: deque[Item] = deque(maxlen=_WAITING_MARKS)
        self._recent: deque[Item] = deque(maxlen=_RECENT_MARKS)
        self._born: bytes | None = None  # changes when Redis has lost its memory
        self._forgotten = False
        self._contradiction = 0, 0.0  # sequence, and when it was first seen
        self._news = asyncio.Event()
        self._back = asyncio.Event()
        """Redis has answered since a mark could not be written: what is confirmed and not marked may come twice."""
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self.leading = False
        """Whether this notifier published last, as far as is known."""
        self.trouble = ""
        """Why Redis cannot be asked; empty when it can."""

    def start(self, connected: Callable[[], bool], caught_up: Callable[[], bool]) -> None:
        """Begin; the lease is kept only while `connected` says that the broker can be published to.

        `caught_up` says whether every event of the journal is behind the cursor.
        """
        self._heard = asyncio.get_running_loop().time()
        self._caught_up = caught_up
        self._tasks = [asyncio.create_task(self._keep_lease(connected)), asyncio.create_task(self._mark_often())]

    async def stop(self) -> None:
        """Leave the marks that are due and give the lease away."""
        self._stopping = True  # the library may turn a cancellation into an error of its own
        await end_tasks(self._tasks)
        with contextlib.suppress(*_ERRORS):
            await self._mark()
            await self._release()
        with contextlib.suppress(*_ERRORS):
            await self._redis.aclose()

    async def judge(self, items: Sequence[Item]) -> tuple[Verdict, list[Item]]:
        """What to do with the first events, and with how many of them: all for which it is the same.

        `items` follow each other in the journal. To be published they may come back with another message id.
        """
        items = items[:_JUDGED_AT_ONCE]
        asked = asyncio.get_running_loop().time()
        try:
            turn = await self._turn(items)
        except _ERRORS as error:
            self._failed(error)
            is_quick = asyncio.get_running_loop().time() - asked < _QUICK
            return self._judge_alone(items[:_JUDGED_ALONE] if is_quick else items)
        verdict: Verdict | None = None
        alike: list[Item] = []
        for number, item in enumerate(items):
            this, judged = await self._judge_one(item, turn, turn.marked[number], turn.words[number])
            if verdict is not None and this != verdict:
                break
            verdict = this
            alike.append(judged)
        assert verdict is not None
        if verdict is Verdict.PUBLISH:
            self._send(alike)
        elif verdict is Verdict.PASS:
            self._recent.extend(map(_without_payload, alike))
        return verdict, alike

    async def _judge_one(self, item: Item, turn: _Turn, marked: bool, word: bytes | None) -> tuple[Verdict, Item]:
        if marked:
            if not await self._contradicts(item, word):
                return Verdict.PASS, item
            if not self._patient_enough(item.sequence):
                return Verdict.WAIT, item  # perhaps only our nodes are late
            item = item._replace(message_id=f"{item.claim}~{item.sequence}")
        orphan = item.received_ms + self._patience_ms < turn.passed_ms
        return Verdict.PUBLISH if turn.leading or orphan else Verdict.WAIT, item

    def _patient_enough(self, sequence: int) -> bool:
        """Whether it is long since this event was first found to contradict; there is one such at a time."""
        if self._contradiction[0] != sequence:
            self._contradiction = sequence, time.monotonic()
        return (time.monotonic() - self._contradiction[1]) * 1000 >= self._patience_ms

    async def _contradicts(self, item: Item, word: bytes | None) -> bool:
        """Whether our journal's last word on a block is this event, and the one published last is another."""
        if word is None or _word(item) in (None, word) or item.shard is None:
            return False
        _, _, block_hash, generation = item.claim.split(":")
        own = await self._block(item.shard, bytes.fromhex(block_hash))
        if own is None or str(own.generation) != generation:
            return False
        return (own.state is State.REVERTED) == (item.topic == outport.REVERT_INDEXED_BLOCK)

    def _judge_alone(self, items: Sequence[Item]) -> tuple[Verdict, list[Item]]:
        """Redis is away: nothing may be lost for that, so in the end everybody publishes."""
        lonely = (asyncio.get_running_loop().time() - self._heard) * 1000 > self._lease_ms
        if not self.leading and not lonely:
            return Verdict.WAIT, list(items)
        self._send(items)
        return Verdict.PUBLISH, list(items)

    def _send(self, items: Sequence[Item]) -> None:
        self._under_way.update((item.sequence, _without_payload(item)) for item in items)

    def confirmed(self, cursor: int) -> None:
        """The broker has all events up to this sequence: marks for those that we published are due."""
        for sequence in sorted(sequence for sequence in self._under_way if sequence <= cursor):
            item = self._under_way.pop(sequence)
            self._passed_ms = max(self._passed_ms, item.received_ms)
            self._marks.append(item)
        self._news.set()

    # Talking to Redis.

    async def _turn(self, items: Sequence[Item]) -> _Turn:
        marks = [self._mark_key(item.claim) for item in items]
        words = [self._word_key(item) or mark for item, mark in zip(items, marks, strict=True)]
        keys = [self._prefix + "lease", self._prefix + "born", *marks, *words]
        if self._caught_up():
            self._passed_ms = now_ms()
        async with asyncio.timeout(CALL_SECONDS):
            arguments: list[Any] = [*keys, self._token, self._lease_ms, self._passed_ms]
            leading, passed, born, values = await self._redis.eval(_TURN, len(keys), *arguments)
        self._answered()
        if born != self._born:
            self._forgotten = self._born is not None
            self._born = born
            self._news.set()
        if bool(leading) != self.leading:
            self.leading = bool(leading)
            log.info("leads" if leading else "stands by", extra={"broker": self._prefix})
        found, count = [value is not None for value in values], len(items)
        return _Turn(self.leading, int(passed or 0), found[:count], values[count:])

    async def _release(self) -> None:
        self.leading = False
        async with asyncio.timeout(CALL_SECONDS):
            await self._redis.eval(_RELEASE, 1, self._prefix + "lease", self._token)

    async def _keep_lease(self, connected: Callable[[], bool]) -> None:
        """Renew the lease in quiet times; give it away while the broker cannot be published to."""
        while not self._stopping:
            await asyncio.sleep(self._lease_ms / 3000)
            try:
                if connected():
                    await self._turn(())
                elif self.leading:
                    await self._release()
            except _ERRORS as error:
                self._failed(error)

    async def _mark_often(self) -> None:
        while not self._stopping:
            await self._news.wait()
            self._news.clear()
            try:
                await self._mark()
                await self._remind()
            except _ERRORS as error:
                self._failed(error)
                self._back.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_RETRY_SECONDS):
                        await self._back.wait()
                self._news.set()

    async def _mark(self) -> None:
        """Write the marks that are due, oldest first."""
        while self._marks:
            due = list(islice(self._marks, _MARKS_AT_ONCE))
            await self._write(due, anew=True)
            self._recent.extend(due)
            for item in due:
                if self._marks and self._marks[0] is item:  # unless the bound pushed it out meanwhile
                    self._marks.popleft()

    async def _remind(self) -> None:
        """Write the marks of late once more if Redis has lost them, newest first: what it has is never older."""
        if self._forgotten:
            recent = list(self._recent)[::-1]
            for start in range(0, len(recent), _MARKS_AT_ONCE):
                await self._write(recent[start : start + _MARKS_AT_ONCE], anew=False)
            self._forgotten = False

    async def _write(self, items: Sequence[Item], *, anew: bool) -> None:
        """Write marks, and the last words on blocks; without `anew` only those that are missing."""
        async with asyncio.timeout(CALL_SECONDS), self._redis.pipeline(transaction=False) as pipe:
            for item in items:
                pipe.set(self._mark_key(item.claim), 1, px=self._keep_ms, nx=not anew)
                key, word = self._word_key(item), _word(item)
                if key is not None and word is not None:
                    pipe.set(key, word, px=self._keep_ms, nx=not anew)
            await pipe.execute()
        self._answered()

    def _mark_key(self, claim: str) -> str:
        return f"{self._prefix}done:{claim}"

    def _word_key(self, item: Item) -> str | None:
        """Where the last word on the event's block is kept; contradicting contents of a block have no say in it."""
        _, _, generation = item.claim.rpartition(":")
        if _word(item) is None or not generation.isdigit():
            return None
        return f"{self._prefix}word:{item.claim.partition(':')[2].rpartition(':')[0]}"

    def _answered(self) -> None:
        self._heard = asyncio.get_running_loop().time()
        self._back.set()
        if self.trouble:
            log.info("Redis answers again", extra={"broker": self._prefix})
            self.trouble = ""

    def _failed(self, error: BaseException) -> None:
        self.trouble = f"Redis: {type(error).__name__}"
        self._count_failure()
        _log_away(why=str(error)[:200])


def _word(item: Item) -> bytes | None:
    """What an event says of its block; by the claim, because executions may go out under another topic's name."""
    return None if item.shard is None else _WORDS.get(item.claim.partition(":")[0])


def _without_payload(item: Item) -> Item:
    return item._replace(payload=b"")
