"""The prices of before a start are read back from the hub, for statistics alone."""

from __future__ import annotations

import time
from typing import Any

import pytest
from relayer_support import GAS_PRICE, BlockMaker, connected, start, transfer, wallet

from millrace.relayer.events import window
from millrace.relayer.statistics.gas import GasStatsData
from waiting import until

SENDER = wallet(1)


def tell(world: Any, maker: BlockMaker, first: int, count: int, *, ago: float, final: bool = True) -> None:
    """Blocks with a transaction each, the gas price of each higher than that of the one before."""
    for number in range(first, first + count):
        block = maker.block([transfer(SENDER, number, gas_price=GAS_PRICE + number)])
        block.blockData.timestampMs = int((time.time() - ago) * 1000)
        world.hub.save(block, final=final)


def prices(world: Any) -> GasStatsData:
    data: GasStatsData = world.service.statistics.gas.message(1).data
    return data


async def test_who_begins_late_tells_the_prices_of_before(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a first start the window is that of who was there all the time, and nothing else is told of those blocks; what
    is older than the window is in none."""
    monkeypatch.setattr(window, "FIRST_STEP", 2)
    maker = BlockMaker(1)
    tell(world, maker, 0, 10, ago=2_000.0)
    tell(world, maker, 10, 20, ago=600.0)
    await start(world)
    service = world.service
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic="accounts")
        await until(lambda: service.window.is_done)
        assert (prices(world).gas_price.min, prices(world).gas_price.max) == (GAS_PRICE + 10, GAS_PRICE + 29)
        assert prices(world).gas_price.percentiles.p50 == GAS_PRICE + 19
        assert service.events.taken == 0 and service.hub.last == len(world.hub.events) and not client.pushed


async def test_what_both_read_counts_once(world: Any) -> None:
    """After a restart the average is as before, also of what became final while nobody was there."""
    maker = BlockMaker(1)
    await start(world)
    service = world.service
    tell(world, maker, 0, 6, ago=60.0)
    tell(world, maker, 6, 1, ago=60.0, final=False)
    await until(lambda: prices(world).gas_price.max == GAS_PRICE + 5)
    service.bookmark.keep()
    await world.stop()
    tell(world, maker, 7, 3, ago=30.0)
    await start(world)
    service = world.service
    await until(lambda: service.window.is_done and prices(world).gas_price.max == GAS_PRICE + 9)
    assert prices(world).gas_price.avg == GAS_PRICE + sum(range(10)) // 10


async def test_it_goes_on_until_no_block_is_between(world: Any) -> None:
    """A block that was saved before the start and becomes final after it counts: who reads what comes never saw it."""
    maker = BlockMaker(1)
    tell(world, maker, 0, 3, ago=60.0, final=False)
    await start(world)
    service = world.service
    await until(lambda: world.hub.looking_back)
    assert not service.window.is_done
    tell(world, maker, 3, 1, ago=0.0)
    await until(lambda: service.window.is_done)
    assert (prices(world).gas_price.min, prices(world).gas_price.max) == (GAS_PRICE, GAS_PRICE + 3)


async def test_a_hub_that_goes_is_asked_again(world: Any) -> None:
    """What was read before its connection was lost counts once when all is read again."""
    maker = BlockMaker(1)
    tell(world, maker, 0, 3, ago=60.0)
    tell(world, maker, 3, 1, ago=60.0, final=False)
    await start(world)
    service = world.service
    await until(lambda: prices(world).gas_price.max == GAS_PRICE + 2)
    for link in list(world.hub.looking_back):
        link.abort()
    tell(world, maker, 4, 1, ago=0.0)
    await until(lambda: service.window.is_done)
    assert prices(world).gas_price.avg == GAS_PRICE + sum(range(5)) // 5
