"""The feed: fetches the pool document, builds the next snapshot in a thread, swaps it in whole.

Whatever goes wrong leaves the last good snapshot in place; its age, the source and the last error are
shown on /health and in the metrics.

A document may come by way of another process that has fetched and judged it: an aggregator on another machine, whose
operators' port is then the source, or this service's main process, which hands it to its workers (`offer`). So all of
them have the same document, and one process alone decides whether a market that has shrunk is believed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, Protocol, TypeVar

import aiohttp

from millrace.aggregator.losses import Losses
from millrace.aggregator.pace import Pace
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Market, identify
from millrace.dex.document import DocumentError, PoolDocument
from millrace.runtime.logs import Seldom
from millrace.runtime.unpack import GZIP, UnpackError, unpack

log = logging.getLogger(__name__)

LOGGED_FAULTS = 10
LOG_SECONDS = 60.0
"""The same reason of a failed refresh is not logged again for so long."""
LONGEST_TAG = 256  # characters of an entity tag that is worth sending back
FIRST_PAUSE = 0.25
"""Seconds between two fetches until the first one succeeds."""


AGE, ID, BLOCK = "X-Snapshot-Age", "X-Snapshot-Id", "X-Snapshot-Block"
"""Headers of answers: how many seconds ago what they are made of was last seen upstream, what that is, and of a whole
document its block's nonce."""
WAITS = "Preference-Applied"
"""Header of a source that holds a request for what it has already until there is news (RFC 7240)."""
MOST_AGE = 1e9
"""Seconds; more is no age."""
MOST_WAIT = 0.75
"""Part of `fetch_timeout_seconds` that such a source is asked to wait for: the rest is for the answer."""

M = TypeVar("M", bound=Market)
Made = TypeVar("Made", bound=Market, covariant=True)


class Builds(Protocol[Made]):
    """Makes snapshots of documents, in one thread."""

    def build(
        self, data: bytes, received: float, pause: Callable[[], None], admit: Callable[[PoolDocument], None]
    ) -> Made:
        """Raises `DocumentError`; so may `admit`, for a document that it refuses."""


class _Fetched(NamedTuple):
    """What a source has answered."""

    data: bytes | None
    """The document; None: the one that is known."""
    packed: bool
    """Whether gzip has packed it."""
    etag: str
    """Its entity tag; empty without one."""
    seen: float
    """When the source itself saw it, as far as it says so; else when it was asked."""
    judged: bool
    """Whether an aggregator has taken it: then it is no question any more whether too much was lost."""
    waited: bool
    """Whether the source answers when there is news: then it is asked again at once."""


class FeedError(Exception):
    """The upstream answered something unusable."""


