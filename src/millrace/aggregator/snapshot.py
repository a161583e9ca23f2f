"""One market at one block, ready for quotes: immutable, built off the request path."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from millrace.aggregator.pace import never
from millrace.aggregator.prices import token_prices, with_shares
from millrace.aggregator.responses import SnapshotInfo
from millrace.chain.token import NATIVE
from millrace.dex.document import DocumentError, PoolDocument, Quarantined, decode
from millrace.dex.entries import Reader
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.dex.steps import in_steps
from millrace.routing.costs import Table
from millrace.routing.curve import NoCurve
from millrace.routing.planner import Planner
from millrace.routing.venue import CurveCache

FILTERS_KEPT = 16
"""Combinations of filters whose graphs a snapshot remembers."""
LONG_THREAD = "LONG"
"""The thread for what takes longest; see `answering.Lane`."""
MOVING_SECONDS = 3e-5
"""Per pool, for a planner of a market in which some have moved: 10 000 take up to 0.17 s, and more beside quotes."""
BUILDING_SECONDS = 1e-4
"""Per pool, for one made from nothing: 1 000 take 0.04 to 0.11 s, as many of them are curved."""
ANSWER_BYTES = 16 * 1024 * 1024
"""Bytes of answers (with what was asked) that a snapshot remembers."""


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


_ALL = Filter()


class Face(NamedTuple):
    """What every answer says of a pool: its exchange, its address in bech32, and its number where OneDex has it."""

    dex: str
    address: str
    pair_id: int | None


class Market:
    """A checked pool document. `received` (monotonic clock) is when it was last seen upstream."""

    def __init__(self, document: PoolDocument, data: bytes, received: float) -> None:
        self.document = document
        self.data = data
        """The document as it came, for those who have it from here."""
        self.id = identify(data)
        """A digest of the document: whoever has the same document calls it the same."""
        self.received = received

    def age(self, now: float) -> float:
        """Seconds since the document was last seen."""
        return max(0.0, now - self.received)


class Snapshot(Market):
    """A market with its graph."""

    def __init__(
        self,
        document: PoolDocument,
        data: bytes,
        received: float,
        curves: CurveCache | None = None,
        pause: Callable[[], None] = never,
        table: Table | None = None,
    ) -> None:
        super().__init__(document, data, received)
        self.wrapped = document.wrapped_native_token
        self.info = SnapshotInfo(id=self.id, block_nonce=document.block.nonce, timestamp=document.block.timestamp)
        """Which market state this is, for answers."""
        self.tokens = {info.identifier: info for info in document.tokens}
        self.decimals = {NATIVE: 18} | {info.identifier: info.decimals for info in document.tokens}
        """Of the tokens that the registry knows (EGLD always is one)."""
        self.units = {token: 10**decimals for token, decimals in self.decimals.items()}
        """How many smallest units a whole token has."""
        self.faces: dict[str, Face] = {}
        """By pool, of those that answers have named."""
        pause()
        self.market = DictMarket(in_steps(document.pools, pause), self.wrapped)
        pause()
        self._curves = curves or CurveCache()
        self._pause = pause
        self._table = table or Table()
        self._planners: OrderedDict[Filter, Planner] = OrderedDict()
        self._twins: dict[str, OrderedDict[Planner, Planner]] = {}
        """By thread, as one at a time may use them."""
        self.main = self.make(_ALL)
        """The planner of all pools."""
        pause()
        self.document = _without(document, self.main.router.faulty)
        clean, dust = self.main.router.built_of
        self.usable = [*clean, *dust]
        """The pools that routes may use."""
        self.worth = with_shares(token_prices(clean, self.wrapped, pause), self.document.pools)
        """What a smallest unit of each token is worth, in smallest units of the wrapped native token."""
        pause()
        self.main.router.warm(pause)
        pause()
        self._curves.forget_all_but(document.pools)

        self._answers: OrderedDict[str, bytes] = OrderedDict()  # unlike a dict it finds its oldest entry at once
        self._answer_bytes = 0

    def answered(self, question: str) -> bytes | None:
        """The answer to a query string, if it is remembered: the same question has the same answer."""
        return self._answers.get(question)

    def remember(self, question: str, answer: bytes) -> None:
        """Keep an answer. Beyond the bound the oldest ones go."""
        if question in self._answers:
            return
        self._answers[question] = answer
        self._answer_bytes += len(question) + len(answer)
        while self._answer_bytes > ANSWER_BYTES:
            oldest, bytes_of = self._answers.popitem(last=False)
            self._answer_bytes -= len(oldest) + len(bytes_of)

    def forget_answers(self) -> None:
        """Remember none of the answers so far: the fees that were taken off them are others now."""
        self._answers.clear()
        self._answer_bytes = 0

    def inner(self, token: str) -> str:
        """The token that routes use: EGLD is the wrapped token inside."""
        return self.wrapped if token == NATIVE else token

    def find(self, chosen: Filter) -> Planner | None:
        """The planner of the pools that `chosen` admits, if it is kept: the most recently used ones are."""
        if chosen == _ALL:
            return self.main
        found = self._planners.get(chosen)
        if found is not None:
            self._planners.move_to_end(chosen)
        return found

    def make(self, chosen: Filter) -> Planner:
        """Build a planner: some ten milliseconds for a thousand pools. Any thread may call this."""
        pools = [pool for pool in self.document.pools if chosen.admits(pool)]
        return Planner(pools, self.market, self._curves, self._pause, self._table)

    def plan_on(
        self, planner: Planner, chosen: Filter, pools: Mapping[str, Pool], has_time: Callable[[float], bool]
    ) -> Planner | None:
        """The planner of what `chosen` admits with these pools, by id, as plans leave them; None without time for it.

        `has_time` says whether there are so many seconds. It rests in none of them, like a search: others wait for
        the thread.
        """
        market = self.market.left_by(pools)
        if not has_time(len(market.pools) * MOVING_SECONDS):
            return None
        try:
            return planner.moved(pools, market)
        except NoCurve:  # one that is as good as empty, say
            if not has_time(len(market.pools) * BUILDING_SECONDS):
                return None
            left = [pool for pool in market.pools.values() if chosen.admits(pool)]
            return Planner(left, market, CurveCache(), self._pause, self._table)

    def keep(self, chosen: Filter, planner: Planner) -> None:
        """Remember a planner; beyond the bound the one unused for longest goes."""
        self._planners[chosen] = planner
        if len(self._planners) > FILTERS_KEPT:
            self._planners.popitem(last=False)

    def twin(self, planner: Planner, thread: str = LONG_THREAD, aside: Callable[[], None] = never) -> Planner:
        """The same graph with scratch memory of its own, for one of the threads that answer what takes long.

        Its searches call `aside` in between, in which the same memory must not be used.
        """
        twins = self._twins.setdefault(thread, OrderedDict())
        twin = twins.get(planner)
        if twin is None:
            twin = twins[planner] = planner.twin(aside)
            if len(twins) > FILTERS_KEPT:
                twins.popitem(last=False)
        else:
            twins.move_to_end(planner)
        return twin


def _without(document: PoolDocument, faulty: Mapping[str, str]) -> PoolDocument:
    """The document with these pools left out and named: what no check of an entry has found must not end the market."""
    if not faulty:
        return document
    return msgspec.structs.replace(
        document,
        pools=tuple([pool for pool in document.pools if pool.id not in faulty]),
        quarantined=(*document.quarantined, *[Quarantined(name, reason) for name, reason in faulty.items()]),
    )


def identify(data: bytes) -> str:
    """The snapshot id of a document: a digest of its bytes."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


