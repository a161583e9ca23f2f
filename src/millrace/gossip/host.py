"""The libp2p host of a peer (trio), without what the library does unasked."""

from __future__ import annotations

from collections.abc import Callable

import trio
from libp2p import new_swarm
from libp2p.abc import INetConn, INetStream, INetwork, INotifee
from libp2p.crypto.keys import KeyPair
from libp2p.crypto.x25519 import create_new_key_pair as new_noise_key
from libp2p.host.basic_host import BasicHost
from libp2p.io.trio import TrioTCPStream
from libp2p.network.auto_connector import AutoConnector
from libp2p.network.config import ConnectionConfig, RetryConfig
from libp2p.network.swarm import Swarm
from libp2p.rcmgr import ResourceManager
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as NoiseTransport
from libp2p.transport.tcp import tcp
from multiaddr.multiaddr import Multiaddr

MAX_CONNECTIONS = 300
"""Beyond it connections are refused at once; trimming to the bound of the settings takes a moment."""


class BufferedStream(TrioTCPStream):
    """Takes what a socket has in one piece: the library asks it twice for each small message, for length and body."""

    _PIECE = 64 * 1024

    def __init__(self, stream: trio.SocketStream) -> None:
        super().__init__(stream)
        self._buffer = bytearray()

    async def read(self, n: int | None = None) -> bytes:
        """At most `n` bytes, none at the end; without a wait where there are some already."""
        if not self._buffer and n != 0:
            self._buffer += await super().read(self._PIECE)
        piece = bytes(self._buffer[:n])
        del self._buffer[:n]
        return piece


# The library makes the stream of a connection from this name.
setattr(tcp, "TrioTCPStream", BufferedStream)  # noqa: B010


def new_host(key: KeyPair, announce: tuple[str, ...] = ()) -> BasicHost:
    """TCP, noise, yamux; a fixed bound on connections instead of the library's adaptive guards.

    Its default resource manager refuses all connections for a minute after five failures.
    """
    resources = ResourceManager(
        enable_circuit_breaker=False,
        enable_graceful_degradation=False,
        enable_memory_limits=False,
        enable_metrics=False,
    )
    swarm = new_swarm(
        key_pair=key,
        sec_opt={NOISE: NoiseTransport(key, noise_privkey=new_noise_key().private_key)},
        muxer_preference="YAMUX",
        retry_config=RetryConfig(max_retries=0),
        connection_config=ConnectionConfig(
            min_connections=0,
            low_watermark=0,
            high_watermark=MAX_CONNECTIONS,
            max_connections=MAX_CONNECTIONS,
        ),
        resource_manager=resources,
    )
    assert isinstance(swarm, Swarm)
    swarm.auto_connector = _NoDials(swarm)
    return BasicHost(
        network=swarm,
        resource_manager=resources,
        disable_identify_address_discovery=True,
        announce_addrs=[Multiaddr(address) for address in announce] or None,
    )


class _NoDials(AutoConnector):
    """In place of the library's, which dials every address it ever heard of, whatever its low mark."""

    async def run_background_task(self, nursery: trio.Nursery) -> None:
        pass

    async def maybe_connect(self) -> None:
        pass


class Comings(INotifee):
    """Calls `come` after every new connection, and `gone` after every lost one."""

    def __init__(self, come: Callable[[], None], gone: Callable[[], None]) -> None:
        self._come = come
        self._gone = gone

    async def disconnected(self, network: INetwork, conn: INetConn) -> None:
        self._gone()

    async def connected(self, network: INetwork, conn: INetConn) -> None:
        self._come()

    async def opened_stream(self, network: INetwork, stream: INetStream) -> None:
        pass

    async def closed_stream(self, network: INetwork, stream: INetStream) -> None:
        pass

    async def listen(self, network: INetwork, multiaddr: Multiaddr) -> None:
        pass

    async def listen_close(self, network: INetwork, multiaddr: Multiaddr) -> None:
        pass
