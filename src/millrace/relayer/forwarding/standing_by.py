"""What edges find of a relayer that waits for a seat: it takes nothing, and says what its folder knows.

Without a word edges could not tell it from one that accepted something and is gone. What it accepted when it had a seat
is followed by who has that now, and what it only broadcast by nobody else: so it is asked, too. What may still run when
it lost its seat is not for it to tell.
"""

from __future__ import annotations

import asyncio
import logging
from functools import cached_property

from millrace.chain.transaction import early_hashes
from millrace.relayer.forwarding import wire
from millrace.relayer.forwarding.signing_end import NO_EDGE, is_edge
from millrace.relayer.forwarding.wire import Outbox, WireError
from millrace.relayer.gateway.wallets import UNKNOWN, transaction_reply
from millrace.relayer.journal.fates import Fates, FatesUnavailable
from millrace.relayer.journal.journal import Journal, transaction_of
from millrace.relayer.journal.writer import JournalError
from millrace.relayer.protocol import messages
from millrace.relayer.settings import RelayerSettings
from millrace.runtime import websocket
from millrace.runtime.client_address import ClientAddress

log = logging.getLogger(__name__)

MAX_EDGES = 100
GRACE_SECONDS = 0.2
"""Its seat's lease runs while it closes."""
OPEN = "it was accepted by a relayer that stands by now: ask again, or the network"


class StandingBy:
    """`start` listens to edges, `stop` leaves port and file to who serves."""

    def __init__(self, settings: RelayerSettings, journal: Journal, fates: Fates) -> None:
        self._settings, self._journal, self._fates = settings, journal, fates
        self._networks = ClientAddress(settings.edges)
        self._answering: set[asyncio.Task[None]] = set()
        self._server: websocket.WsServer | None = None

    async def start(self) -> None:
        """Listen, unless another has the port: this one needs it when it has a seat, and that one may be gone then."""
        await self._fates.open(self._journal.path)
        self._fates.fill(self._journal.path)
        host, port = self._settings.host, self._settings.port
        try:
            self._server = await websocket.serve(
                self._session, host, port, max_message_size=wire.HEAD_BYTES, max_sessions=MAX_EDGES
            )
        except OSError as error:
            log.warning("edges do not hear that this relayer stands by", extra={"port": port, "reason": str(error)})

    async def stop(self) -> None:
        """Listen no more: edges come again when this relayer serves."""
        server, self._server = self._server, None
        if server is not None:
            await server.close(websocket.GOING_AWAY, "it has a seat, or ends", grace=GRACE_SECONDS)
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
        await self._fates.close()

    def _session(self, request: websocket.Request) -> websocket.Session:
        if request.path != wire.PATH:
            raise websocket.Refuse(503, "this relayer stands by: connect to another one")
        return _Edge(self, request.headers.get("x-forwarded-for"))

    def is_edge(self, remote: str, forwarded: str | None) -> bool:
        """Whether it is one of ours."""
        return is_edge(self._networks, remote, forwarded)

    def answer(self, outbox: Outbox, number: int, tx_hash: bytes) -> None:
        """Answer soon; how many wait for the file is bounded there."""

        async def answer() -> None:
            outbox.put(wire.known(number, *await self._known(tx_hash)))

        task = asyncio.ensure_future(answer())
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    @cached_property
    def _open(self) -> frozenset[bytes]:
        """All hashes of what may still run, by the folder's journal: read when somebody asks, not at every start."""
        return frozenset(
            name
            for record in self._journal.open_records()
            for name in (record.client_hash, record.chain_hash, *early_hashes(transaction_of(record)))
            if name
        )

    async def _known(self, tx_hash: bytes) -> tuple[int, bytes]:
        try:
            fate = await self._fates.find(tx_hash)
        except FatesUnavailable as error:
            return 503, messages.encode({"error": str(error)})
        if fate is not None and fate.is_over:
            return 200, messages.encode(transaction_reply(tx_hash.hex(), fate, None))
        try:
            is_open = fate is not None or tx_hash in self._open
        except JournalError as error:
            return 503, messages.encode({"error": str(error)})
        if is_open:
            return 503, messages.encode({"error": OPEN})
        return 404, messages.encode({"error": UNKNOWN})


class _Edge(websocket.Session):
    """The connection of one edge."""

    def __init__(self, standing_by: StandingBy, forwarded: str | None) -> None:
        super().__init__()
        self._standing_by, self._forwarded = standing_by, forwarded
        self._outbox = Outbox(self.send_binary)

    def on_open(self) -> None:
        if not self._standing_by.is_edge(self.remote, self._forwarded):
            self.close(websocket.POLICY_VIOLATION, NO_EDGE, abort=True)
            return
        self._outbox.put(wire.STANDS_BY)

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        try:
            for record in wire.records(data):
                if record.startswith(wire.ASK):
                    self._standing_by.answer(self._outbox, *wire.read_ask(record))
        except WireError as error:
            log.error("an edge is not understood", extra={"edge": self.remote, "reason": str(error)})
            self.close(websocket.UNSUPPORTED_DATA, str(error), abort=True)
