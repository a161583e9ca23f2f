"""One market at one block, ready for quotes: immutable, built off the request path."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import NamedTuple

from millrace.chain.token import NATIVE
from millrace.dex.document import PoolDocument, decode
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.routing.planner import Planner
from millrace.routing.venue import CurveCache

_FILTERED_KEPT = 16


class Filter(NamedTuple):
    """Which pools a route may use; empty tuples allow all."""

    only_exchanges: tuple[str, ...] = ()
    without_exchanges: tuple[str, ...] = ()
    only_pools: tuple[str, ...] = ()
    without_pools: tuple[str, ...] = ()

    def admits(self, pool: Pool) -> bool:
        """Whether a pool may be used."""
        return (
            (not self.only_exchanges or pool.exchange in self.only_exchanges)
            and pool.exchange not in self.without_exchanges
            and (not self.only_pools or pool.id in self.only_pools)
            and pool.id not in self.without_pools
        )


class Snapshot:
    """A checked pool document with its graph. `received` (monotonic clock) is when it was last seen upstream."""

    def __init__(
        self, document: PoolDocument, identifier: str, received: float, curves: CurveCache | None = None
    ) -> None:
        self.document = document
        self.id = identifier
        self.received = received
        self.wrapped = document.wrapped_native_token
        self.tokens = {info.identifier: info for info in document.tokens}
        self.market = DictMarket(document.pools, self.wrapped)
        self._curves = curves or CurveCache()
        self._planners: OrderedDict[Filter, Planner] = OrderedDict()
        self._main = self._planners[Filter()] = Planner(document.pools, self.market, self._curves)
        self._main.router.warm()
        self._curves.forget_all_but(document.pools)
        self._behind: Snapshot | None = None

    def age(self, now: float) -> float:
        """Seconds since the document arrived."""
        return max(0.0, now - self.received)

    def knows(self, token: str) -> bool:
        """Whether the token is in the registry (EGLD always is)."""
        return token == NATIVE or token in self.tokens

    def decimals(self, token: str) -> int:
        """Decimals of a known token."""
        return 18 if token == NATIVE else self.tokens[token].decimals

    def inner(self, token: str) -> str:
        """The token that routes use: EGLD is the wrapped token inside."""
        return self.wrapped if token == NATIVE else token

    def behind(self) -> Snapshot:
        """The same market for the thread that answers what takes long, with planners of its own."""
        if self._behind is None:
            self._behind = _Behind(self)
        return self._behind

    def planner(self, chosen: Filter) -> Planner:
        """The planner of the pools that `chosen` admits; the most recent ones are kept."""
        found = self._planners.get(chosen)
        if found is not None:
            self._planners.move_to_end(chosen)
            return found
        return self.keep(chosen, self.make(chosen))

    def present(self, chosen: Filter) -> Planner | None:
        """The planner of `chosen` if it is there. Any thread may ask."""
        return self._planners.get(chosen)

    def has(self, chosen: Filter) -> bool:
        """Whether the planner of `chosen` is there already."""
        return chosen in self._planners

    def make(self, chosen: Filter) -> Planner:
        """Build a planner: some ten milliseconds for a thousand pools. Any thread may call this."""
        pools = [pool for pool in self.document.pools if chosen.admits(pool)]
        return Planner(pools, self.market, self._curves)

    def keep(self, chosen: Filter, planner: Planner) -> Planner:
        """Remember a planner; beyond the bound the one unused for longest goes."""
        if len(self._planners) >= _FILTERED_KEPT:
            del self._planners[next(key for key in self._planners if key != Filter())]
        self._planners[chosen] = planner
        return planner


class _Behind(Snapshot):
    """A snapshot as another thread sees it: the graphs are shared, the scratch memory of the searches is not."""

    def __init__(self, front: Snapshot) -> None:
        self.document, self.id, self.received = front.document, front.id, front.received
        self.wrapped, self.tokens, self.market = front.wrapped, front.tokens, front.market
        self._front = front
        self._planners = OrderedDict()
        self.keep(Filter(), self.make(Filter()))

    def make(self, chosen: Filter) -> Planner:
        """A twin of the planner in front, or of a new one if that is gone already."""
        return (self._front.present(chosen) or self._front.make(chosen)).twin()


def identify(data: bytes) -> str:
    """The snapshot id of a document: a digest of its bytes."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def build(data: bytes, received: float, curves: CurveCache | None = None) -> Snapshot:
    """Decode and check a document and build its graph. Raises `DocumentError`."""
    document = decode(data)
    return Snapshot(document, identify(data), received, curves)
