"""A document from recorded states through the real wire forms, and what happens when parts of it fail."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from millrace.chain import address
from millrace.collector import app as collector_app
from millrace.collector import known
from millrace.collector.app import Served
from millrace.collector.collect import Collected, CollectError, Collector
from millrace.collector.gateway import Gateway
from millrace.collector.settings import CollectorSettings
from millrace.collector.tokens import TokenBook
from millrace.dex.constant_product import JexPool, OneDexPool, XExchangePool
from millrace.dex.crypto import AshCryptoPool
from millrace.dex.document import decode
from millrace.dex.pool import PoolState
from millrace.dex.stable import AshStablePool, JexStablePool

WEGLD_USDC = address.decode("erd1qqqqqqqqqqqqqpgqeel2kumf0r8ffyhth7pqdujjat9nx0862jpsg2pqaq")
SEGLD_WEGLD = "erd1qqqqqqqqqqqqqpgqaf8fzwmas77xxr7qwnxd6j3qsctv55e74fvsmvq675"
USDT_ASH = "erd1qqqqqqqqqqqqqpgqn7969pvzaatp8p9yu6u5h2ce2gyw0x9j4fvsplvthl"
JEX_WEGLD = "erd1qqqqqqqqqqqqqpgquenuwz852khuxcau49md27wk2qp03v4s6avsdvmxkc"
JEX_STABLE = "erd1qqqqqqqqqqqqqpgqahfmv4apudlzgawgcvp2zr65dtufqfmy6avsazkewu"


def settings_for(standin: Any, **changes: Any) -> CollectorSettings:
    return CollectorSettings(
        **{
            "gateway": standin.url,
            "ashswap_stable_pools": (SEGLD_WEGLD,),
            "ashswap_crypto_pools": (USDT_ASH,),
            "jex_pools": (JEX_WEGLD,),
            "jex_stable_pools": (JEX_STABLE,),
            "port": 0,
        }
        | changes
    )


class Bench:
    """A collector against the stand-in."""

    def __init__(self, standin: Any, session: aiohttp.ClientSession) -> None:
        self.standin = standin
        self.session = session

    def collector(self, **changes: Any) -> Collector:
        settings = settings_for(self.standin, **changes)
        gateway = Gateway(self.session, settings)
        return Collector(settings, gateway, TokenBook(gateway))

    async def collect(self, **changes: Any) -> Collected:
        return await self.collector(**changes).collect()


@pytest.fixture
async def bench(standin: Any) -> AsyncIterator[Bench]:
    async with aiohttp.ClientSession() as session:
        yield Bench(standin, session)


async def test_all_four_exchanges(bench: Bench) -> None:
    """Every kind of pool arrives with its recorded numbers, and the document decodes to the same."""
    collected = await bench.collect()
    kinds = Counter(type(pool) for pool in collected.document.pools)
    others = (XExchangePool, JexPool, JexStablePool, AshStablePool, AshCryptoPool)
    assert kinds == {OneDexPool: 5} | dict.fromkeys(others, 1)
    by_kind = {type(pool): pool for pool in collected.document.pools}
    x = by_kind[XExchangePool]
    assert isinstance(x, XExchangePool)
    assert (x.reserves, x.lp_supply) == ((81478482319716395147753, 4878990096191), 9390873908175)
    assert (x.total_fee, x.special_fee, x.fee_enabled, x.lp_token) == (300, 50, True, "EGLDUSDC-594e5e")
    ash = by_kind[AshStablePool]
    assert isinstance(ash, AshStablePool)
    assert (ash.prices, ash.pool_type, ash.amp) == ((1054372717511654654, 10**18), "lending", 256)
    crypto = by_kind[AshCryptoPool]
    assert isinstance(crypto, AshCryptoPool)
    assert (crypto.decimals, crypto.d, crypto.ramping) == ((6, 18), 14713381882176947720176, False)
    assert crypto.amount_out(0, 1, 100 * 10**6) == 158_153_183_456_644_670_162_885
    stable = by_kind[JexStablePool]
    assert isinstance(stable, JexStablePool)
    assert stable.amount_out(1, 0, 50_000_000_000) == 50_009_246_733
    jex = by_kind[JexPool]
    assert isinstance(jex, JexPool)
    assert (jex.lp_fee, jex.platform_fee, jex.state) == (20, 20, PoolState.ACTIVE)
    assert decode(collected.data) == collected.document
    assert collected.document.block.nonce == 20990000


async def test_onedex_pairs_of_both_layouts(bench: Bench) -> None:
    """Pairs with a fee of their own give half of it away; older ones use the contract's; dead ones are left out."""
    collected = await bench.collect(exchanges=("OneDex",))
    pairs = {pool.pair_id: pool for pool in collected.document.pools if isinstance(pool, OneDexPool)}
    assert sorted(pairs) == [1, 2, 9, 121, 947]
    assert (pairs[9].total_fee, pairs[9].special_fee + pairs[9].staking_fee) == (100, 50)
    assert pairs[9].view_amount_out(0, 1, 10**18) == 2834498644189293
    assert (pairs[121].total_fee, pairs[121].special_fee, pairs[121].staking_fee) == (30, 1, 9)
    assert pairs[121].state == PoolState.NO_SWAPS
    assert pairs[1].main == (False, True)
    assert pairs[947].main == (False, True)
    router = known.ONEDEX_ROUTER
    assert {(item.pool, item.reason) for item in collected.skipped} == {
        (f"o:{router}:200", "inactive"),
        (f"o:{router}:201", "empty"),
    }


