"""The public WebSocket: where it listens, which session a connection becomes, and the fan-out to all of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from msgspec import UNSET

from millrace.relayer.gateway.deliveries import Deliveries, Reader
from millrace.relayer.gateway.drain import Drain
from millrace.relayer.gateway.sessions import PublicSession, StatsSession
from millrace.relayer.gateway.shared import Shared
from millrace.relayer.protocol import messages, topics
from millrace.relayer.protocol.topics import AddressTopic, StreamTopic, TxStatusTopic
from millrace.runtime import websocket
from millrace.runtime.doors import Doors
from millrace.runtime.websocket import text_frame

ANSWER_SECONDS = 5.0
"""What is under way at a shutdown may take so long to be answered."""
LOOK_SECONDS = 0.01
TIDY_SECONDS = 0.25
EVERYONE = StreamTopic(topics.ACCOUNTS)
"""Who hears of all accounts."""
ENVELOPE_BYTES = 64 * 1024
"""What edges add to the largest message of a client."""


class Gateway:
    """Listens, and tells sessions what they subscribed to."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.further: dict[str, websocket.SessionFactory] = {}
        """What connections to other paths than a client's become."""
        self.drain: Drain | None = None
        """While clients are sent away."""
        self._server: websocket.WsServer | None = None
        self._deliveries = Deliveries(lambda: shared.subscriptions.clients(EVERYONE))

    async def start(self, doors: Doors | None = None) -> int:
        """Listen, and count connections at the doors before they have brought a handshake; the port."""
        settings = self.shared.settings
        self._server = await websocket.serve(
            self._session,
            settings.host,
            settings.port,
            max_message_size=settings.max_message_bytes + (ENVELOPE_BYTES if self.further else 0),
            max_sessions=settings.max_connections,
            ping_interval=settings.ping_interval,
            pong_timeout=settings.pong_timeout,
            doors=doors,
        )
        return self._server.port

    async def run(self) -> None:
        """Let what clients were sent run out of their meters, and close whom a drain has not moved, for ever."""
        while True:
            await asyncio.sleep(TIDY_SECONDS)
            now = self.shared.clock()
            self.shared.egress.drain(now)
            if self.drain is not None and now >= self.drain.until:
                self._close_clients()

    async def leave(self) -> None:
        """Send clients elsewhere where they can go, take nothing more and answer what is under way."""
        if self._server is None or self.shared.stopping:
            return
        if self.shared.settings.move_to:
            self.send_away()
        if self.drain is not None:
            while self._clients() and self.shared.clock() < self.drain.until:
                await asyncio.sleep(LOOK_SECONDS)
        self.shared.stopping = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                while self.shared.under_way:
                    await asyncio.sleep(LOOK_SECONDS)

    async def stop(self) -> None:
        """Leave, say goodbye to who is left and close."""
        if self._server is None:
            return
        await self.leave()
        self._say_goodbye(self._server.sessions)
        await self._server.close(websocket.GOING_AWAY, "server shutting down")

    def send_away(self) -> None:
        """Tell every client to leave, and let no more in; who is there is served on. Nothing more when told again."""
        if self.drain is not None or self._server is None:
            return
        settings, sessions = self.shared.settings, list(self._server.sessions)
        now = self.shared.clock()
        self.drain = Drain(settings.move_to, settings.move_notice, settings.move_seconds, now, len(sessions))
        for session in sessions:
            session.send_frames(self.drain.word(now))

    def _clients(self) -> list[PublicSession | StatsSession]:
        """The clients that are there: edges stay as long as their own clients may wait for answers."""
        assert self._server is not None
        return [each for each in self._server.sessions if isinstance(each, PublicSession | StatsSession)]

    def _close_clients(self) -> None:
        """Close whoever is left."""
        clients = [each for each in self._clients() if not each.closed]
        self._say_goodbye(clients)
        for client in clients:
            client.close(websocket.GOING_AWAY, "this service is about to end")

    def _say_goodbye(self, sessions: Iterable[websocket.Session]) -> None:
        """Whoever is left is closed now, and told where to go."""
        self._deliveries.join()  # and so goes before
        goodbye = text_frame(messages.encode(messages.ShutdownMessage(list(self.shared.settings.move_to) or UNSET)))
        for session in list(sessions):
            session.send_frames(goodbye)

    @property
    def listens(self) -> bool:
        """Whether clients have been let in since the start."""
        return self._server is not None

    @property
    def connections(self) -> int:
        """Open connections, of both kinds."""
        return 0 if self._server is None else len(self._server.sessions)

    @property
    def conflated(self) -> int:
        """Statistics left out for readers who were behind, or whose address was sent too much."""
        return sum(audience.left_out for audience in self.shared.audiences.values())

    @property
    def turned_away(self) -> int:
        """Connections reset for want of a file since the start."""
        return 0 if self._server is None else self._server.turned_away

    def _session(self, request: websocket.Request) -> websocket.Session:
        drain, now = self.drain, self.shared.clock()
        if drain is not None and (request.path in self.further or not drain.lets_in(now)):
            raise websocket.Refuse(503, "this service is about to end: connect to another one")
        forwarded = request.headers.get("x-forwarded-for")
        if request.path in self.further:
            return self.further[request.path](request)
        session: PublicSession | StatsSession
        if request.path == "/ws":
            session = PublicSession(self.shared, forwarded)
            session.authorization = request.headers.get("authorization")
        elif request.path == "/ws/stats":
            session = StatsSession(self.shared, forwarded)
        else:
            raise websocket.Refuse(404, "WebSocket endpoints are /ws and /ws/stats")
        if drain is not None:
            session.first = drain.word(now)
        return session

    # ---- fan-out

    def tell_statuses(self, ends: Iterable[tuple[TxStatusTopic, Callable[[], bytes]]]) -> int:
        """Tell the ends of transactions to each subscription that has not heard of its own; how many were told.

        What is for one session goes into one write: a client that sent much has many ends in a block. Accounts that
        were told before go before it.
        """
        self._deliveries.join()
        subscriptions, now, told = self.shared.subscriptions, self.shared.clock(), 0
        frames: dict[Reader, list[bytes]] = {}
        for topic, make in ends:
            if not subscriptions.has(topic):
                continue
            sessions = subscriptions.deliver(topic, now)
            if sessions:
                frame = text_frame(make())
                for session in sessions:
                    frames.setdefault(session, []).append(frame)
                told += len(sessions)
        for session, mine in frames.items():
            session.send_frames(b"".join(mine))
        return told

    def hears(self, topic: AddressTopic) -> bool:
        """Whether anybody would be told of an account."""
        return self.shared.subscriptions.has(topic) or self.shared.subscriptions.has(EVERYONE)

    def tell_account(self, topic: AddressTopic, make: Callable[[], bytes]) -> None:
        """Tell an account's new state to its subscribers and to those of all accounts, soon."""
        subscriptions = self.shared.subscriptions
        readers = [each for each in subscriptions.clients(topic) if not subscriptions.is_subscribed(each, EVERYONE)]
        is_for_all = subscriptions.has(EVERYONE)
        if not readers and not is_for_all:
            return
        frame = text_frame(make())
        for reader in readers:
            self._deliveries.put(reader, frame)
        if is_for_all:
            self._deliveries.put_to_everyone(frame)

    def when_told(self, then: Callable[[], None]) -> None:
        """Call when all that was told until now is on its way to its readers."""
        self._deliveries.when_written(then)
