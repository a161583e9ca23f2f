"""Where the special fee of an xExchange pair goes: what its contract tells of it, and what happens when it does not."""

import logging
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from millrace.chain import address
from millrace.collector import known
from millrace.collector.collect import Collector
from millrace.collector.exchanges import FEE_VIEWS, Reader
from millrace.collector.gateway import Gateway
from millrace.collector.harvest import Harvest
from millrace.collector.settings import CollectorSettings
from millrace.collector.tokens import TokenBook
from millrace.dex.constant_product import FeeDestination, FeeUse, TrustedPair, XExchangePool
from millrace.dex.document import decode

PAIR = address.decode("erd1qqqqqqqqqqqqqpgqeel2kumf0r8ffyhth7pqdujjat9nx0862jpsg2pqaq")
ROUTER = address.decode(known.XEXCHANGE_ROUTER)
COLLECTOR, OUTLET = bytes(8) + b"\x0c" * 24, bytes(8) + b"\x0d" * 24

WHOLE: dict[str, Any] = {
    "fees_collector": COLLECTOR,
    "fees_collector_cut": 50_000,
    "fee_destinations": (FeeDestination(bytes(32), "MEX-455c57"),),
    "trusted_pairs": (TrustedPair(("MEX-455c57", "WEGLD-bd4d79"), OUTLET),),
}
LOST: dict[str, dict[str, Any]] = {
    "getFeesCollectorAddress": {"fees_collector": None},
    "getFeesCollectorCutPercentage": {"fees_collector": None, "fees_collector_cut": 0},
    "getFeeDestinations": {"fee_destinations": None},
    "getTrustedSwapPairs": {"trusted_pairs": None},
}
"""What is not known without each view. A collector whose cut is not known may get any part of the fee."""


def setup(pool: XExchangePool) -> dict[str, Any]:
    return {field: getattr(pool, field) for field in WHOLE}


class Bench:
    """A reader against the stand-in, and a clock that the test sets."""

    def __init__(self, standin: Any, session: aiohttp.ClientSession) -> None:
        self.standin = standin
        self.now = 0.0
        self.gateway = Gateway(session, CollectorSettings(gateway=standin.url, attempts=1))
        self._reader = Reader(self.gateway, TokenBook(self.gateway), 300.0, lambda: self.now)

    async def harvest(self) -> Harvest:
        return await self._reader.xexchange(ROUTER)

    async def pool(self) -> XExchangePool:
        (pool,) = (await self.harvest()).pools
        assert isinstance(pool, XExchangePool)
        return pool

    def asked(self) -> Counter[str]:
        """How often each view of the fee's setup was asked so far."""
        return Counter({name: count for name, count in self.standin.asked.items() if name in FEE_VIEWS})


@pytest.fixture
async def bench(standin: Any) -> AsyncIterator[Bench]:
    async with aiohttp.ClientSession() as session:
        yield Bench(standin, session)


async def test_a_pair_tells_where_its_fee_goes(bench: Bench) -> None:
    """The four views fill the four fields, and the document carries them."""
    pool = await bench.pool()
    assert setup(pool) == WHOLE
    assert pool.fee_use == FeeUse(collector=True, elsewhere=1)
    settings = CollectorSettings(gateway=bench.standin.url, exchanges=("XExchange",))
    collected = await Collector(settings, bench.gateway, TokenBook(bench.gateway)).collect()
    assert decode(collected.data).pools == (pool,)


async def test_a_pair_without_destinations_and_pairs(bench: Bench) -> None:
    """A list that is empty is none, which is not the same as not known."""
    for function in ("getFeeDestinations", "getTrustedSwapPairs"):
        bench.standin.views[PAIR, function, ()] = []
    assert setup(await bench.pool()) == WHOLE | {"fee_destinations": (), "trusted_pairs": ()}


@pytest.mark.parametrize("values", [[], [b""], [bytes(32)]], ids=["nothing", "empty", "zeros"])
async def test_a_pair_without_a_collector(bench: Bench, values: list[bytes]) -> None:
    """Each of the forms of no address says that there is no collector, also where the cut is not known."""
    bench.standin.views[PAIR, "getFeesCollectorAddress", ()] = values
    assert setup(await bench.pool()) == WHOLE | {"fees_collector": b""}
    bench.now += 300
    del bench.standin.views[PAIR, "getFeesCollectorCutPercentage", ()]
    assert setup(await bench.pool()) == WHOLE | {"fees_collector": b"", "fees_collector_cut": 0}