def token_id_keys(collected: Collected) -> bool:
    (pool,) = [pool for pool in collected.document.pools if isinstance(pool, JexPool)]
    assert decode(collected.data) == collected.document
    return pool.token_id_keys


FIRST, SECOND = "first_token_id", "second_token_id"


@pytest.mark.parametrize(
    ("stored", "seen"),
    [
        ({}, False),
        ({"first_token": b"WEGLD-bd4d79", "second_token": b"JEX-9040ca"}, False),
        ({FIRST: b"WEGLD-bd4d79"}, False),
        ({FIRST: b"JEX-9040ca", SECOND: b"WEGLD-bd4d79"}, False),
        ({FIRST: b"WEGLD-bd4d79", SECOND: b"JEX-9040ca"}, True),
    ],
)
async def test_a_jex_pair_takes_deposits_only_where_its_keys_were_seen(
    bench: Bench, stored: dict[str, bytes], seen: bool
) -> None:
    """Both tokens have to be stored where the aggregator contract reads them; the published pair has other names."""
    bench.standin.keys = {(address.decode(JEX_WEGLD), key): value for key, value in stored.items()}
    assert token_id_keys(await bench.collect(exchanges=("Jex",))) is seen


@pytest.mark.parametrize("fault", ["dead", "refusals"])
async def test_a_key_that_nobody_tells_costs_no_pool(bench: Bench, fault: str) -> None:
    """A gateway without storage keys, or one that is down, leaves the pair in the document, without deposits."""
    stored = {FIRST: b"WEGLD-bd4d79", SECOND: b"JEX-9040ca"}
    bench.standin.keys = {(address.decode(JEX_WEGLD), key): value for key, value in stored.items()}
    if fault == "dead":
        bench.standin.dead = {SECOND}
    else:
        bench.standin.refusals[SECOND] = "no such endpoint"
    collector = bench.collector(exchanges=("Jex",), attempts=1)
    assert token_id_keys(await collector.collect()) is False
    asked = bench.standin.asked[SECOND]
    await collector.collect()
    # What a gateway does not have is asked again as seldom as other things that hardly change; a lost answer at once.
    assert bench.standin.asked[SECOND] == asked + (fault == "dead")
    bench.standin.dead.clear()
    assert token_id_keys(await collector.collect()) is (fault == "dead")


async def test_tokens_of_the_document(bench: Bench) -> None:
    """Each token that a pool names is there with its decimals, LP tokens with the pool they belong to."""
    document = (await bench.collect()).document
    tokens = {token.identifier: token for token in document.tokens}
    assert tokens["USDC-c76f1f"].decimals == 6
    assert tokens["EGLDUSDC-594e5e"].is_lp
    assert tokens["EGLDUSDC-594e5e"].lp_of == f"x:{address.encode(WEGLD_USDC)}"
    assert "RDG-e413f1" in tokens
    assert tokens.keys() >= {token for pool in document.pools for token in pool.tokens}


