"""Spot rates over a graph of trades: what is connected with what, how far apart, and at which rate at best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millrace.routing.candidates import Search
from millrace.routing.net import EVEN, Floats, Graph, Ints
from millrace.routing.potential import is_closed, potentials, source_rate
from millrace.routing.venue import Trade

_LABELS_KEPT = 4096


class SpotGraph:
    """A graph with what has been asked about it remembered. One thread at a time."""

    def __init__(self, index: dict[str, int], graph: Graph, trades: Sequence[Trade]) -> None:
        self.index = index
        """The number of each token."""
        self._graph = graph
        self._scales: list[float] = graph.scale.tolist()
        self._trades = trades
        self._numbers_of_tokens = np.arange(len(graph.scale), dtype=np.int32)
        self._tame = not bool(np.any(graph.net.prate * graph.net.pback > EVEN))  # no two pools of a pair are at odds
        self.forget()

    def forget(self) -> None:
        """Begin with nothing remembered."""
        self._labels: dict[tuple[int, bool], tuple[Floats, bool]] = {}
        self._rates: dict[tuple[int, int], float] = {}

    def knows(self, token: str) -> bool:
        """Whether any pool holds the token."""
        return token in self.index

    def connected(self, token_in: str, token_out: str) -> bool:
        """Whether a route exists at all."""
        source, sink = self.index.get(token_in), self.index.get(token_out)
        return source is not None and sink is not None and self.best_rate(source, sink) > 0.0

    def depth(self, token: str) -> int:
        """The largest reserve of a token in any pool one can sell it to; 0 if there is none."""
        return max(
            (trade.pool.reserves[trade.i] for trade in self._trades if trade.token_in == token and trade.i >= 0),
            default=0,
        )

    def scale(self, token: str) -> float:
        """What one smallest unit of a token counts in flows: about its value."""
        return self._scales[self.index[token]] if token in self.index else 0.0

    def rate(self, token_in: str, token_out: str) -> float:
        """Best output per input of a very small trade, in smallest units; 1 for a token itself, 0 without route."""
        return 1.0 if token_in == token_out else self.spot_rate(token_in, token_out)

    def spot_rate(self, token_in: str, token_out: str) -> float:
        """Best output per input of a very small trade, in smallest units; 0 if there is no route."""
        source, sink = self.index.get(token_in), self.index.get(token_out)
        if source is None or sink is None:
            return 0.0
        return self.best_rate(source, sink) * self._scales[source] / self._scales[sink]

    def short_path(self, token_in: str, token_out: str) -> list[Trade]:
        """Trades on a path of the fewest pools, the best spot rate at each step; none if there is no path.

        No search: one that pays more may take another way.
        """
        if token_in == token_out or not self.connected(token_in, token_out):
            return []
        net, at = self._graph.net, self.index[token_in]
        away = self._pools_to(self.index[token_out])
        path: list[Trade] = []
        while away[at] > 0:
            pairs = slice(net.pptr[at], net.pptr[at + 1])
            rates = np.where(away[net.pdst[pairs]] == away[at] - 1, net.prate[pairs], 0.0)
            pair = net.pptr[at] + int(rates.argmax())
            path.append(self._trades[int(self._graph.original[net.pe0[pair]])])
            at = int(net.pdst[pair])
        return path

    def _pools_to(self, sink: int) -> Ints:
        """Fewest pools from each token to one; -1 where no path leads there."""
        net = self._graph.net
        sources = np.repeat(np.arange(len(net.pptr) - 1), np.diff(net.pptr))
        away = np.full(len(net.pptr) - 1, -1, np.int32)
        away[sink] = level = 0
        while True:
            before = sources[(net.prate > 0.0) & (away[net.pdst] == level)]
            before = before[away[before] < 0]
            if not len(before):
                return away
            level += 1
            away[before] = level

    def search(self, token_in: str, token_out: str, amount_in: int) -> Search:
        """The question in the kernels' terms."""
        source, sink = self.index[token_in], self.index[token_out]
        cycle = source == sink
        ahead, closed_ahead = self._label(source, backward=False)
        behind, closed_behind = self._label(sink, backward=True)
        return Search(
            self._numbers_of_tokens[source : source + 1],
            np.array([amount_in * self._scales[source]]),
            sink,
            cycle,
            -1 if cycle else sink,
            -1 if cycle else source,
            ahead,
            behind,
            self.best_rate(source, sink),
            closed_ahead and closed_behind and self._tame and not cycle,
        )

    def best_rate(self, source: int, sink: int) -> float:
        """Best spot rate between two tokens over at least one pool; the last ones are remembered."""
        rate = self._rates.get((source, sink))
        if rate is None:
            if len(self._rates) >= _LABELS_KEPT:
                self._rates.clear()
            behind = self.potential(sink, backward=True)
            rate = self._rates[source, sink] = source_rate(self._graph.net, source, behind)
        return rate

    def potential(self, token: int, *, backward: bool) -> Floats:
        """Best spot rates from or to a token, computed once per market."""
        return self._label(token, backward=backward)[0]

    def _label(self, token: int, *, backward: bool) -> tuple[Floats, bool]:
        """Best spot rates, and whether no cycle or longer path could better them."""
        key = (token, backward)
        found = self._labels.get(key)
        if found is None:
            if len(self._labels) >= _LABELS_KEPT:
                self._labels.clear()
            best = potentials(self._graph.net, token, backward)
            found = self._labels[key] = (best, is_closed(self._graph.net, token, backward, best))
        return found