async def test_a_pair_that_never_stored_a_collector(bench: Bench) -> None:
    """The words in which such a contract refuses the view say that there is none; to other views they say nothing."""
    words = "storage decode error (key: feesCollectorAddress): bad array length"
    bench.standin.refusals = dict.fromkeys(FEE_VIEWS, words)
    for function in FEE_VIEWS:
        del bench.standin.views[PAIR, function, ()]
    assert setup(await bench.pool()) == {
        "fees_collector": b"",
        "fees_collector_cut": 0,
        "fee_destinations": None,
        "trusted_pairs": None,
    }


@pytest.mark.parametrize("function", FEE_VIEWS)
async def test_older_contracts_leave_it_unknown(bench: Bench, function: str, caplog: pytest.LogCaptureFixture) -> None:
    """A view that a contract does not have costs what it would tell, not the pool, and is nothing to report."""
    caplog.set_level(logging.INFO)
    del bench.standin.views[PAIR, function, ()]
    assert setup(await bench.pool()) == WHOLE | LOST[function]
    assert not [record for record in caplog.records if record.name.startswith("millrace")]


async def test_the_oldest_contracts_tell_nothing_of_it(bench: Bench) -> None:
    """A pair with none of the views is in the document, and what its swaps take is not known."""
    for function in FEE_VIEWS:
        del bench.standin.views[PAIR, function, ()]
    pool = await bench.pool()
    assert pool.fee_use is None
    assert setup(pool) == WHOLE | LOST["getFeesCollectorCutPercentage"] | LOST["getFeeDestinations"] | {
        "trusted_pairs": None
    }


BROKEN: dict[str, list[bytes]] = {
    "noise": [b"\xff" * 40],
    "too many values": [b"\1"] * 70,
    "huge": [b"\1" + bytes(20_000)],
}


@pytest.mark.parametrize("function", FEE_VIEWS)
@pytest.mark.parametrize("values", BROKEN.values(), ids=BROKEN.keys())
async def test_an_unreadable_answer_leaves_it_unknown_and_is_logged_once(
    bench: Bench, function: str, values: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """The pool stays; the log names pair and view the first time, whatever is asked again later."""
    honest, bench.standin.views[PAIR, function, ()] = bench.standin.views[PAIR, function, ()], values
    for _ in range(3):
        assert setup(await bench.pool()) == WHOLE | LOST[function]
        bench.now += 200
    assert bench.asked()[function] == 2
    (record,) = caplog.records
    assert (record.levelname, vars(record)["view"]) == ("WARNING", function)
    assert vars(record)["pool"] == f"x:{address.encode(PAIR)}"
    bench.standin.views[PAIR, function, ()] = honest
    bench.now += 300
    assert setup(await bench.pool()) == WHOLE


@pytest.mark.parametrize("state", ["told", "missing", "broken"])
async def test_it_is_asked_once_in_a_long_while(bench: Bench, state: str) -> None:
    """Not on every refresh: each view again after the slow seconds only, also where it told nothing."""
    for function in FEE_VIEWS if state != "told" else ():
        bench.standin.views[PAIR, function, ()] = [b"\xff" * 40]
        if state == "missing":
            del bench.standin.views[PAIR, function, ()]
    first = setup(await bench.pool())
    bench.now += 299
    assert setup(await bench.pool()) == first
    assert bench.asked() == dict.fromkeys(FEE_VIEWS, 1)
    bench.now += 1
    assert setup(await bench.pool()) == first
    assert bench.asked() == dict.fromkeys(FEE_VIEWS, 2)
    assert bench.standin.asked["getReservesAndTotalSupply"] == 3


@pytest.mark.parametrize("function", FEE_VIEWS)
async def test_a_gateway_that_gives_no_answer_costs_the_pool(bench: Bench, function: str) -> None:
    """As with every view: the pool is left out of this round, and the view is asked again in the next one."""
    bench.standin.dead.add(function)
    harvest = await bench.harvest()
    assert (harvest.pools, len(harvest.skipped)) == ([], 1)
    assert "status 503" in harvest.skipped[0].reason
    bench.standin.dead.clear()
    assert setup(await bench.pool()) == WHOLE
