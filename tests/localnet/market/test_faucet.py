"""The faucet gives exact amounts and keeps the chain's books straight."""

from typing import Any

import pytest

from millrace.chain.token import NATIVE
from millrace.localnet.contracts.ledger import Ledger
from millrace.localnet.market.faucet import MAX_GRANT, FaucetError, grant
from millrace.localnet.market.market import WRAPPED

SOMEBODY = bytes([9]) * 32


@pytest.mark.parametrize("token", [NATIVE, "USDC-c76f1f", "UTK-2f80e9", WRAPPED])
def test_a_grant_is_exact_wherever_the_account_lives(world: Any, token: str) -> None:
    """EGLD and market tokens arrive to the unit, also in another shard's ledger."""
    for ledger in (world.ledger, Ledger()):
        grant(world.market, world.state, ledger, SOMEBODY, token, 12_345)
        assert ledger.balance_of(SOMEBODY, token) == 12_345


def test_granted_wrapped_egld_is_backed(world: Any) -> None:
    """The wrapper gets the EGLD that makes the grant redeemable."""
    before = world.held(NATIVE, world.at.wrapper)
    grant(world.market, world.state, Ledger(), SOMEBODY, WRAPPED, 777)
    assert world.held(NATIVE, world.at.wrapper) == before + 777


def test_lp_units_come_from_the_founders(world: Any) -> None:
    """LP tokens are handed over, not minted, until the founders have no more."""
    token = world.market.pools[0].lp_token
    left = world.held(token, world.at.provider)
    grant(world.market, world.state, world.ledger, SOMEBODY, token, left)
    assert (world.held(token, SOMEBODY), world.held(token, world.at.provider)) == (left, 0)
    before = world.picture()
    with pytest.raises(FaucetError, match="only 0 of"):
        grant(world.market, world.state, world.ledger, SOMEBODY, token, 1)
    assert world.picture() == before
    world.check_solvent()


@pytest.mark.parametrize(
    ("token", "amount"), [("NOPE-123456", 5), (NATIVE, 0), (NATIVE, -5), (NATIVE, MAX_GRANT + 1), ("x" * 999, 1)]
)
def test_what_the_faucet_cannot_give_it_refuses(world: Any, token: str, amount: int) -> None:
    """Unknown tokens and impossible amounts are refused without effect."""
    before = world.picture()
    with pytest.raises(FaucetError):
        grant(world.market, world.state, world.ledger, SOMEBODY, token, amount)
    assert world.picture() == before


def test_a_full_ledger_gets_nothing_and_the_home_shard_loses_nothing(world: Any) -> None:
    """When the receiver cannot be credited, nothing was taken or minted either."""
    before = world.picture()
    with pytest.raises(FaucetError):
        grant(world.market, world.state, Ledger(max_accounts=0), SOMEBODY, WRAPPED, 5)
    assert world.picture() == before
