"""What every process that answers is made of: handlers, server, and the order in which they end."""

from __future__ import annotations

import gc
import socket
from collections.abc import Sequence

from millrace.aggregator.api import Api
from millrace.aggregator.clients import Clients
from millrace.aggregator.feed import Feed
from millrace.aggregator.limiter import marks_of
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Snapshot
from millrace.routing.compiled import keep_gil
from millrace.runtime.http import LINGER_SECONDS, HttpServer
from millrace.runtime.origins import Origins
from millrace.runtime.tracing import Tracer
from millrace.runtime.undisturbed import Undisturbed

# Snapshots are built and long questions answered in threads. The event loop gives the lock up a dozen times a request,
# as uvloop does between its callbacks, and waits so long each time before a thread hands it back: beside reverse quotes
# for LP units others' forward quotes took 8 to 11 ms at the 99th of 100 with 0.1 ms, and take 3 to 4. While the loop
# answers, threads wait longer for their turn (`Undisturbed`).
SWITCH_SECONDS = 0.00003
# A snapshot is tens of thousands of objects that live until the next one, and are then freed without the collector. To
# walk all of them takes 20 ms in which nothing else runs: once in a hundred walks of the young ones is enough.
GC_THRESHOLDS = 700, 10, 100


class Service:
    """One process's part in answering."""

    def __init__(
        self, settings: AggregatorSettings, feed: Feed[Snapshot], clients: Clients, tracer: Tracer | None = None
    ) -> None:
        keep_gil()
        gc.set_threshold(*GC_THRESHOLDS)
        gc.collect()
        gc.freeze()  # modules stay: walking them again and again would hold up quotes
        self._settings = settings
        self._feed = feed
        self.api = Api(settings, feed, clients, tracer)
        origins = Origins(settings.allowed_origins)
        self._server = HttpServer(
            self.api.application(),
            at_once=self.api.at_once,
            doors=self.api.doors,
            origins=origins,
            undisturbed=Undisturbed(SWITCH_SECONDS),
        )

    async def start(self) -> int:
        """Let clients in at the address of the settings; returns the port. Raises `OSError`."""
        return await self._server.start(self._settings.host, self._settings.port)

    async def start_on(self, sockets: Sequence[socket.socket]) -> None:
        """Let those in who come to sockets that listen already."""
        await self._server.start_on(sockets)

    async def stop(self) -> None:
        """Answer what is in flight, then end."""
        self.api.streams.close()
        await self._server.stop(LINGER_SECONDS)
        self.api.close()
        await self.api.referrals.close()
        await self.api.nonces.close()
        await self.api.simulations.close()
        self._feed.close()


def clients_of(settings: AggregatorSettings, shared: int | None = None) -> Clients:
    """The table of all clients; `shared` is the file that it is in for several processes."""
    return Clients(settings.max_clients, marks_of(settings.requests_per_second), shared)