async def test_a_second_round_asks_less(bench: Bench) -> None:
    """Decimals and LP tokens are asked once, reserves and states each time."""
    collector = bench.collector()
    await collector.collect()
    before = bench.standin.asked.copy()
    bench.standin.views[WEGLD_USDC, "getReservesAndTotalSupply", ()] = [b"\x10", b"\x20", b"\x30"]
    again = await collector.collect()
    asked = bench.standin.asked - before
    assert asked["getTokenProperties"] == asked["getLpTokenIdentifier"] == asked["getTotalFeePercent"] == 0
    assert asked["getReservesAndTotalSupply"] == asked["getStatus"] - 1 == 1
    (pool,) = [pool for pool in again.document.pools if isinstance(pool, XExchangePool)]
    assert (pool.reserves, pool.lp_supply) == ((16, 32), 48)


async def test_one_broken_pool_is_left_out(bench: Bench) -> None:
    """A pool that cannot be read or would be refused is named; the others are served."""
    views = bench.standin.views
    views[address.decode(JEX_WEGLD), "getStatus", ()] = [b"\x00\x01"]
    del views[address.decode(SEGLD_WEGLD), "getAmpFactor", ()]
    views[address.decode(USDT_ASH), "getOutFee", ()] = [b"\xff" * 8]
    collected = await bench.collect()
    reasons = {item.pool.partition(":")[2]: item.reason for item in collected.skipped}
    assert "jex_status: 4 bytes expected" in reasons[JEX_WEGLD]
    assert reasons[SEGLD_WEGLD] == "getAmpFactor: invalid function"
    assert "not below the base" in reasons[USDT_ASH]
    assert {type(pool) for pool in collected.document.pools} == {XExchangePool, OneDexPool, JexStablePool}


async def test_entries_of_a_listing_that_cannot_be_read_are_left_out(bench: Bench) -> None:
    """One pair in an unknown layout costs that pair, not its exchange."""
    views = bench.standin.views
    pairs = next(key for key in views if key[1] == "viewPairsPaginated" and len(views[key]) > 1)
    metadata = next(key for key in views if key[1] == "getAllPairContractMetadata")
    before = len((await bench.collect(exchanges=("XExchange", "OneDex"))).document.pools)
    views[pairs] = [b"\x00\x01", *views[pairs]]
    views[metadata] = [*views[metadata], b"\xff\xff\xff\xff"]
    collected = await bench.collect(exchanges=("XExchange", "OneDex"))
    assert len(collected.document.pools) == before
    assert {f"o:{known.ONEDEX_ROUTER} #0", f"x:{known.XEXCHANGE_ROUTER} #1"} <= {
        item.pool for item in collected.skipped
    }


async def test_a_main_token_that_is_no_text_makes_no_document(bench: Bench) -> None:
    """What lists an exchange and cannot be read is an error of the round, not the end of the process."""
    key = next(key for key in bench.standin.views if key[1] == "getMainPairTokens")
    bench.standin.views[key] = [b"\xff\xfe"]
    with pytest.raises(CollectError, match="ASCII"):
        await bench.collect(exchanges=("OneDex",))


async def test_a_gateway_that_dies_in_the_middle_makes_no_document(bench: Bench) -> None:
    """Where many pools of an exchange get no answer, the last good document is better than one without them."""
    metadata = next(key for key in bench.standin.views if key[1] == "getAllPairContractMetadata")
    (pair,) = bench.standin.views[metadata]
    bench.standin.views[metadata] = [pair[:-1] + bytes((last,)) for last in range(3)]
    for (contract, *asked), values in list(bench.standin.views.items()):
        if contract == WEGLD_USDC:
            bench.standin.views |= {(contract[:-1] + bytes((last,)), *asked): values for last in range(3)}
    bench.standin.dead.add("getReservesAndTotalSupply")
    with pytest.raises(CollectError, match="no answer about 3 of 3 pools"):
        await bench.collect(exchanges=("XExchange",), attempts=2)


async def test_unknown_decimals_leave_a_pool_out(bench: Bench) -> None:
    """A token that the system contract does not know costs its pools, no more."""
    views = bench.standin.views
    for key in [key for key in views if key[1] == "getTokenProperties" and key[2] == (b"ESTAR-461bab",)]:
        views[key] = [b"ESTAR", b"FungibleESDT", b"NumDecimals-19"]
    collected = await bench.collect(exchanges=("OneDex",))
    assert "ESTAR-461bab: the system contract names no usable decimals" in {item.reason for item in collected.skipped}
    assert len(collected.document.pools) == 4


