"""The kernels with their scratch memory: a question goes in, lists of trades come out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from millrace.routing.astray import promising_astray
from millrace.routing.candidates import Search
from millrace.routing.exchange import CHUNKS as FIRST_CHUNKS
from millrace.routing.exchange import exchange_wide, first_paths
from millrace.routing.find import ASTRAY, LENGTH, MOST, PAID, SLOTS, SPLIT, find, find_paths
from millrace.routing.inorder import Order, arrange, find_in_order, ordered
from millrace.routing.limits import Limits, Rooms, path_hops
from millrace.routing.moves import Moves
from millrace.routing.net import Floats, Graph, Ints, IntTable, Net
from millrace.routing.pathsearch import PathWork, make_path_work
from millrace.routing.scratch import make
from millrace.routing.shares import Room
from millrace.routing.solve import LEVEL, UNREACHED, UPPER, grow, price_cycles
from millrace.routing.venue import Trade
from millrace.routing.widepath import WideSearch, make_wide_work
from millrace.routing.work import MAX_EDGES, Work, make_work

CHUNKS = 24
FLOW_ALONE = -1  # instead of chunks
FEWER = 4  # paths, as the exchange begins with: what is asked for with more of them pays no less than with these
OF_FEW, OF_MORE = 10, 10  # exchanges looked for: of few paths, and then of more
UNKNOWN = 1e300  # an output for which no ways on are known yet
COARSE = 1e-6  # relative: what a flow loses in whole units, at most, where it pays what it was thought to


class Flow(NamedTuple):
    """Trades in execution order, their edges and inputs, scaled; none if the limits leave no flow."""

    trades: list[Trade]
    edges: Ints
    inputs: Floats


class Split(NamedTuple):
    """Paths and the part of the amount that each takes."""

    paths: list[list[Trade]]
    parts: list[float]


class Ways(NamedTuple):
    """Paths from the source to the sink, as edges: each row's first ones, and how much each sells (scaled)."""

    edges: IntTable
    lengths: Ints
    flows: Floats

    @classmethod
    def single(cls, edges: Sequence[int], search: Search) -> Ways:
        """One path for all of the amount."""
        return cls(np.array([edges], np.int32), np.array([len(edges)], np.int32), search.amounts)

    @classmethod
    def left_in(cls, work: PathWork, count: int) -> Ways:
        """Those that a kernel has left there: they are gone with the next search."""
        return cls(work.paths[:count], work.length[:count], work.flow[:count])

    def thickest_first(self) -> Ways:
        """The same, by how much they sell."""
        order = np.argsort(-self.flows, kind="stable")
        return Ways(self.edges[order], self.lengths[order], self.flows[order])


class Found(NamedTuple):
    """What one search has found, and the bound on the output of any plan; amounts are scaled.

    `paid` is what the flow is thought to pay. There is a single path only if it pays nearly as much, and a split only
    if it could pay more.
    """

    upper: float
    paid: float
    flow: Flow
    single: list[Trade]
    split: Split


class CyclePrices(NamedTuple):
    """A price of each token, and what all trades of the market earn at these prices at most (scaled)."""

    prices: Floats
    profit: float

    def bound(self, search: Search) -> float:
        """What no plan pays more than (scaled): the worth of the input and all profits (weak duality)."""
        sold, bought = float(self.prices[search.sources[0]]), float(self.prices[search.sink])
        known = 0.0 < sold < UNREACHED and 0.0 < bought < UNREACHED
        return (float(search.amounts[0]) * sold + self.profit) / bought if known else math.inf


