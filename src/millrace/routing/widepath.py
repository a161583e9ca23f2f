"""Search for the best single path with many partial paths to each token.

The search in `pathsearch.py` keeps one partial path per token and number of hops. Where prices are off, the one that
brings most of a token may hold a token or a pool that the rest of the best path needs. Here many partial
paths over different sets of tokens travel on. A partial path is dropped when what it holds could not become more
than the best path pays, at the spot rates of the hops that are left. While no more partial paths meet at a token than
there is room for, the search is complete; the best path without a token twice in a market with mispricing is the
longest path of a graph, for which nothing fast is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from millrace.routing.edge import best_of_pair
from millrace.routing.jit import inlined, kernel
from millrace.routing.net import Floats, Ints, Net

MAX_HOPS = 16
FEWEST_LABELS, MOST_LABELS = 8, 64  # partial paths kept per token and number of hops
EDGE_LABELS = 48_000  # about so many per hop in the whole market
BUDGET = 400_000  # edges evaluated in one search
ROUNDS = 64  # of looking for profitable cycles
GROWTH = 1e-9  # relative: rates that still grow by less are rounding


class WideWork(NamedTuple):
    """Scratch of the search: labels by hop, token and slot, and how many there are."""

    amount: Floats  # (hop, token, slot)
    edge: Ints  # (hop, token, slot): the edge that brought the amount
    slot: Ints  # (hop, token, slot): the label it came from, at that edge's source
    tokens: npt.NDArray[np.uint64]  # (hop, token, slot): which tokens the partial path holds, hashed
    fill: Ints  # (hop, token): slots in use
    reached: Ints  # (hop, i): tokens with labels
    listed: Ints  # (hop): how many of them
    ahead: Floats  # (hops left, token): best spot rate to the sink
    first: Ints  # (hops left, token): where that way goes first
    second: Floats  # (hops left, token): best spot rate by any other way
    used: Floats  # by edge: nothing, there are no earlier chunks
    path: Ints


def make_wide_work(tokens: int, edges: int, slots: int) -> WideWork:
    """Scratch for nets of up to `tokens` tokens and `edges` edges, with so many labels for each token."""
    levels = MAX_HOPS + 1
    labels = (levels, tokens, slots)
    return WideWork(
        np.zeros(labels),
        np.zeros(labels, np.int32),
        np.zeros(labels, np.int32),
        np.zeros(labels, np.uint64),
        np.zeros((levels, tokens), np.int32),
        np.zeros((levels, tokens), np.int32),
        np.zeros(levels, np.int32),
        np.zeros((levels, tokens)),
        np.zeros((levels, tokens), np.int32),
        np.zeros((levels, tokens)),
        np.zeros(edges),
        np.zeros(levels, np.int32),
    )


@inlined
def _hash(token: int) -> np.uint64:
    """A token as 64 well-mixed bits (SplitMix64); sets of tokens are compared by their exclusive or."""
    z = np.uint64(token + 1) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.uint64(z ^ (z >> np.uint64(31)))


@inlined
def _rates_by_hops(net: Net, ww: WideWork, sink: int, hops: int) -> None:
    """Fill `ahead[h]`: the best product of spot rates over at most `h` edges from each core token to the sink.

    `first` is the token that the best way goes to first, `second` the best product over any other one: what is left
    to a path that has just come from `first`. So the bound never gains by going to and fro between two tokens.
    """
    ww.ahead[0, :] = 0.0
    ww.second[0, :] = 0.0
    ww.first[0, :] = -1
    ww.ahead[0, sink] = 1.0
    for h in range(1, hops):
        for u in net.corelist:
            best, second, first = 0.0, 0.0, -1
            for k in range(net.pptr[u], net.pcore[u]):
                v = net.pdst[k]
                value = net.prate[k] * (ww.second[h - 1, v] if ww.first[h - 1, v] == u else ww.ahead[h - 1, v])
                if value > best:
                    best, second, first = value, best, v
                elif value > second:
                    second = value
            ww.ahead[h, u] = best
            ww.second[h, u] = second
            ww.first[h, u] = first
        if not net.core[sink]:
            for k in range(net.pptr[sink], net.pptr[sink + 1]):
                u, value = net.pdst[k], net.pback[k]
                if value > ww.ahead[h, u]:
                    ww.second[h, u] = ww.ahead[h, u]
                    ww.ahead[h, u] = value
                    ww.first[h, u] = sink
                elif value > ww.second[h, u]:
                    ww.second[h, u] = value
        ww.ahead[h, sink] = 1.0
        ww.second[h, sink] = 1.0
        ww.first[h, sink] = -1


@inlined
def _holds(net: Net, ww: WideWork, hop: int, token: int, slot: int, wanted: int) -> bool:
    """Whether a partial path passes through a token before its last."""
    while hop > 0:
        edge = ww.edge[hop, token, slot]
        slot = ww.slot[hop, token, slot]
        token = net.src[edge]
        hop -= 1
        if token == wanted:
            return True
    return False


@inlined
def _add(ww: WideWork, hop: int, token: int, amount: float, edge: int, slot: int, held: np.uint64) -> None:
    """Keep a label if it is among the best of its token, once per set of tokens."""
    used, full = ww.fill[hop, token], ww.amount.shape[2]
    place, least = -1, amount
    for s in range(used):
        if ww.tokens[hop, token, s] == held:
            if amount <= ww.amount[hop, token, s]:
                return
            place = s
            break
        if used == full and ww.amount[hop, token, s] < least:
            place, least = s, ww.amount[hop, token, s]
    if place < 0:
        if used == full:
            return
        place = used
        ww.fill[hop, token] = used + 1
        if used == 0:
            ww.reached[hop, ww.listed[hop]] = token
            ww.listed[hop] += 1
    ww.amount[hop, token, place] = amount
    ww.edge[hop, token, place] = edge
    ww.slot[hop, token, place] = slot
    ww.tokens[hop, token, place] = held


@kernel
def best_wide_path(net: Net, ww: WideWork, source: int, sink: int, x: float, hops: int, floor: float) -> int:
    """The path of at most `hops` pools with the most output for `x`, if it beats `floor`; its length or 0.

    The path is left in `ww.path`. It stops after `BUDGET` evaluated edges with the best so far.
    """
    for h in range(hops + 1):
        ww.listed[h] = 0
    _rates_by_hops(net, ww, sink, hops)
    ww.amount[0, source, 0] = x
    ww.tokens[0, source, 0] = _hash(source)
    ww.fill[0, source] = 1
    ww.reached[0, 0] = source
    ww.listed[0] = 1
    best, found, last, last_slot, work = floor, 0, -1, 0, 0
    for h in range(hops):
        for i in range(ww.listed[h]):
            u = ww.reached[h, i]
            for slot in range(ww.fill[h, u]):
                have = ww.amount[h, u, slot]
                for k in range(net.pptr[u], net.pptr[u + 1]):
                    v = net.pdst[k]
                    ends = v == sink
                    if not ends and (k >= net.pcore[u] or v == source or h == hops - 1):
                        continue
                    left = hops - 1 - h
                    worth = ww.second[left, v] if ww.first[left, v] == u else ww.ahead[left, v]
                    if have * net.prate[k] * worth <= best:
                        continue
                    if not ends and _holds(net, ww, h, u, slot, v):
                        continue
                    out, edge, looked = best_of_pair(net, ww.used, k, have)
                    work += looked
                    if ends:
                        if out > best:
                            best, found, last, last_slot = out, h + 1, edge, slot
                    elif out * worth > best:
                        _add(ww, h + 1, v, out, edge, slot, ww.tokens[h, u, slot] ^ _hash(v))
            if work > BUDGET:
                break
    _read(net, ww, found, last, last_slot)
    for h in range(hops + 1):
        for i in range(ww.listed[h]):
            ww.fill[h, ww.reached[h, i]] = 0
    return found


@inlined
def _read(net: Net, ww: WideWork, length: int, last: int, slot: int) -> None:
    """Follow the labels from the last edge back to the source."""
    edge = last
    for h in range(length - 1, -1, -1):
        ww.path[h] = edge
        if h > 0:
            token = net.src[edge]
            edge = ww.edge[h, token, slot]
            slot = ww.slot[h, token, slot]


class WideSearch:
    """The search over one net, with its scratch memory: for one thread. It pays in a market with mispricing.

    Without a profitable cycle `pathsearch.py` finds the best path: the one that brings most of a token leaves most
    to go on with, and coming back to a token never pays.
    """

    def __init__(self, net: Net) -> None:
        self.net = net
        self._work: WideWork | None = None

    def best(self, source: int, sink: int, x: float, hops: int, floor: float) -> list[int]:
        """The edges of the best path found for `x` (scaled), empty unless it pays more than `floor`."""
        if self._work is None:
            tokens, count = self.net.core.size, self.net.src.size
            slots = min(max(EDGE_LABELS // max(count, 1), FEWEST_LABELS), MOST_LABELS)
            self._work = make_wide_work(tokens, count, slots)
        length = best_wide_path(self.net, self._work, source, sink, x, min(hops, MAX_HOPS), floor)
        edges: list[int] = self._work.path[:length].tolist()
        return edges


def mispriced(net: Net) -> bool:
    """Whether some cycle of trades gains at spot rates: then the best rates of walks grow without end."""
    source = np.repeat(np.arange(net.core.size), np.diff(net.pptr))
    rates = np.ones(net.core.size)
    for _ in range(ROUNDS):
        before = rates.copy()
        np.maximum.at(rates, net.pdst, before[source] * net.prate)
        if not np.any(rates > before * (1.0 + GROWTH)):
            return False
        if rates.max() > 1e100:
            break
    return True
