"""The exact formulas of a graph's constant-product trades as columns of integers: for the walk in `flowwalk.py`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from millrace.dex.constant_product import JexPool, OneDexPool, XExchangePool
from millrace.dex.pool import Pool
from millrace.dex.steps import in_steps
from millrace.routing.net import Graph, Ints, Net, WordTable
from millrace.routing.venue import Trade

BITS = 107  # of reserves and amounts; a fee's base is at most 2^20: no sum or weighted amount exceeds 127 bits
MOST_BASE = 1 << 20
PYTHON, WEIGHTED, FEE_ON_INPUT, FEE_ON_OUTPUT = range(4)  # kinds of trades
KIND, FEE, SECOND, BASE, IN, OUT = 0, 1, 2, 3, 4, 6  # columns of `terms`; reserves take two, the upper word first


class Tables(NamedTuple):
    """What is known of the edges of a graph: the net, the exact terms of each, and the number of each edge's pool.

    A row of terms is (kind, fee, second fee, base, reserve in, reserve out); the formulas are those of
    `venue.exact_output`. All is 0 where Python has to walk: curved pools, units of liquidity, and numbers too large.
    """

    net: Net
    terms: WordTable
    pool: Ints


def make_tables(graph: Graph, trades: Sequence[Trade], pause: Callable[[], None] = lambda: None) -> Tables:
    """The tables of a graph of these trades. `pause` is called at every step."""
    ordered = [trades[k] for k in graph.original.tolist()]
    pools = list({trade.pool.id: trade.pool for trade in ordered}.values())
    numbers = {pool.id: number for number, pool in enumerate(pools)}
    pause()
    number = np.array([numbers[trade.pool.id] for trade in ordered], np.int32)
    sold = np.array([trade.i for trade in ordered], np.int32)
    facts = (
        np.frombuffer(b"".join([_facts(pool) for pool in in_steps(pools, pause)]), ">u8")
        .reshape(-1, 12)
        .astype(np.uint64)
    )
    # Of each pool two rows, for its first and for its second token when it is sold.
    fees, held = facts[:, :8].reshape(-1, 4), facts[:, 8:].reshape(-1, 2)
    side = 2 * number + np.clip(sold, 0, 1)
    terms = np.concatenate((fees[side], held[side], held[side ^ 1]), axis=1)
    terms[(sold < 0) | (terms[:, KIND] == PYTHON)] = 0
    return Tables(graph.net, terms, number)


_FEES = struct.Struct(">8Q")
_NOT_HERE = bytes(12 * 8)  # PYTHON, and nothing else


def _facts(pool: Pool) -> bytes:
    """(kind, fee, second fee, base) for each token that can be sold, then both reserves, two words each."""
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
    return _FEES.pack(first, fee, second, base, other, fee, second, base) + (a << 128 | b).to_bytes(32, "big")
