"""One relayer that signs, as an edge sees it: its connection, and what it was sent and has not answered."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import random
from collections.abc import Callable, Sequence
from typing import Protocol
from urllib.parse import urlsplit

from millrace.relayer.forwarding import wire
from millrace.relayer.forwarding.parts import Routed
from millrace.relayer.forwarding.wire import Hello, Outbox, WireError
from millrace.relayer.protocol.reasons import Reason
from millrace.runtime import websocket

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds between attempts to connect."""
PING_SECONDS = 3.0
"""A relayer that says nothing for so long is asked, and given up when it stays silent as long again."""
MAX_BUFFERED = 16 * 1024 * 1024
"""Bytes that may wait to be read by a relayer: four of the largest messages."""
LOOK_SECONDS = 5.0
"""A relayer that stands by may take so long to say what it knows of a transaction."""
MAX_KEPT = 128 * 1024 * 1024
"""Bytes of messages that are kept until a relayer has answered them; 20,000 transactions are some 12 MB."""


class Owner(Protocol):
    """Whose submission it is."""

    channel: int
    client: str
    authorization: str
    seen: int
    """See `Gathering`."""

    def answered(self, pending: Pending, answer: bytes | Reason) -> None: ...


class Pending:
    """A submission on its way: kept until it is answered, and sent again, the same bytes, when a connection is lost."""

    __slots__ = ("body", "items", "marked", "number", "owner", "positions", "sent", "since", "size", "until")

    def __init__(
        self,
        number: int,
        owner: Owner,
        size: int,
        marked: int,
        body: bytes,
        items: Sequence[Routed] = (),
        positions: Sequence[int] = (),
    ) -> None:
        self.number, self.owner, self.marked, self.body = number, owner, marked, body
        self.size = size
        """How many transactions it has, …"""
        self.items = items
        """… and whom they are for, where there is a choice."""
        self.positions = positions
        """Where they stand in the whole, if this is a part."""
        self.sent = False
        """Whether any relayer may have it."""
        self.since: float | None = None
        """When it began to wait for a connection."""
        self.until = math.inf
        """When its answer is waited for no more, whatever the reason."""


class Events(Protocol):
    """Who hears of what a relayer says."""

    def heard(self, upstream: Upstream, record: bytes) -> None:
        """A record came that is neither greeting nor reply. Raises `WireError`."""

    def lost(self, upstream: Upstream) -> None:
        """The connection has ended, with what is in `waiting` unanswered."""

    def found(self, upstream: Upstream) -> None:
        """The connection stands, and the relayer has said who it is."""


class _Link(websocket.Session):
    """One connection."""

    max_message_size = 64 * 1024 * 1024

    def __init__(self, upstream: Upstream) -> None:
        super().__init__()
        self._upstream = upstream
        self.outbox = Outbox(self.send_binary)
        self.is_greeted = False
        """Whether the relayer has said who it is."""
        self.channels: set[int] = set()
        """Those the relayer has heard of on this connection."""
        self.odd = ""
        """What it said that nobody understands."""

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        if kind == "text":  # it says to everybody that it ends; replies still come
            self._upstream.is_leaving = True
            return
        try:
            for record in wire.records(data):
                self._upstream.take(self, record)
        except WireError as error:
            self.odd = str(error)
            self.close(websocket.UNSUPPORTED_DATA, "not understood")

    def on_close(self) -> None:
        self._upstream.closed(self)