class Reading:
    """Reads one document after the other, in one thread, and remembers what has not changed from one to the next."""

    def __init__(self) -> None:
        self._reader = Reader()

    def build(
        self,
        data: bytes,
        received: float,
        pause: Callable[[], None] = never,
        admit: Callable[[PoolDocument], None] = lambda _: None,
    ) -> Market:
        """Decode and check a document. Raises `DocumentError`. `pause` is called at every step."""
        return Market(self.read(data, pause, admit), data, received)

    def read(self, data: bytes, pause: Callable[[], None], admit: Callable[[PoolDocument], None]) -> PoolDocument:
        """The document. Raises `DocumentError`; so may `admit`, for one that it refuses."""
        document = decode(data, pause=pause, reader=self._reader, quarantine=True)
        if not document.pools:
            reason = f"; the first fault is {document.quarantined[0].reason}" if document.quarantined else ""
            raise DocumentError(
                f"$.pools: there is none; a market without pools is taken for a fault of the upstream{reason}"
            )
        admit(document)
        return document


class Builder(Reading):
    """The same with the graph, for quotes. `table` says what plans take of a transaction."""

    def __init__(self, table: Table | None = None) -> None:
        super().__init__()
        self._curves = CurveCache()
        self._table = table or Table()

    def build(
        self,
        data: bytes,
        received: float,
        pause: Callable[[], None] = never,
        admit: Callable[[PoolDocument], None] = lambda _: None,
    ) -> Snapshot:
        """Decode and check a document and build its graph, unless `admit` refuses it. Raises `DocumentError`."""
        return Snapshot(self.read(data, pause, admit), data, received, self._curves, pause, self._table)


def build(data: bytes, received: float, pause: Callable[[], None] = never, table: Table | None = None) -> Snapshot:
    """A snapshot alone, see `Builder.build`."""
    return Builder(table).build(data, received, pause)