class Feed(Generic[M]):
    """Holds the present snapshot and keeps it fresh."""

    def __init__(
        self, settings: AggregatorSettings, snapshots: Builds[M], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._clock = clock
        self.snapshot: M | None = None
        self.last_error: str | None = None
        self._etag = ""
        """The upstream's tag of the present snapshot's document."""
        self._fetched = 0.0
        """When a whole document was taken last, the same again or another."""
        self.failures = 0
        self._reasons = Seldom(LOG_SECONDS, LOGGED_FAULTS)
        self.refreshes = 0
        self.build_seconds = 0.0
        """CPU time that the last snapshot took; while quotes are asked it rests in between, see `pace`."""
        self._changed = asyncio.Condition()
        self._snapshots = snapshots
        self.losses = Losses(settings.held_back_share, settings.held_back_fetches)
        self.pace = Pace()
        self._builder = ThreadPoolExecutor(1, thread_name_prefix="snapshot")

    def usable(self) -> M | None:
        """The snapshot that quotes may use: None before the first and past the age limit."""
        return self.snapshot if self.usable_for() > 0.0 else None

    def usable_for(self) -> float:
        """Seconds until the present snapshot is too old, if it is not seen again; 0 or less where none is usable."""
        age = self.age()
        return 0.0 if age is None else self._settings.max_snapshot_age_seconds - age

    def age(self) -> float | None:
        """Seconds since the present snapshot's document was last seen upstream."""
        return None if self.snapshot is None else self.snapshot.age(self._clock())

    async def wait_usable(self, known: str) -> M:
        """Wait until there is a snapshot that quotes may use, with another id than `known`."""
        async with self._changed:
            await self._changed.wait_for(lambda: (found := self.usable()) is not None and found.id != known)
        assert self.snapshot is not None
        return self.snapshot

    async def wait_news(self) -> None:
        """Wait until the upstream has been seen once more, changed or not."""
        refreshes = self.refreshes
        async with self._changed:
            await self._changed.wait_for(lambda: self.refreshes != refreshes)

    async def run(self) -> None:
        """Poll for ever; one fetch at a time, started every `poll_seconds`, or at once where the source waits."""
        timeout = aiohttp.ClientTimeout(total=self._settings.fetch_timeout_seconds)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                started = self._clock()
                waited = await self.refresh(session)
                # Before the first snapshot nothing can be answered: the upstream may just be starting too.
                pause = 0.0 if waited else self._settings.poll_seconds if self.snapshot else FIRST_PAUSE
                await asyncio.sleep(max(0.05, min(pause, self._settings.poll_seconds) - (self._clock() - started)))

    async def refresh(self, session: aiohttp.ClientSession) -> bool:
        """Fetch once; on any failure note it and keep what there is. Returns whether the source had news, and waits
        until there is more."""
        try:
            fetched = await self._fetch(session)
            await self._take(fetched)
            return fetched.waited
        except TimeoutError:
            self.failed(f"the document was not there after {self._settings.fetch_timeout_seconds:g} s")
        except aiohttp.TooManyRedirects:
            self.failed("the upstream redirects in a circle")
        except (FeedError, DocumentError, UnpackError, aiohttp.ClientError, OSError) as error:
            self.failed(str(error) or type(error).__name__)
        except Exception as error:  # a defect of ours must not end the feed
            self.failed(f"internal error: {type(error).__name__}", defect=error)
        return False

    async def _fetch(self, session: aiohttp.ClientSession) -> _Fetched:
        """The document, or that it is the one of the present snapshot."""
        limit = self._settings.max_document_bytes
        wait = min(self._settings.poll_seconds, MOST_WAIT * self._settings.fetch_timeout_seconds)
        asked = self._clock()
        headers = {"Accept-Encoding": GZIP}
        if self._etag:
            headers["Prefer"] = f"wait={wait:g}"
        # Now and then in whole, whatever its tag says: no market is quoted for longer on the word of a tag alone.
        if self._etag and asked - self._fetched <= self._settings.max_snapshot_age_seconds:
            headers["If-None-Match"] = self._etag
        # It would be unpacked on the event loop, and many times the limit of a bomb before anybody looks.
        async with session.get(self._settings.pools_url, headers=headers, auto_decompress=False) as answer:
            judged, waited = AGE in answer.headers, WAITS in answer.headers
            # Who waits tells the age at the time of the answer.
            seen = (self._clock() if waited else asked) - _age_of(answer)
            if answer.status == 304 and "If-None-Match" in headers:
                if _bare(answer.headers.get("ETag", self._etag)) != _bare(self._etag):
                    self._etag = ""  # so that the next fetch is of the whole
                    raise FeedError("the upstream says that nothing is new, but of another document than ours")
                return _Fetched(None, False, self._etag, seen, judged, waited)
            if answer.status != 200:
                raise FeedError(f"upstream answered HTTP {answer.status}")
            self._check_block(answer.headers.get(BLOCK, ""))
            packing = answer.headers.get("Content-Encoding", "identity").lower()
            if packing not in (GZIP, "identity"):
                raise FeedError(f"the document is packed with {packing[:40]!r}, which was not asked for")
            parts, size = [], 0
            async for part in answer.content.iter_chunked(1 << 16):
                size += len(part)
                if size > limit:
                    raise FeedError(f"the document is larger than {limit} bytes")
                parts.append(part)
        tag = answer.headers.get("ETag", "")
        etag = tag if len(tag) <= LONGEST_TAG else ""
        return _Fetched(b"".join(parts), packing == GZIP, etag, seen, judged, waited)

    def _check_block(self, nonce: str) -> None:
        """Raise `FeedError` for what another aggregator, less far than the one asked before, has of an older block.

        What is in use is kept as long as it may be used: then a chain may have begun anew.
        """
        present = self.usable()
        if present is not None and nonce.isdecimal() and int(nonce[:20]) < present.document.block.nonce:
            raise FeedError(f"the source has block {nonce[:20]}, and had block {present.document.block.nonce} before")

    async def _take(self, fetched: _Fetched) -> None:
        data = fetched.data
        if data is not None and fetched.packed:
            loop, most = asyncio.get_running_loop(), self._settings.max_document_bytes
            data = await loop.run_in_executor(self._builder, unpack, data, most)
        new = data is not None and await self.offer(data, fetched.seen, judged=fetched.judged)
        self._etag = fetched.etag  # only of a document that was taken: one held back has to be told again
        if data is not None:
            self._fetched = self._clock()
        if not new:
            await self.confirm(fetched.seen)

    async def offer(self, data: bytes, received: float, *, judged: bool) -> bool:
        """Take a document in, if it is another than the present one; returns whether it is.

        Raises `DocumentError`, also for one that has lost too much, unless that is `judged` already.
        """
        known = "" if self.snapshot is None else self.snapshot.id
        loop = asyncio.get_running_loop()
        snapshot = await loop.run_in_executor(self._builder, self._build, data, received, known, judged)
        if snapshot is not None:
            await self.swap_in(snapshot)
        return snapshot is not None

    async def confirm(self, received: float) -> None:
        """The present snapshot has been seen again upstream: it is fresh again, and nothing is lost."""
        assert self.snapshot is not None
        self.losses.forget()  # nothing is built meanwhile
        async with self._changed:
            self.snapshot.received = max(received, self.snapshot.received)
            self.refreshes += 1
            self.last_error = None
            self._changed.notify_all()

    async def swap_in(self, snapshot: M) -> None:
        """Make a snapshot the present one, for all who wait for it."""
        first = self.snapshot is None
        async with self._changed:
            self.snapshot = snapshot
            self.refreshes += 1
            self.last_error = None
            self._changed.notify_all()
        if first:
            log.info("first snapshot", extra={"pools": len(snapshot.document.pools), "id": snapshot.id})

    def _build(self, data: bytes, received: float, known: str, judged: bool) -> M | None:
        """In the thread: the snapshot of a document, or None if that is the one known already."""
        started = time.thread_time()
        if identify(data) == known:
            return None
        snapshot = self._snapshots.build(data, received, self.pace.pause, _take_all if judged else self._admit)
        self.build_seconds = time.thread_time() - started
        if not judged:
            self._name_left_out(snapshot.document)
        return snapshot

    def _admit(self, document: PoolDocument) -> None:
        """In the thread: hold back what lost too much."""
        self.losses.check(document, None if self.snapshot is None else self.snapshot.document)

    def _name_left_out(self, document: PoolDocument) -> None:
        """Each pool or token once, while it is left out; those that no curve can be made of, too."""
        before = self.snapshot
        known = set() if before is None else {item.name for item in before.document.quarantined}
        new = [item for item in document.quarantined if item.name not in known]
        if new:
            some = [f"{item.name}: {item.reason}" for item in new[:LOGGED_FAULTS]]
            log.warning("pools or tokens are left out", extra={"count": len(new), "some": some})

    def failed(self, reason: str, defect: Exception | None = None) -> None:
        """Note that a refresh has failed; the log hears of each reason now and then, however often that is."""
        self.failures += 1
        self.last_error = reason[:500]
        if self._reasons.is_due(self.last_error, self._clock()):
            context = {"reason": self.last_error, "source": self._settings.pools_url, "failures": self.failures}
            log.log(logging.ERROR if defect else logging.WARNING, "refresh failed", exc_info=defect, extra=context)

    def close(self) -> None:
        """Stop the building thread."""
        self._builder.shutdown(wait=False, cancel_futures=True)


def _take_all(document: PoolDocument) -> None:
    """Of a document that was judged elsewhere nothing is refused."""


def _bare(tag: str) -> str:
    """An entity tag without its mark of weakness: who packs a body on its way puts that there."""
    return tag.removeprefix("W/")


def _age_of(answer: aiohttp.ClientResponse) -> float:
    """Seconds since a source saw what it answers with; 0 where it does not say."""
    try:
        age = float(answer.headers.get(AGE) or answer.headers.get("Age") or "0")
    except ValueError:
        raise FeedError("the source tells the age of its document, and it is no number") from None
    if not 0.0 <= age < MOST_AGE:
        raise FeedError(f"the source says that its document is {age:g} s old")
    return age
