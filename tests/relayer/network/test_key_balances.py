"""Asking what the keys hold: a new key at once, and again when the ledger wants to know; each lack is told once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from relayer_support import NETWORK, RELAYERS, FakeChainApi

from millrace.relayer.ledger.balances import Reading
from millrace.relayer.ledger.budget import Spender
from millrace.relayer.ledger.sponsor import Sponsor
from millrace.relayer.network.chain_api import ChainApi, ChainBalance
from millrace.relayer.network.key_balances import BALANCE_SECONDS, RETRY_SECONDS, KeyBalances

KEY = RELAYERS[1].public
HASH = b"h" * 32


class Asking:
    """The part under test, with a clock and a chain API of the test's own."""

    def __init__(self, api: ChainApi) -> None:
        self.now = 100.0
        self.keys: Mapping[int, bytes] = {1: KEY}
        journal: Any = None
        self.sponsor = Sponsor(NETWORK, journal, lambda: self.now, lambda: 0)
        self.asking = KeyBalances(api, self.sponsor, lambda: self.keys, lambda: self.now)

    @property
    def bound(self) -> int | None:
        return self.sponsor.balances.lower_bound(KEY)


@pytest.fixture
async def chain() -> Any:
    made = FakeChainApi()
    api = ChainApi(await made.start(), 3.0)
    yield made, api
    await api.close()
    await made.stop()


async def test_a_reading_names_its_block_where_the_api_does(chain: Any) -> None:
    """An API with a gateway's question says at which block an account was read; any other says what it holds."""
    made, api = chain
    made.set(KEY, 3, 70)
    assert await api.balance(KEY) == ChainBalance(3, 70)
    made.blocks[1] = 9, HASH
    assert await api.balance(KEY) == ChainBalance(3, 70), "an API that did not know the question is not asked at once"
    api._asks_gateway_at = 0.0
    assert await api.balance(KEY) == ChainBalance(3, 70, 9, HASH)


async def test_keys_are_asked_for_when_they_are_due(chain: Any) -> None:
    """A new key at once, a wanted one a second later at the earliest, each every 15 s."""
    made, api = chain
    made.set(KEY, 0, 70)
    world = Asking(api)
    await world.asking.refresh()
    assert world.bound == 70
    made.set(KEY, 0, 60)
    await world.asking.refresh()
    assert world.bound == 70
    world.sponsor.balances.want(KEY)
    world.now += RETRY_SECONDS
    await world.asking.refresh()
    assert world.bound == 60 and not world.sponsor.balances.wanted
    made.set(KEY, 0, 50)
    world.now += BALANCE_SECONDS
    await world.asking.refresh()
    assert world.bound == 50
    world.keys = {2: RELAYERS[2].public}
    await world.asking.refresh()
    assert world.bound is None and world.sponsor.balances.lower_bound(RELAYERS[2].public) is not None


async def test_what_the_api_does_not_answer_is_asked_again(chain: Any) -> None:
    """A key stays unknown while the chain API is down, and is asked for until it answers."""
    made, api = chain
    made.down = True
    world = Asking(api)
    await world.asking.refresh()
    assert world.bound is None and KEY in world.sponsor.balances.wanted
    made.down = False
    world.now += RETRY_SECONDS
    await world.asking.refresh()
    assert world.bound is not None


async def test_each_lack_is_told_once(chain: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A key that cannot pay is told of once, and again only after it could meanwhile."""
    _, api = chain
    world = Asking(api)
    world.sponsor.balances.watch(world.keys)

    def tell(balance: int) -> int:
        caplog.clear()
        world.sponsor.balances.read(KEY, Reading(balance, world.now))
        with caplog.at_level(logging.WARNING):
            world.asking._alarm()
        return sum(record.message == "relayer key cannot pay" for record in caplog.records)

    assert [tell(balance) for balance in (5, 4, 10**19, 5, 5)] == [1, 0, 0, 1, 0]


async def test_the_time_until_a_key_is_empty(chain: Any) -> None:
    """What a key can spend, at the rate of the last minute, or of the last hour if that was more."""
    _, api = chain
    world = Asking(api)
    world.sponsor.balances.watch(world.keys)
    world.sponsor.balances.read(KEY, Reading(10**18, world.now))
    assert world.sponsor.state_of(KEY).seconds_to_empty == float("inf")
    reservation = world.sponsor.budgets.restore(Spender(KEY, b"s"), 6 * 10**16, world.now, sign_only=False)
    world.sponsor.budgets.settle(reservation, 6 * 10**16, world.now)
    state = world.sponsor.state_of(KEY)
    assert state.seconds_to_empty == 1000.0 and state.runs_out and state.condition == "ok"
    world.now += 60.0
    assert world.sponsor.state_of(KEY).seconds_to_empty == pytest.approx(60_000.0)
