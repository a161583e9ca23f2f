"""Markets read from lists of pairs, as `./run bench real` measures them."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pytest
from benchmarks._pairs import Pairs, PairsError, certified, read_pairs, without_arbitrage

from millrace.dex.market import DictMarket
from millrace.routing.router import Limits, Router

UNIT = 10**18
PAIRS = (
    ("HUB", "A", 1_000 * UNIT, 5_000 * UNIT),
    ("HUB", "B", 1_000 * UNIT, 2_000 * UNIT),
    ("A", "B", 4_000 * UNIT, 1_500 * UNIT),  # 0.375, where the way over HUB gives 0.4
    ("HUB", "END", 50 * UNIT, 900 * 10**6),
    ("HUB", "DUST", 2_000, 9_000),
    ("FAR", "AWAY", UNIT, UNIT),
)


def row(name: str, a: str, b: str, reserve_a: int, reserve_b: int) -> dict[str, object]:
    tokens = {"token0": {"address": a}, "token1": {"address": b}}
    return {"address": name, **tokens, "reserve0": reserve_a, "reserve1": reserve_b}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files of pairs."""
    rows = [row(f"0x{k}", *pair) for k, pair in enumerate(PAIRS)]
    (tmp_path / "one.json").write_text(json.dumps(rows[:3]))
    (tmp_path / "two.json").write_text(json.dumps(rows[3:]))
    return tmp_path


def best_cycle(pairs: Pairs) -> float:
    """What a unit becomes on the best way around three tokens, at spot rates less the fee."""
    rates: dict[tuple[str, str], float] = {}
    for pool in pairs.pools:
        for i in (0, 1):
            rate = pool.reserves[1 - i] / pool.reserves[i] * (1.0 - pool.total_fee / pool.fee_base)
            rates[pool.tokens[i], pool.tokens[1 - i]] = rate
    names = itertools.permutations(("hub", "a", "b"))
    return max(math.prod(rates[pair] for pair in ((x, y), (y, z), (z, x))) for x, y, z in names)


def test_pairs_that_are_connected_and_deep_enough_are_the_market(folder: Path) -> None:
    """A folder is all of its files; the token of most pairs is the hub; shallow and unreachable pairs are left out."""
    pairs = read_pairs(folder, UNIT)
    assert pairs.hub == "hub"
    assert [pool.tokens for pool in pairs.pools] == [("hub", "a"), ("hub", "b"), ("a", "b"), ("hub", "end")]
    assert len(read_pairs(folder, 1.0).pools) == 5
    assert len(read_pairs(folder / "one.json", UNIT).pools) == 3


def test_who_gives_something_else_is_told_what_is_wanted(tmp_path: Path) -> None:
    """A missing file, a folder without pairs, and a file of something else each end in what the format is."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "other.json").write_text('[{"reserves": [1, 2]}]')
    (tmp_path / "text.json").write_text("no JSON")
    for name in ("missing.json", "empty", "other.json", "text.json"):
        with pytest.raises(PairsError, match=r"want a JSON file, or a folder of them") as error:
            read_pairs(tmp_path / name, UNIT)
        assert str(tmp_path / name) in str(error.value)


def test_no_cycle_gains_once_its_arbitrage_is_taken(folder: Path) -> None:
    """Around the triangle a unit became more before, and becomes less than one after; pairs in no cycle stay."""
    pairs = read_pairs(folder, UNIT)
    left = without_arbitrage(pairs)
    assert best_cycle(pairs) > 1.05
    assert best_cycle(left) < 1.0
    assert left.pools[3] == pairs.pools[3]


@pytest.mark.parametrize("pair", [("hub", "a"), ("end", "b"), ("a", "b"), ("b", "end")])
def test_no_route_pays_more_than_the_certificate(folder: Path, pair: tuple[str, str]) -> None:
    """It bounds what the router finds, and where no cycle gains it is reached."""
    for taken in (False, True):
        pairs = read_pairs(folder, UNIT)
        pairs = without_arbitrage(pairs) if taken else pairs
        amount = 10**7 if pair[0] == "end" else 10 * UNIT
        upper = certified(pairs, *pair, amount)
        market = DictMarket(pairs.pools, pairs.hub)
        market.reaches = lambda _: True  # type: ignore[method-assign]
        paid = Router(pairs.pools, market).forward(*pair, amount, Limits(), "hybrid").execution.amount_out
        assert paid <= upper * (1.0 + 1e-9)
        if taken:
            assert paid >= upper * (1.0 - 1e-5)
