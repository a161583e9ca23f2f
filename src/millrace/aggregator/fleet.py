"""Several machines, one limit: what each has admitted of a client, told to the others over Redis.

Nobody waits for Redis. Every machine admits by its own table, and twenty times a second it tells what it has admitted
and spent of those clients who have asked, and hears what others have. What others have admitted is put into the
client's window as if it had been here, at the earliest moment that it can have been: so nobody below the limit is
refused, unless an exchange is later than a tenth of a second. Who asks many machines at once gets from each of them
what the limit allows until they have heard of each other, some tenth of a second, and pays back what that was too much.

While Redis cannot be asked every machine goes on by itself; what it has not told is not told later.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from typing import Any

from redis.exceptions import RedisError

from millrace.aggregator.clients import Clients, Slot
from millrace.aggregator.limiter import RateLimiter
from millrace.aggregator.metrics import APART, SYNCS_FAILED, Report
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.shares import MOST_SAVED, left_of
from millrace.runtime.redis_client import quick_client

log = logging.getLogger(__name__)

PERIOD_MS = 50
"""What is told is counted by periods of Redis' clock, and heard when they are over; exchanges are as far apart."""
LATE_MS = 2 * PERIOD_MS
"""So much earlier than its period began a request may have been: it waited for an exchange, and that for an answer."""
PERIODS = 20
"""Of a second: older ones are forgotten."""
CALL_SECONDS = 1.0
"""For one answer of Redis."""
PAUSE_SECONDS = 0.5
"""After one that did not come."""
AT_ONCE = 256
"""Clients of one exchange: a millisecond of Redis."""
MOST = 4096
"""Clients told of in one turn; the others are in the next ones."""

# ARGV: our name, the period's ms, how many periods, the share, most saved; then for each key what we have admitted and
# spent, and since which period we have not heard. Answers Redis' time in ms, the present period, and for each key what
# is left of its share, and pairs of periods and what others have admitted in them. Redis' clock may be set back, or be
# another machine's after a failover: that takes nothing off a share.
_EXCHANGE = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local me, length, periods = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local share, most = tonumber(ARGV[4]), tonumber(ARGV[5])
local present = math.floor(now / length)
local answer = {now, present}
for i, key in ipairs(KEYS) do
    local asked, spent, since = tonumber(ARGV[3 + 3 * i]), tonumber(ARGV[4 + 3 * i]), tonumber(ARGV[5 + 3 * i])
    if asked > 0 then redis.call('HINCRBY', key, present .. ':' .. me, asked) end
    local left, at, others = most, now, {}
    local fields = redis.call('HGETALL', key)
    for j = 1, #fields, 2 do
        local name, value = fields[j], tonumber(fields[j + 1])
        if name == 'left' then left = value
        elseif name == 'at' then at = value
        else
            local colon = string.find(name, ':', 1, true)
            local period = tonumber(string.sub(name, 1, colon - 1))
            if period < present - periods then redis.call('HDEL', key, name)
            elseif period > since and period < present and string.sub(name, colon + 1) ~= me then
                others[#others + 1] = period
                others[#others + 1] = value
            end
        end
    end
    left = math.min(most, left + math.max(0, now - at) / 1000 * share) - spent
    if spent > 0 then redis.call('HSET', key, 'left', string.format('%.9f', left), 'at', now) end
    redis.call('PEXPIRE', key, math.max((periods + 2) * length, math.ceil((most - left) / share * 1000)))
    answer[#answer + 1] = {string.format('%.9f', left), others}
end
return answer
"""


class Fleet:
    """One machine's part. It works on the table that the machine's workers admit by."""

    def __init__(self, settings: AggregatorSettings, clients: Clients) -> None:
        self._redis = quick_client(settings.redis_url, CALL_SECONDS)
        self._script = self._redis.register_script(_EXCHANGE)
        self._prefix = f"millrace:{{{settings.limit_group}:limits}}:"  # braces: all keys on one node of a cluster
        self._share = settings.client_search_seconds
        self._clients = clients
        self._limiter = RateLimiter(settings.requests_per_second, clients)
        self._name = secrets.token_hex(4)
        self.failures = 0
        """Exchanges that failed."""
        self.apart = False
        """Whether Redis could not be asked last time."""

    async def run(self) -> None:
        """Exchange for ever."""
        try:
            while True:
                begun = time.monotonic()
                try:
                    await self.exchange()
                    pause = PERIOD_MS / 1000 - (time.monotonic() - begun)
                except (RedisError, OSError, TimeoutError) as error:
                    self._failed(error)
                    await asyncio.sleep(PAUSE_SECONDS)
                    for name in self._clients.untold(MOST):
                        self._take(name)  # told now, it would count as of now
                    pause = 0.0
                await asyncio.sleep(max(0.0, pause))
        finally:
            await self.close()

    async def close(self) -> None:
        """Leave Redis."""
        await self._redis.aclose()

    async def exchange(self) -> None:
        """Tell what has been admitted since the last time, and hear of the same clients elsewhere."""
        names = self._clients.untold(MOST)
        if not names:
            if self.apart:
                async with asyncio.timeout(CALL_SECONDS):
                    await self._redis.ping()
                self._answered()
            return
        for start in range(0, len(names), AT_ONCE):
            await self._tell(names[start : start + AT_ONCE])
        self._answered()

    async def _tell(self, names: Sequence[str]) -> None:
        told = [self._take(name) for name in names]
        arguments: list[Any] = [self._name, PERIOD_MS, PERIODS, self._share, MOST_SAVED]
        for slot in told:
            arguments += (slot.asked, f"{slot.spent:.9f}", slot.heard)
        async with asyncio.timeout(CALL_SECONDS):
            answer = await self._script(keys=[self._prefix + name for name in names], args=arguments)
        now, redis_now, present = time.monotonic(), int(answer[0]), int(answer[1])
        for name, (left, others) in zip(names, answer[2:], strict=True):
            moments = []
            for period, count in zip(others[::2], others[1::2], strict=True):
                age = (redis_now - int(period) * PERIOD_MS + LATE_MS) / 1000
                moments += [now - age] * min(int(count), self._clients.marks)
            self._limiter.hear(name, moments, present - 1)
            self._adopt(name, float(left), now)

    def _take(self, name: str) -> Slot:
        """What is to be told of a client; it then counts as told."""
        at = self._clients.enter(name)
        try:
            slot = Slot._make(self._clients.read(at))
            self._clients.write(at, slot._replace(asked=0, spent=0.0))
            return slot
        finally:
            self._clients.leave()

    def _adopt(self, name: str, left: float, now: float) -> None:
        """A client has so much of his share left on all machines, but for what he has spent here since."""
        at = self._clients.enter(name)
        try:
            slot = Slot._make(self._clients.read(at))
            left = min(left - slot.spent, left_of(slot, self._share, now))
            self._clients.write(at, slot._replace(left=left, left_at=now))
        finally:
            self._clients.leave()

    def _answered(self) -> None:
        if self.apart:
            log.info("Redis answers again: clients are counted together")
            self.apart = False

    def _failed(self, error: BaseException) -> None:
        self.failures += 1
        if not self.apart:
            log.warning(
                "Redis cannot be asked: each machine counts clients for itself",
                extra={"why": f"{type(error).__name__}: {error}"[:200]},
            )
        self.apart = True

    def report(self) -> Report:
        """For the metrics."""
        return Report({APART.name: float(self.apart), SYNCS_FAILED.name: float(self.failures)})
