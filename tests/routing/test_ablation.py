"""What `./run bench ablation` leaves out is out, and comes back."""

from __future__ import annotations

from unittest.mock import Mock, call, patch

import pytest
from benchmarks import ablation

from millrace.dex.market import DictMarket
from millrace.routing.planner import Planner
from synthetic import WRAPPED, make_market


@pytest.fixture(scope="module")
def market() -> ablation.Market:
    """A few questions in a small market with mispricing, those with LP tokens in between among them."""
    pools = make_market(60, 5, noise=0.03, traded_lp=6).pools
    planner = Planner(pools, DictMarket(pools, WRAPPED), table=ablation.laws.TABLE)
    return ablation.asked("LP tokens", 5, planner, pools, 4)


def test_every_piece_comes_back(market: ablation.Market) -> None:
    """Some answers are others without some piece, and all are the same once it is there again."""

    def answers() -> list[int]:
        return [ablation.laws.ask(market.planner, *row).execution.amount_out for row in market.questions]

    before, changed = answers(), 0.0
    for piece in ablation.PYTHON:
        changed += ablation.measure(market, piece)["changed"]
        assert answers() == before, piece.name
    assert changed > 0.0


@pytest.mark.parametrize("piece", ablation.KERNEL, ids=lambda piece: piece.name)
def test_constants_of_kernels_are_switched_and_set_back(piece: ablation.Piece) -> None:
    """Each is one of those that are compiled as switches, gets another value, and its own one afterwards."""
    kernels = Mock()
    with patch.object(ablation._switches, "kernels", kernels):
        with piece.off():
            name, value = kernels.switch.call_args.args
        assert tuple(name.split(".")) in ablation._switches.SWITCHES
        assert kernels.switch.call_args != call(name, value)
        assert kernels.switch.call_args.args[0] == name
