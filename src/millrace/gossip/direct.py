"""Direct messages of nodes: they ask any peer of a topic for data (`<topic>_REQUEST`) over a protocol of their own.

We have none of it. A request is read and counted and gets no answer; a node then asks somebody else and rates us
lower as a source, nothing more. Were the protocol not offered, each of its requests would fail at the stream.
Rules of mx-chain-communication-go 1.3.2: a varint length and a pubsub message, whose `from` is the remote itself,
without `key`, with a sequence number of at most 8 bytes.
"""

from __future__ import annotations

import logging

from libp2p.abc import IHost, INetStream
from libp2p.custom_types import TProtocol
from libp2p.io.exceptions import IOException
from libp2p.pubsub.pb import rpc_pb2

from millrace.gossip.frames import FrameReader
from millrace.gossip.settings import MAX_DATA_BYTES

log = logging.getLogger(__name__)

PROTOCOL = TProtocol("/erd/directsend/1.0.0")
_MAX_STREAMS = 128
_SEQNO_BYTES = 8


class DirectMessages:
    """Reads them. `requests` counts those in order, `invalid` those that break a rule and end their stream."""

    def __init__(self, host: IHost) -> None:
        self.requests = 0
        self.invalid = 0
        self._streams = 0
        host.set_stream_handler(PROTOCOL, self.serve)

    async def serve(self, stream: INetStream) -> None:
        """Read what one remote sends, until it ends or is nonsense; beyond 128 streams the new one is reset."""
        if self._streams >= _MAX_STREAMS:
            await stream.reset()
            return
        self._streams += 1
        try:
            await self._read(stream)
        except IOException:
            pass  # the connection ended
        except Exception as error:  # whatever a stranger sends ends his stream, not the process
            self.invalid += 1
            log.info("a direct message is nonsense", extra={"reason": repr(error)})
            await stream.reset()
        finally:
            self._streams -= 1

    async def _read(self, stream: INetStream) -> None:
        remote = stream.muxed_conn.peer_id.to_bytes()
        reader = FrameReader(stream, MAX_DATA_BYTES)
        while (body := await reader.next()) is not None:
            message = rpc_pb2.Message.FromString(body)
            if message.from_id != remote or message.key or len(message.seqno) > _SEQNO_BYTES:
                raise ValueError("a direct message that is not of its sender")
            self.requests += 1
        await stream.close()
