"""Transactions that are traced, from the moment they are sent until the chain has told their end.

Nothing here is kept on disk and nothing waits for it: after a restart, and beyond `MOST`, a trace just ends early.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from millrace.relayer.ledger.inflight import Entry
from millrace.runtime.tracing import Trace

MOST = 4_096
"""Followed at once; the oldest gives way."""
PER_TRACE = 16
"""Transactions of one submission that are followed one by one."""


class _Followed(msgspec.Struct, gc=False):
    trace: Trace
    since_ns: int
    is_out: bool = False
    """Whether it has left this service."""


class Followed:
    """Empty as long as nothing is traced: then its methods cost a look at that."""

    def __init__(self) -> None:
        self._by_hash: OrderedDict[bytes, _Followed] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_hash)

    def begin(self, entry: Entry, trace: Trace) -> None:
        """An entry with its chain hash is to be sent; again, if it was before."""
        if entry.chain_hash in self._by_hash or trace.followed >= PER_TRACE:
            return
        trace.followed += 1
        self._by_hash[entry.chain_hash] = _Followed(trace, time.time_ns())
        if len(self._by_hash) > MOST:
            self._by_hash.popitem(last=False)

    def sent(self, entries: Iterable[Entry], way: str) -> None:
        """Entries went out: by `gossip`, or to the chain `api`."""
        if self._by_hash:
            for entry in entries:
                followed = self._by_hash.get(entry.chain_hash)
                if followed is not None and not followed.is_out:
                    followed.is_out = True
                    followed.trace.span("send", followed.since_ns, tx=entry.chain_hash.hex(), way=way)

    def in_block(self, hashes: Iterable[bytes]) -> tuple[str, ...]:
        """The traces of transactions that a block has: whose trace to go on with, for whoever saw the block first."""
        found = (self._by_hash.get(tx_hash) for tx_hash in hashes)
        return tuple({str(followed.trace.context): None for followed in found if followed is not None})

    def ended(self, tx_hash: bytes, status: str) -> None:
        """Who subscribed to it was told its end."""
        followed = self._by_hash.pop(tx_hash, None) if self._by_hash else None
        if followed is not None:
            followed.trace.span("status", followed.since_ns, tx=tx_hash.hex(), status=status)