class Upstream:
    """Keeps one connection to a relayer, and what waits for it."""

    def __init__(self, url: str, events: Events, clock: Callable[[], float], chain_id: str = "") -> None:
        """`chain_id`: a relayer of another one is not taken."""
        self.url = url.rstrip("/")
        self.said: Hello | None = None
        """Who it said it was, also while it is away."""
        self.addresses: frozenset[str] = frozenset()
        """Whom it pays with."""
        self.is_leaving = False
        """Whether it has said that it is about to end."""
        self.waiting: dict[int, Pending] = {}
        """What it is to answer, by number, in the order of arrival."""
        self.transactions = 0
        """Of them, …"""
        self.bytes = 0
        """… and what they take."""
        self.losses = 0
        """Connections lost since the start."""
        self._events, self._clock, self._chain_id = events, clock, chain_id
        self._numbers = itertools.count(1)
        self._link: _Link | None = None
        self._idle: _Link | None = None
        """The connection of one that stands by: nothing is sent there but questions."""
        self._looks: dict[int, asyncio.Future[tuple[int, bytes] | None]] = {}
        self._heard = ""

    @property
    def is_up(self) -> bool:
        """Whether submissions reach it."""
        return self._link is not None

    @property
    def stands_by(self) -> bool:
        """Whether it waits for a seat, and takes nothing until it has one."""
        return self._idle is not None

    @property
    def accepts(self) -> bool:
        """Whether new submissions may go to it."""
        return self._link is not None and not self.is_leaving

    @property
    def is_ready(self) -> bool:
        """Whether it would sign them, as far as it has said."""
        return self.accepts and self.said is not None and self.said.ready

    @property
    def is_full(self) -> bool:
        """Whether it reads, or answers, more slowly than it is sent to."""
        return self.bytes > MAX_KEPT or (self._link is not None and self._link.buffered > MAX_BUFFERED)

    @property
    def http_base(self) -> str | None:
        """Where its REST interface is, once it has said so."""
        if self.said is None or not self.said.http_port:
            return None
        parts = urlsplit(self.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{'https' if parts.scheme == 'wss' else 'http'}://{host}:{self.said.http_port}"

    async def run(self) -> None:
        """Connect, and again when the connection ends."""
        pause, why = FIRST_PAUSE, ""
        while True:
            link, before = _Link(self), why
            try:
                headers = {wire.HEARD: self._heard} if self._heard else None
                await websocket.connect(self.url + wire.PATH, link, headers=headers, ping_interval=PING_SECONDS)
                await link.wait_closed()
                why = _why_ended(link)
            except websocket.CONNECT_ERRORS as error:
                why = _why_ended(link) or (str(error) or type(error).__name__)[:200]
            except asyncio.CancelledError:
                link.abort()
                raise
            if why and why != before:  # it is tried twenty times a second at first
                text = "a relayer is not understood" if link.odd else "a relayer cannot be reached"
                log.log(logging.ERROR if link.odd else logging.WARNING, text, extra={"url": self.url, "error": why})
            pause = FIRST_PAUSE if link.channels else min(2 * pause, LONGEST_PAUSE)
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))

    def send(self, pending: Pending) -> None:
        """Have it answered by this relayer, when there is a connection; it leaves with `set_out` or `depart`."""
        if pending.number not in self.waiting:
            self.waiting[pending.number] = pending
            self.transactions += pending.size
            self.bytes += len(pending.body)
        link = self._link
        if link is None:
            pending.since = self._clock() if pending.since is None else pending.since
            return
        pending.since = None
        pending.sent = True
        owner = pending.owner
        link.channels.add(owner.channel)
        link.outbox.add(
            wire.submit(owner.channel, pending.number, pending.marked, owner.client, owner.authorization, pending.body)
        )

    def set_out(self) -> None:
        """What was sent leaves soon."""
        if self._link is not None:
            self._link.outbox.set_out()

    def depart(self) -> None:
        """What was sent has waited for company, and leaves now."""
        if self._link is not None:
            self._link.outbox.add(wire.DEPART)
            self._link.outbox.flush()

    def forget(self, number: int) -> Pending | None:
        """What was to be answered under this number is no more this relayer's."""
        pending = self.waiting.pop(number, None)
        if pending is not None:
            self.transactions -= pending.size
            self.bytes -= len(pending.body)
        return pending

    def left(self, channel: int) -> None:
        """A client has gone."""
        if self._link is not None and channel in self._link.channels:
            self._link.channels.discard(channel)
            self._link.outbox.put(wire.left(channel))

    async def look(self, tx_hash: bytes) -> tuple[int, bytes] | None:
        """What one that stands by says of a transaction, status and body as over HTTP; `None`: it does not answer."""
        if self._idle is None:
            return None
        number = next(self._numbers)
        answer: asyncio.Future[tuple[int, bytes] | None] = asyncio.get_running_loop().create_future()
        self._looks[number] = answer
        self._idle.outbox.put(wire.ask(number, tx_hash))
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._looks[number]

    def take(self, link: _Link, record: bytes) -> None:
        """A record came. Raises `WireError`."""
        if record.startswith(wire.REPLY):  # nearly always
            _, number, body = wire.read_reply(record)
            pending = self.forget(number)
            if pending is not None:
                pending.owner.answered(pending, body)
            return
        if link is self._idle and record.startswith(wire.KNOWN):
            number, status, body = wire.read_known(record)
            if number in self._looks and not self._looks[number].done():
                self._looks[number].set_result((status, body))
            return
        if record == wire.STANDS_BY and self._link is not link:
            self._idle, link.is_greeted = link, True
            log.info("a relayer stands by", extra={"url": self.url})
            return
        if not record.startswith(wire.HELLO):
            if record.startswith(wire.REFUSED) and self.said is not None:
                self._heard = f"{self.said.run}:{wire.read_refused(record).number}"
            self._events.heard(self, record)
            return
        said = wire.read_hello(record)
        if said.chain_id not in ("", self._chain_id):
            link.is_greeted = True
            raise WireError(
                f"it is of the chain {said.chain_id!r:.40}, and this edge of {self._chain_id!r}: its address is "
                "another's by now, or was never right: see forward_to"
            )
        if self.said is None or said.run != self.said.run:
            self._heard = f"{said.run}:0"
        self.said, self.addresses = said, frozenset(said.relayers.values())
        if self._link is not link:
            self._link, self.is_leaving, link.is_greeted = link, False, True
            log.info("a relayer is there", extra={"url": self.url, "shards": sorted(said.relayers)})
            self._events.found(self)

    def closed(self, link: _Link) -> None:
        """A connection has ended."""
        if self._idle is link:
            self._idle = None
            for answer in self._looks.values():
                if not answer.done():
                    answer.set_result(None)
        if self._link is link:
            self._link = None
            self.losses += 1
            log.warning("a relayer is gone", extra={"url": self.url, "unanswered": len(self.waiting)})
            now = self._clock()
            for pending in self.waiting.values():
                pending.since = now
            self._events.lost(self)


def _why_ended(link: _Link) -> str:
    """Why a connection ended that stood, where anything can be done about that; else empty."""
    if link.odd:
        remedy = "" if link.is_greeted else ": it may be of an earlier version, update relayers before their edges"
        return f"{link.odd[:200]}{remedy}"
    return (
        f"closed with {link.close_code}: see the relayer's setting edges" if link.used and not link.is_greeted else ""
    )