async def test_plain_pools_without_prices(bench: Bench) -> None:
    """A plain AshSwap pool whose tokens have no price to ask for has prices of 1; a lending pool must have them."""
    views, pool = bench.standin.views, address.decode(SEGLD_WEGLD)
    for key in [key for key in views if key[1] == "getTokenPrice"]:
        del views[key]
    assert len((await bench.collect(exchanges=("AshSwap",))).document.pools) == 1
    views[pool, "getPoolType", ()] = [b""]
    collected = await bench.collect(exchanges=("AshSwap",))
    (plain,) = [pool for pool in collected.document.pools if isinstance(pool, AshStablePool)]
    assert (plain.prices, plain.pool_type) == ((10**18, 10**18), "plain")


async def test_pools_that_a_router_lists(bench: Bench) -> None:
    """AshSwap's router, where given, adds its stable pools to those named."""
    router = bytes(31) + b"\x09"
    bench.standin.views[router, "getAllPoolAddresses", ()] = [address.decode(SEGLD_WEGLD)]
    collected = await bench.collect(
        exchanges=("AshSwap",), ashswap_stable_pools=(), ashswap_crypto_pools=(), ashswap_router=address.encode(router)
    )
    assert [type(pool) for pool in collected.document.pools] == [AshStablePool]


async def test_restricted_pools_are_marked(bench: Bench) -> None:
    """No view tells of a pool's list of callers, so the setting does; paused pairs keep their liquidity."""
    bench.standin.views[address.decode(JEX_WEGLD), "getStatus", ()][0] = (
        b"\x01" + bench.standin.views[address.decode(JEX_WEGLD), "getStatus", ()][0][1:]
    )
    collected = await bench.collect(exchanges=("Jex",), jex_restricted=(JEX_STABLE,))
    by_kind = {type(pool): pool for pool in collected.document.pools}
    stable, pair = by_kind[JexStablePool], by_kind[JexPool]
    assert isinstance(stable, JexStablePool)
    assert stable.restricted
    assert pair.state == PoolState.NO_SWAPS


async def test_a_busy_gateway_is_asked_again(bench: Bench) -> None:
    """429, 5xx and lost answers are retried, as long as the gateway asks for."""
    bench.standin.faults += [
        web.Response(status=429, headers={"Retry-After": "0"}),
        web.Response(status=503, headers={"Retry-After": "0"}),
    ]
    assert len((await bench.collect()).document.pools) == 10


@pytest.mark.parametrize(
    "answer",
    [
        {"status": 429, "headers": {"Retry-After": "0"}},
        {"status": 500, "headers": {"Retry-After": "0"}},
        {"body": b"<html>"},
        {"body": b"[" * 100_000},
        {"body": b'{"data": {"data": {"returnCode": "ok", "returnData": ["***"]}}}'},
        {"body": b'{"data": null, "error": "no such thing"}'},
        {"body": b'{"data": {"data": {"returnCode": "out of gas", "returnMessage": ""}}}'},
    ],
    ids=str,
)
async def test_a_gateway_that_stays_broken(bench: Bench, answer: dict[str, Any]) -> None:
    """When an exchange cannot be listed there is no document, and the reason is named."""
    bench.standin.faults += [web.Response(**answer) for _ in range(40)]
    with pytest.raises(CollectError) as caught:
        await bench.collect(exchanges=("XExchange",), attempts=2)
    assert str(caught.value)


async def test_queries_are_bounded(bench: Bench) -> None:
    """Never more questions at a time than the setting allows."""
    await bench.collect(parallel=3)
    assert 1 < bench.standin.busiest <= 3


