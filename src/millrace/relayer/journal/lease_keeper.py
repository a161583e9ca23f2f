"""The running relayer's side of its leases: takes them before a key signs, renews them, and says when not to sign."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from millrace.chain import address
from millrace.relayer.journal.identity import Identity
from millrace.relayer.journal.leases import Held, LeaseError, LeaseHeld, LeaseStore
from millrace.relayer.journal.set_backs import SetBacks
from millrace.relayer.journal.writer import JournalError
from millrace.runtime.postgres import Refused, Unavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

RENEW_SECONDS = 1.0
"""How often it is remembered how far the journal has come; a lease that ends is renewed five times in its time."""
MARGIN = 1 / 3
"""So much of its time before a lease may end nothing is signed any more: what was asked before has its answer then."""
_WAIT_MORE = 0.2


def seconds_since_boot() -> float:
    """A clock that nobody sets and that goes on while the machine is suspended, as the server's does."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeaseKeeper:
    """`start` first, `take` before anything is signed, `close` when nothing is signed any more; `run` tells of the end.

    The store has a thread of its own: it may wait for a disk or a server.
    """

    def __init__(
        self,
        store: Callable[[], LeaseStore],
        identity: Identity,
        place: str,
        position: Callable[[], int],
        clock: Callable[[], float] = seconds_since_boot,
    ) -> None:
        self._make_store = store
        self._store: LeaseStore | None = None
        self._identity = identity
        self._place = place
        self._read_position = position
        self._position = 0
        self._clock = clock
        self._set_backs = SetBacks(clock)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="leases")
        self._keys: set[bytes] = set()
        self._valid_until = 0.0
        self._refused = False
        """Keys may have been refused since all that was journalled was signed."""
        self.failures = 0
        """Renewals that did not come through."""
        self.on_return: Callable[[], None] = lambda: None
        """Told when keys may sign again: what was journalled meanwhile is not signed yet."""
        self._work: asyncio.Task[None] | None = None

    @property
    def seconds(self) -> float:
        """How long a lease lasts after each renewal; infinite before the first is taken."""
        return math.inf if self._store is None else self._store.seconds

    @property
    def seconds_left(self) -> float:
        """For how long keys may still sign without a further renewal."""
        return self._valid_until - self._clock() if self._keys else 0.0

    def why_not(self, keys: Collection[bytes]) -> str | None:
        """Why these keys may not sign now; `None` if they may."""
        for key in keys:
            if key not in self._keys:
                return f"{address.encode(key)} has no lease"
        if keys and self._clock() >= self._valid_until:
            return "the leases of the keys cannot be renewed"
        return None

    async def take(self, keys: Collection[bytes]) -> None:
        """Hold these, too. Raises `LeaseError`, or `OSError` when the store refuses.

        A store that is away is waited for. So is what is left of a process that was killed, once: who renews it
        meanwhile is alive.
        """
        if not set(keys) - self._keys:
            return
        try:
            await self._take(keys)
        except LeaseHeld as held:
            if math.isinf(held.seconds):
                raise
            log.warning("waiting for a lease to end", extra={"reason": str(held)})
            await asyncio.sleep(held.seconds + _WAIT_MORE)
            await self._take(keys)

    async def _take(self, keys: Collection[bytes]) -> None:
        told = False
        while True:
            try:
                return await self._take_now(keys)
            except Unavailable as error:
                if not told:
                    log.warning("the leases' server is waited for", extra={"error": str(error)})
                told = True
            await asyncio.sleep(_WAIT_MORE)

    async def _take_now(self, keys: Collection[bytes]) -> None:
        remembered = await self._call(lambda store: store.remembered(keys))
        self._set_backs.follow(remembered.values())
        mine = self._mine()
        began = self._clock()
        until = self._until(began, await self._call(lambda store: store.take(keys, mine)))
        self._valid_until = min(self._valid_until, until) if self._keys else until
        self._keys.update(keys)

    async def give_back(self, keys: Collection[bytes]) -> None:
        """Hold these no more; nothing may be asked of them any more."""
        self._keys -= set(keys)
        mine = self._mine()
        try:
            await self._call(lambda store: store.give_back(keys, mine))
        except (LeaseError, OSError) as error:
            log.warning("leases are not given back: they end by themselves", extra={"error": str(error)})

    def start(self) -> None:
        """Renew from now on what is held: what follows at the start of a service may take longer than a lease."""
        self._work = asyncio.create_task(self._keep())

    async def run(self) -> None:
        """For ever. Raises `OSError` when another has taken a key: this relayer must end."""
        assert self._work is not None
        await asyncio.shield(self._work)

    async def _keep(self) -> None:
        failed = ""
        while True:
            await asyncio.sleep(self._period())
            if not self._keys:
                continue
            try:
                await self._renew()
                failed = ""
                # A renewal that took longer than the lease came through, and is over already.
                if self._refused and self.seconds_left > 0:
                    self._refused = False
                    self.on_return()
            except LeaseError as error:
                self._valid_until = 0.0
                raise OSError(f"{error}: this one signs no more") from error
            except OSError as error:
                self.failures += 1
                self._refused = True
                if str(error) != failed:
                    log.error("the leases of the keys are not renewed", extra={"error": str(error)})
                failed = str(error)

    async def _renew(self) -> None:
        mine = self._mine()
        began = self._clock()
        try:
            left = await self._call(lambda store: store.renew(mine))
        except OSError as error:
            if not isinstance(
                error, Unavailable | Refused
            ):  # a disk that refuses remembers nothing: no lease that ends
                self._valid_until = min(self._valid_until, began)
            raise
        self._refused = self._refused or self.seconds_left <= 0
        self._valid_until = self._until(began, left)

    async def close(self) -> None:
        """Give everything back."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        if self._keys:
            await self.give_back(list(self._keys))
        if self._store is not None:
            await self._call(lambda store: store.close())
        self._thread.shutdown()

    def _period(self) -> float:
        return min(RENEW_SECONDS, self.seconds / 5)

    def _until(self, began: float, left: float) -> float:
        """The end of what was asked for at `began`, which nobody can have granted earlier."""
        return began + left - self.seconds * MARGIN

    def _mine(self) -> Held:
        with contextlib.suppress(JournalError):  # what was read last was true, too
            self._position = self._read_position()
        return self._set_backs.noted(Held(self._identity.id, self._identity.epoch, self._position, self._place))

    async def _call(self, work: Callable[[LeaseStore], T]) -> T:
        def run() -> T:
            if self._store is None:
                self._store = self._make_store()
            return work(self._store)

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)
