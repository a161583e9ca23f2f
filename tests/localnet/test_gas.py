"""Gas prices keep the scale of the live chain."""

import pytest

from millrace.dex.aggregator_contract import Action
from millrace.localnet import gas


@pytest.mark.parametrize(("pools", "least", "most"), [(1, 5, 8), (2, 10, 16), (3, 15, 24), (8, 40, 50)])
def test_a_route_costs_what_it_does_on_mainnet(pools: int, least: int, most: int) -> None:
    """About 8 M for one pool, 16 to 24 M for two or three, about 50 M for a complex split."""
    for action in (Action.XEXCHANGE_SWAP, Action.ONEDEX_SWAP, Action.JEX_SWAP, Action.ASH_STABLE_SWAP):
        cost = gas.CALL + pools * gas.of_action(action)
        assert least * 10**6 <= cost <= most * 10**6


def test_every_action_has_a_price_and_unknown_ones_are_not_free() -> None:
    """A program cannot contain work that costs nothing."""
    assert all(gas.of_action(action) > 0 for action in Action)
    assert gas.of_action(200) == gas.SWAP


def test_a_longest_program_does_not_fit_into_a_transaction() -> None:
    """The gas limit of a transaction bounds the work of a call long before the number of instructions does."""
    assert 1024 * min(gas.of_action(action) for action in Action) > 600_000_000
