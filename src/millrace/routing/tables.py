"""The exact formulas of a graph's constant-product trades as columns of integers: for kernels that trade."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from millrace.dex.constant_product import JexPool, OneDexPool, XExchangePool
from millrace.dex.pool import Pool
from millrace.dex.steps import in_steps
from millrace.routing.bits import high_word
from millrace.routing.compiled import inlined
from millrace.routing.net import Graph, Ints, Net, WordTable
from millrace.routing.outlets import NONE, Outlets, enough
from millrace.routing.venue import Trade
from millrace.routing.wide import Wide, minus, multiply_divide, plus

BITS = 107  # of reserves and amounts; a fee's base is at most 2^20: no sum or weighted amount exceeds 127 bits
MOST_BASE = 1 << 20
PYTHON, WEIGHTED, FEE_ON_INPUT, FEE_ON_OUTPUT = range(4)  # kinds of trades
KIND, FEE, SECOND, BASE, LEAST, IN, OUT = 0, 1, 2, 3, 4, 5, 7  # columns of `terms`; reserves take two, high word first
NO_POOL = -1


@inlined
def _times(a: Wide, b: np.uint64) -> Wide:
    """`a b`, which must be less than 2^128."""
    return a[0] * b + high_word(a[1], b), a[1] * b


@inlined
def pays(terms: WordTable, e: int, amount: Wide) -> Wide:
    """What a trade that is no `PYTHON` pays for an amount of at most `BITS` bits; all divisions round down."""
    zero = np.uint64(0)
    fee, base = (zero, terms[e, FEE]), (zero, terms[e, BASE])
    held, bought = (terms[e, IN], terms[e, IN + 1]), (terms[e, OUT], terms[e, OUT + 1])
    if terms[e, KIND] == WEIGHTED:
        weighted = _times(amount, terms[e, BASE] - terms[e, FEE])
        return multiply_divide(weighted, bought, plus(_times(held, terms[e, BASE]), weighted))
    if terms[e, KIND] == FEE_ON_INPUT:
        net = minus(amount, multiply_divide(amount, fee, base))
        return multiply_divide(net, bought, plus(held, net))
    gross = multiply_divide(amount, bought, plus(held, amount))
    paid = minus(gross, multiply_divide(gross, fee, base))
    return minus(paid, multiply_divide(gross, (zero, terms[e, SECOND]), base))


class Tables(NamedTuple):
    """What is known of the edges of a graph: the net, the exact terms of each, and the number of each edge's pool.

    A row of terms is (kind, fee, second fee, base, least, reserve in, reserve out); the formulas are those of
    the pools. All is 0 where Python has to walk: curved pools, units of liquidity, and numbers too large.
    Where `least` is not 0 it also has to for amounts below it, and above the reserve, see `outlets.enough`. `outlet` is
    by pool: the number of the pool that a trade in it moves, too, or `NO_POOL`.
    """

    net: Net
    terms: WordTable
    pool: Ints
    outlet: Ints


class Terms(NamedTuple):
    """The same by the caller's number of a trade, whatever graph it is in."""

    terms: WordTable
    pool: Ints
    outlet: Ints

    def of(self, graph: Graph) -> Tables:
        """The tables of a graph of these trades."""
        return Tables(graph.net, self.terms[graph.original], self.pool[graph.original], self.outlet)

    def moved(self, trades: Mapping[int, Trade], outlets: Outlets) -> Terms:
        """With these trades, by number, as their pools, and those that they sell fees in, are by now."""
        terms = self.terms.copy()
        terms[list(trades)] = _list_terms([*trades.values()], outlets)
        return self._replace(terms=terms)


def make_terms(trades: Sequence[Trade], outlets: Outlets = NONE, pause: Callable[[], None] = lambda: None) -> Terms:
    """The terms of trades. `pause` is called at every step."""
    pools = list({trade.pool.id: trade.pool for trade in trades}.values())
    number = {pool.id: k for k, pool in enumerate(pools)}
    pool = np.array([number[trade.pool.id] for trade in trades], np.int32)
    pause()
    return Terms(_list_terms(trades, outlets, pause), pool, _outlet_numbers(pools, number, outlets))


def _list_terms(trades: Sequence[Trade], outlets: Outlets, pause: Callable[[], None] = lambda: None) -> WordTable:
    """A row of terms for each trade."""
    pools = list({trade.pool.id: trade.pool for trade in trades}.values())
    row = {pool.id: 2 * k for k, pool in enumerate(pools)}
    facts = np.frombuffer(b"".join([_facts(pool, outlets) for pool in in_steps(pools, pause)]), ">u8").astype(np.uint64)
    # Of each pool two rows, for its first and for its second token when it is sold.
    fees, held = facts.reshape(-1, 14)[:, :10].reshape(-1, 5), facts.reshape(-1, 14)[:, 10:].reshape(-1, 2)
    sold = np.array([trade.i for trade in trades], np.int32)
    side = np.array([row[trade.pool.id] for trade in trades], np.int32) + np.clip(sold, 0, 1)
    terms = np.concatenate((fees[side], held[side], held[side ^ 1]), axis=1)
    terms[(sold < 0) | (terms[:, KIND] == PYTHON)] = 0
    return terms


def _outlet_numbers(pools: Sequence[Pool], numbers: Mapping[str, int], outlets: Outlets) -> Ints:
    """The number of each pool's outlet, if it is in the graph: nobody looks at another one."""
    found = np.full(len(pools), NO_POOL, np.int32)
    for name, buyers in outlets.of.items():
        if name in numbers:
            found[numbers[name]] = numbers.get(buyers[0].id, NO_POOL)
    return found


_FEES = struct.Struct(">10Q")
_NOT_HERE = bytes(14 * 8)  # PYTHON, and nothing else


def _facts(pool: Pool, outlets: Outlets) -> bytes:
    """(kind, fee, second fee, base, least) for each token that can be sold, then both reserves, two words each."""
    if isinstance(pool, XExchangePool):
        first = other = WEIGHTED
        fee, second = pool.total_fee, 0
    elif isinstance(pool, OneDexPool):
        first, other = [FEE_ON_INPUT if main else FEE_ON_OUTPUT for main in pool.main]
        fee, second = pool.total_fee, 0
    elif isinstance(pool, JexPool):
        first = other = FEE_ON_OUTPUT
        fee, second = pool.lp_fee, pool.platform_fee
    else:
        return _NOT_HERE
    base, (a, b) = pool.fee_base, pool.reserves
    if not (fee >= 0 and second >= 0 and fee + second <= base <= MOST_BASE) or max(a, b) >> BITS:
        return _NOT_HERE
    least, least_other = enough(pool, 0, outlets), enough(pool, 1, outlets)
    if least is None or least_other is None or max(least, least_other) >> 64 or len(outlets.of.get(pool.id, ())) > 1:
        return _NOT_HERE
    return _FEES.pack(first, fee, second, base, least, other, fee, second, base, least_other) + (a << 128 | b).to_bytes(
        32, "big"
    )