async def test_the_service_serves_the_last_good_document(standin: Any, tmp_path: Path) -> None:
    """`/pools` and `/health` answer from the newest round; a failed round leaves it in place."""
    settings = settings_for(standin, output=str(tmp_path / "pools.json"), token_cache=str(tmp_path / "tokens.json"))
    served = Served(settings)
    async with aiohttp.ClientSession() as session:
        gateway = Gateway(session, settings)
        book = TokenBook(gateway, tmp_path / "tokens.json")
        collector = Collector(settings, gateway, book)
        server = TestServer(served.application())
        await server.start_server()
        try:
            async with session.get(server.make_url("/pools")) as answer:
                assert answer.status == 503
            collected = await served.round(collector)
            standin.views.clear()
            with pytest.raises(CollectError):
                await served.round(collector)
            async with session.get(server.make_url("/pools")) as answer:
                assert await answer.read() == collected.data == (tmp_path / "pools.json").read_bytes()
                tag = answer.headers["ETag"]
            for known, status in ((tag, 304), (f'"x", W/{tag}', 304), ("*", 304), ('"x"', 200), ("nonsense", 200)):
                async with session.get(server.make_url("/pools"), headers={"If-None-Match": known}) as answer:
                    assert answer.status == status, known
                    assert answer.headers["ETag"] == tag
                    assert await answer.read() == (b"" if status == 304 else collected.data)
            async with session.get(server.make_url("/health")) as answer:
                health = await answer.json()
            assert (health["status"], health["pools"], health["rounds"]) == ("ok", 10, 1)
            assert health["lastError"] == "getAllPairContractMetadata: invalid function"
        finally:
            await server.close()
        book.save()
        assert json.loads((tmp_path / "tokens.json").read_bytes())["USDC-c76f1f"][0] == 6
        asked = standin.asked["getTokenProperties"]
        assert await TokenBook(gateway, tmp_path / "tokens.json").decimals("USDC-c76f1f") == 6
        assert standin.asked["getTokenProperties"] == asked


async def test_once_writes_and_ends(standin: Any, tmp_path: Path) -> None:
    """With `once` the process makes one document; without one to make it ends with the reason."""
    output = tmp_path / "pools.json"
    await collector_app.run(settings_for(standin, once=True, output=str(output)), asyncio.Event())
    assert len(decode(output.read_bytes()).pools) == 10
    standin.views.clear()
    with pytest.raises(SystemExit, match="no document: "):
        await collector_app.run(settings_for(standin, once=True, output=str(output)), asyncio.Event())


async def test_once_after_once_hears_of_powers(standin: Any, tmp_path: Path) -> None:
    """Run again and again over one cache, it asks about a few old tokens after each document."""
    output, cache = tmp_path / "pools.json", tmp_path / "tokens.json"
    cache.write_bytes(b'{"USDC-c76f1f": [6, "WrappedUSDC", []]}')
    key = next(key for key in standin.views if key[2] == (b"USDC-c76f1f",) and key[1] == "getTokenProperties")
    standin.views[key] = [*standin.views[key], b"CanFreeze-true"]
    powers = []
    for _ in range(2):
        settings = settings_for(standin, once=True, output=str(output), token_cache=str(cache))
        await collector_app.run(settings, asyncio.Event())
        powers.append({token.identifier: token.powers for token in decode(output.read_bytes()).tokens}["USDC-c76f1f"])
    assert powers == [(), ("freeze",)]


async def test_rounds_wait_for_no_powers(standin: Any, tmp_path: Path) -> None:
    """Where only questions about tokens hang, document follows document."""
    cache, stop = tmp_path / "tokens.json", asyncio.Event()
    settings = settings_for(standin, refresh_seconds=0.05, token_cache=str(cache), output=str(tmp_path / "pools.json"))
    await collector_app.run(msgspec.structs.replace(settings, once=True), stop)
    cache.write_bytes(msgspec.json.encode({name: known[:3] for name, known in json.loads(cache.read_bytes()).items()}))
    standin.hanging.add("getTokenProperties")
    running = asyncio.create_task(collector_app.run(settings, stop))
    async with asyncio.timeout(20):
        await standin.hung.wait()
        while not standin.rounds.empty():
            standin.rounds.get_nowait()
        for _ in range(3):
            await standin.rounds.get()
        stop.set()
        await running


async def test_the_process_runs_until_stopped(standin: Any) -> None:
    """Rounds follow each other until the stop event."""
    stop = asyncio.Event()
    running = asyncio.create_task(collector_app.run(settings_for(standin, refresh_seconds=0.05), stop))
    async with asyncio.timeout(20):
        for _ in range(3):
            await standin.rounds.get()
        stop.set()
        await running