class KernelSearch:
    """Searches one graph, one thread at a time. Its scratch memory is made when it is first used.

    `costs` is what each of `trades` takes, see `limits.costs_of`.
    """

    def __init__(self, graph: Graph, trades: Sequence[Trade], costs: Floats) -> None:
        self._net = graph.net
        self._rooms = Rooms(costs[graph.original])
        self._room: Room
        self._room_of: tuple[Limits, int] | None = None  # whose room that is: a search asks for it three times
        self._scales: list[float] = graph.scale.tolist()
        self.trades = [trades[k] for k in graph.original.tolist()]
        """The trade of each edge of the net."""
        self._scratch: tuple[Work, Moves, PathWork] | None = None
        self._labels = make_wide_work(1, 1)  # where no cycle earns there are none
        self._order: tuple[Order, Net] | None = None
        self._edges = np.zeros(MAX_EDGES, np.int32)
        self._flows = np.zeros(MAX_EDGES)
        self._report = np.zeros(SLOTS)

    def find(self, search: Search, limits: Limits, nearly: float, *, split: bool) -> Found:
        """The dual's flow within the limits, and what else could be better: a single path, and a split if wanted.

        Single paths that pay less than the part `nearly` of what the flow does are not looked for.
        """
        return self._found(self._find(search, limits, CHUNKS if split else 0, nearly), search)

    def _around(self, search: Search, ways: Ways, hops: int) -> tuple[Net, Search]:
        """The net where tokens are only sold in one order, that of these paths' and around them; the question there."""
        if self._order is None:
            order = make(Order, tokens=self._net.core.size, pairs=self._net.pdst.size)
            self._order = order, ordered(self._net, order)
        order, within = self._order
        top = arrange(self._net, within, order, search, *ways, len(ways.lengths), hops)
        return within, search._replace(ahead=order.ahead, behind=order.behind, top=top, closed=True)

    def flow_around(self, search: Search, ways: Ways, limits: Limits) -> Flow:
        """The flow that begins with some paths and grows in the order around them."""
        (work, moves, _), (room, paths, hops) = self._memory(), self._within(search, limits)
        ways = ways.thickest_first()
        within, there = self._around(search, ways, hops)
        asked, outputs = (room, paths, hops), (self._edges, self._flows)
        count = grow(within, work, moves, there, *ways, len(ways.lengths), *asked, *outputs)
        return self._flow(count)

    def flow_in_order(self, search: Search, ways: Ways, limits: Limits) -> tuple[Flow, float]:
        """The dual's flow in the order around some paths, and a bound (scaled) of plans in any order."""
        (work, moves, _), (room, paths, hops) = self._memory(), self._within(search, limits)
        within, there = self._around(search, ways, hops)
        asked, outputs = (search, there, room, paths, hops), (self._edges, self._flows)
        count, bound = find_in_order(self._net, within, work, moves, *asked, *outputs)
        return self._flow(count), bound

    def cycle_prices(self, search: Search) -> CyclePrices:
        """Prices at which the cycles of the market earn little; `search` asks for cycles."""
        prices = np.zeros(self._net.core.size)
        return CyclePrices(prices, price_cycles(self._net, self._memory()[0], search, prices))

    def exchange_wide(
        self, look: WideSearch, search: Search, start: Sequence[int], limits: Limits
    ) -> tuple[Ways, float]:
        """A few paths, exchanged one by one, and what they pay (scaled), less fees.

        They begin with the path `start` and those that chunks go along beside it. At first they are few.
        """
        net, work, (room, paths, hops) = self._net, self._memory()[2], self._within(search, limits)
        few, wide = min(paths, FEWER), look.look(search, float(search.amounts[0]) / FIRST_CHUNKS)
        count = first_paths(net, wide, work, search, room, hops, few, np.array(start, np.int32))
        wide.known[0] = UNKNOWN
        count, paid = exchange_wide(net, wide, work, search, room, hops, few, OF_FEW, count)
        if paths > few:
            count, paid = exchange_wide(net, wide, work, search, room, hops, paths, OF_MORE, count)
        return Ways(work.paths[:count].copy(), work.length[:count].copy(), work.flow[:count].copy()), paid

    def impact(self, search: Search, path: Sequence[int], paid: float) -> float:
        """The part of a path's spot rate that all of the amount, which buys so much, costs."""
        return 1.0 - paid / (float(search.amounts[0]) * float(np.prod(self._net.rate[path])))

    def _found(self, count: int, search: Search) -> Found:
        """What the report says of a search with so many trades in its flow."""
        path_work = self._memory()[2]
        upper, _, _, paid, length, parts, *_ = self._report.tolist()
        flow, single = self._flow(count), self._list(path_work.single[: int(length)]) if length else []
        return Found(upper, paid, flow, single, self.split(Ways.left_in(path_work, int(parts)), search))

    def flow(self, search: Search, limits: Limits) -> Flow:
        """The dual's flow alone, also for several sources."""
        return self._flow(self._find(search, limits, FLOW_ALONE, 0.0))

    def another_flow(self, search: Search, limits: Limits) -> Flow:
        """The dual's flow within other limits than were asked for last; what is known of that question stays."""
        report = self._report.copy()
        flow = self.flow(search, limits)
        self._report[:] = report
        return flow

    def _find(self, search: Search, limits: Limits, chunks: int, nearly: float) -> int:
        """Run the whole search; the number of the flow's trades."""
        room, paths, hops = self._within(search, limits)
        outputs = self._edges, self._flows, self._report
        return find(self._net, *self._memory(), self._labels, search, room, paths, hops, chunks, nearly, *outputs)

    def paths(self, search: Search, limits: Limits, floor: float, *, split: bool) -> tuple[list[Trade], Split]:
        """The best single path that pays more than `floor` (scaled, less fees), and the greedy split."""
        _, _, work = self._memory()
        room, paths, hops = self._within(search, limits)
        find_paths(self._net, work, search, room, paths, hops, CHUNKS if split else 0, floor, self._report)
        single = self._list(work.single[: int(self._report[LENGTH])])
        return single, self.split(Ways.left_in(work, int(self._report[SPLIT])), search)

    def short_of_stock(self, search: Search) -> bool:
        """Whether a pool at a rate could be brought more than it can take."""
        net, stocks = self._net, self._memory()[2].stocks
        if not stocks.size:
            return False
        takes, brought = net.kd[net.kptr[net.curve[stocks] + 1] - 1], search.ahead[net.src[stocks]] * search.amounts[0]
        return bool(np.any((takes < brought) & (search.behind[net.dst[stocks]] > 0.0)))

    def bound(self) -> float:
        """The bound (scaled) of the flow found last."""
        return float(self._report[UPPER])

    def astray(self, search: Search, limits: Limits, paid: float, left: Callable[[], float]) -> float:
        """What edges astray might add to the answer to the question asked last (scaled).

        It has `paid` so much and `left` so much of it after its fee: less than the flow was thought to, where units are
        too coarse for that.
        """
        if paid >= self._report[PAID] * (1.0 - COARSE) or not self._net.astray.size:
            return float(self._report[ASTRAY])
        room, rest = self.room(limits, search.sink), left()
        slack = max(float(self._report[MOST]) - rest, 0.0)
        work = self._memory()[0]
        return float(promising_astray(self._net, work, search, room, float(self._report[LEVEL]), rest, slack))

    def room(self, limits: Limits, sink: int) -> Room:
        """The room that limits leave in this graph, with the price of fees at a token."""
        if self._room_of != (limits, sink):
            room = self._rooms.of(limits)
            self._room_of, self._room = (limits, sink), room._replace(price=limits.toll * self._scales[sink])
        return self._room

    def _within(self, search: Search, limits: Limits) -> tuple[Room, int, int]:
        """The room, with the price of fees at the sink, and the most paths, and pools on one path."""
        return self.room(limits, search.sink), limits.paths, path_hops(limits)

    def _memory(self) -> tuple[Work, Moves, PathWork]:
        if self._scratch is None:
            work = make_work(self._net.core.size, self._net.src.size)
            self._scratch = work, make(Moves), make_path_work(self._net)
        return self._scratch

    def _flow(self, count: int) -> Flow:
        edges = self._edges[:count].copy()
        return Flow(self._list(edges), edges, self._flows[:count].copy())

    def split(self, ways: Ways, search: Search) -> Split:
        """Paths as trades."""
        rows = zip(ways.edges.tolist(), ways.lengths.tolist(), strict=True)
        paths = [[self.trades[e] for e in row[:length]] for row, length in rows]
        amount = float(search.amounts[0])
        return Split(paths, [flow / amount for flow in ways.flows.tolist()])

    def _list(self, edges: Ints) -> list[Trade]:
        return [*map(self.trades.__getitem__, edges.tolist())]
