"""The feed: fetches the pool document, builds the next snapshot in a thread, swaps it in whole.

Whatever goes wrong leaves the last good snapshot in place; its age, the source and the last error are
shown on /health and in the metrics.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import aiohttp

from millrace.aggregator.losses import Losses
from millrace.aggregator.pace import Pace
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Builder, Snapshot, identify
from millrace.dex.document import DocumentError, PoolDocument

log = logging.getLogger(__name__)

LOGGED_FAULTS = 10
LONGEST_TAG = 256  # characters of an entity tag that is worth sending back
FIRST_PAUSE = 0.25
"""Seconds between two fetches until the first one succeeds."""


class _Fetched(NamedTuple):
    """A document and its entity tag, empty without one."""

    data: bytes
    etag: str


class FeedError(Exception):
    """The upstream answered something unusable."""


class Feed:
    """Holds the present snapshot and keeps it fresh."""

    def __init__(self, settings: AggregatorSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self.snapshot: Snapshot | None = None
        self.last_error: str | None = None
        self._etag = ""
        """The upstream's tag of the present snapshot's document."""
        self.failures = 0
        self.refreshes = 0
        self.build_seconds = 0.0
        """CPU time that the last snapshot took; while quotes are asked it rests in between, see `pace`."""
        self._changed = asyncio.Condition()
        self._snapshots = Builder(settings.table())
        self.losses = Losses(settings.held_back_share, settings.held_back_fetches)
        self.pace = Pace()
        self._builder = ThreadPoolExecutor(1, thread_name_prefix="snapshot")

    def usable(self) -> Snapshot | None:
        """The snapshot that quotes may use: None before the first and past the age limit."""
        snapshot = self.snapshot
        if snapshot is None or snapshot.age(self._clock()) > self._settings.max_snapshot_age_seconds:
            return None
        return snapshot

    def age(self) -> float | None:
        """Seconds since the present snapshot's document was last seen upstream."""
        return None if self.snapshot is None else self.snapshot.age(self._clock())

    async def wait_change(self, known: str) -> Snapshot:
        """Wait until there is a snapshot with another id than `known`."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.snapshot is not None and self.snapshot.id != known)
        assert self.snapshot is not None
        return self.snapshot

    async def run(self) -> None:
        """Poll for ever; one fetch at a time, started every `poll_seconds`."""
        timeout = aiohttp.ClientTimeout(total=self._settings.fetch_timeout_seconds)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                started = self._clock()
                await self.refresh(session)
                # Before the first snapshot nothing can be answered: the upstream may just be starting too.
                pause = self._settings.poll_seconds if self.snapshot else FIRST_PAUSE
                await asyncio.sleep(max(0.05, min(pause, self._settings.poll_seconds) - (self._clock() - started)))

    async def refresh(self, session: aiohttp.ClientSession) -> None:
        """Fetch once; on any failure note it and keep what there is."""
        try:
            received = self._clock()
            fetched = await self._fetch(session)
            await self._swap(fetched, received)
        except TimeoutError:
            self._failed(f"the document was not there after {self._settings.fetch_timeout_seconds:g} s")
        except aiohttp.TooManyRedirects:
            self._failed("the upstream redirects in a circle")
        except (FeedError, DocumentError, aiohttp.ClientError, OSError) as error:
            self._failed(str(error) or type(error).__name__)
        except Exception as error:  # a defect of ours must not end the feed
            log.exception("snapshot could not be built")
            self._failed(f"internal error: {type(error).__name__}")

    async def _fetch(self, session: aiohttp.ClientSession) -> _Fetched | None:
        """The document; None if the upstream says that it is the one of the present snapshot."""
        limit = self._settings.max_document_bytes
        known = {"If-None-Match": self._etag} if self._etag else {}
        async with session.get(self._settings.pools_url, headers=known) as answer:
            if answer.status == 304 and known:
                return None
            if answer.status != 200:
                raise FeedError(f"upstream answered HTTP {answer.status}")
            parts, size = [], 0
            async for part in answer.content.iter_chunked(1 << 16):
                size += len(part)
                if size > limit:
                    raise FeedError(f"the document is larger than {limit} bytes")
                parts.append(part)
        tag = answer.headers.get("ETag", "")
        return _Fetched(b"".join(parts), tag if len(tag) <= LONGEST_TAG else "")

    async def _swap(self, fetched: _Fetched | None, received: float) -> None:
        current, snapshot = self.snapshot, None
        if fetched is not None:
            known = "" if current is None else current.id
            loop = asyncio.get_running_loop()
            snapshot = await loop.run_in_executor(self._builder, self._build, fetched.data, received, known)
            self._etag = fetched.etag  # only of a document that was taken: one held back has to be told again
        if snapshot is None:  # nothing new: it is fresh again
            assert current is not None
            current.received = received
            self.refreshes += 1
            self.last_error = None
            return
        await self.swap_in(snapshot)

    async def swap_in(self, snapshot: Snapshot) -> None:
        """Make a snapshot the present one, for all who wait for it."""
        first = self.snapshot is None
        async with self._changed:
            self.snapshot = snapshot
            self.refreshes += 1
            self.last_error = None
            self._changed.notify_all()
        if first:
            log.info("first snapshot", extra={"pools": len(snapshot.document.pools), "id": snapshot.id})

    def _build(self, data: bytes, received: float, known: str) -> Snapshot | None:
        """In the thread: the snapshot of a document, or None if that is the one known already."""
        started = time.thread_time()
        identifier = identify(data)
        if identifier == known:
            return None
        snapshot = self._snapshots.build(data, received, identifier, self.pace.pause, self._admit)
        self.build_seconds = time.thread_time() - started
        return snapshot

    def _admit(self, document: PoolDocument) -> None:
        """In the thread: hold back what lost too much, and name what is newly left out."""
        before = self.snapshot
        self.losses.check(document, None if before is None else before.document)
        known = set() if before is None else {item.name for item in before.document.quarantined}
        new = [item for item in document.quarantined if item.name not in known]
        if new:
            some = [f"{item.name}: {item.reason}" for item in new[:LOGGED_FAULTS]]
            log.warning("pools or tokens are left out", extra={"count": len(new), "some": some})

    def _failed(self, reason: str) -> None:
        self.failures += 1
        self.last_error = reason[:500]
        log.warning("refresh failed", extra={"reason": self.last_error, "source": self._settings.pools_url})

    def close(self) -> None:
        """Stop the building thread."""
        self._builder.shutdown(wait=False, cancel_futures=True)
