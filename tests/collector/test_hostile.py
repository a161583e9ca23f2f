"""Gateways that answer what no contract would: a pool may be lost by it, the collector and the other pools are not."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from millrace.chain import address
from millrace.chain.abi import nested_biguint, nested_bool, nested_bytes, nested_list, nested_uint, top_uint
from millrace.collector import app, exchanges, harvest, known, views
from millrace.collector.app import Served
from millrace.collector.collect import Collected, CollectError, Collector
from millrace.collector.gateway import Gateway, GatewayError
from millrace.collector.settings import CollectorSettings
from millrace.collector.tokens import TokenBook
from millrace.dex import entries, wire
from millrace.dex.document import Block, decode
from waiting import until

POOLS = {
    "ashswap_stable_pools": ("erd1qqqqqqqqqqqqqpgqaf8fzwmas77xxr7qwnxd6j3qsctv55e74fvsmvq675",),
    "ashswap_crypto_pools": ("erd1qqqqqqqqqqqqqpgqn7969pvzaatp8p9yu6u5h2ce2gyw0x9j4fvsplvthl",),
    "jex_pools": ("erd1qqqqqqqqqqqqqpgquenuwz852khuxcau49md27wk2qp03v4s6avsdvmxkc",),
    "jex_stable_pools": ("erd1qqqqqqqqqqqqqpgqahfmv4apudlzgawgcvp2zr65dtufqfmy6avsazkewu",),
}
OWNER = b"\x0e" * 32

LISTINGS = ("getAllPairContractMetadata", "viewPairsPaginated")

FORMS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "nothing": lambda values: [],
    "empty": lambda values: [b""],
    "cut": lambda values: [value[:-1] for value in values],
    "too long": lambda values: [value + b"\0" for value in values],
    "twice": lambda values: values * 2,
    "zeros": lambda values: [bytes(len(value)) for value in values],
    "largest": lambda values: [b"\xff" * len(value) for value in values],
    "count": lambda values: [b"\xff\xff\xff\xff" + value[4:] for value in values],
    "huge": lambda values: [b"\1" + bytes(20_000)] * max(1, len(values)),
    "digits": lambda values: [b"NumDecimals-" + b"0" * 5_000] * max(1, len(values)),
}


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made


def collector(standin: Any, session: aiohttp.ClientSession, **changes: Any) -> Collector:
    settings = CollectorSettings(gateway=standin.url, attempts=1, **(POOLS | changes))
    gateway = Gateway(session, settings)
    return Collector(settings, gateway, TokenBook(gateway))


@pytest.mark.parametrize("form", FORMS)
async def test_every_view_may_answer_anything(standin: Any, session: aiohttp.ClientSession, form: str) -> None:
    """Whatever one view answers, there is a document its reader accepts, or an error of this round."""
    honest = dict(standin.views)
    whole = len((await collector(standin, session).collect()).document.pools)
    documents = 0
    keys = list({key[:2]: key for key in reversed(honest)}.values())  # each view of each contract once
    for key in keys:
        standin.views = honest | {key: FORMS[form](honest[key])}
        try:
            collected = await collector(standin, session).collect()
        except CollectError:
            continue
        documents += 1
        pools = decode(collected.data).pools
        assert len(pools) <= whole
        assert len(pools) == whole or collected.skipped or key[1] in LISTINGS, key
    assert documents > len(keys) // 2


async def test_a_failure_leaves_nothing_in_the_log(
    standin: Any, session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    """Questions of a round that was given up end without a traceback."""
    caplog.set_level(logging.WARNING)
    standin.views = {key: value for key, value in standin.views.items() if key[1] != "getTokenProperties"}
    with pytest.raises(CollectError):
        await collector(standin, session).collect()
    await asyncio.sleep(0)
    assert not caplog.records


async def test_a_stable_pool_of_four_billion_tokens(standin: Any, session: aiohttp.ClientSession) -> None:
    """A number of tokens that the rest of the answer does not bear out takes no memory."""
    lie = nested_bool(False) + nested_uint(256, 4) + nested_uint(2**32 - 1, 4)
    lie += nested_list([nested_bytes(b"USDT-f8c08c")]) + nested_list([nested_biguint(1)])
    lie += nested_bytes(b"LPUSDCUSDT-fd8cf1") + nested_biguint(1) + OWNER + nested_uint(500, 4) + b"\0"
    lie += nested_list([]) * 3
    key = next(key for key in standin.views if address.encode(key[0]) == POOLS["jex_stable_pools"][0])
    standin.views[key] = [lie]
    collected = await collector(standin, session).collect()
    (skipped,) = [item for item in collected.skipped if item.pool.startswith("j:")]
    assert "4294967295 tokens announced" in skipped.reason


async def test_a_stable_pool_of_one_token(standin: Any, session: aiohttp.ClientSession) -> None:
    """It is left out like any pool that the document's checks refuse, and costs no other."""
    lie = nested_bool(False) + nested_uint(256, 4) + nested_uint(1, 4)
    lie += nested_list([nested_bytes(b"USDT-f8c08c")]) + nested_list([nested_biguint(1)])
    lie += nested_bytes(b"LPUSDCUSDT-fd8cf1") + nested_biguint(1) + OWNER + nested_uint(500, 4) + b"\0"
    lie += nested_list([]) * 3 + nested_list([nested_biguint(10**18)])
    whole = len((await collector(standin, session).collect()).document.pools)
    key = next(key for key in standin.views if address.encode(key[0]) == POOLS["jex_stable_pools"][0])
    standin.views[key] = [lie]
    collected = await collector(standin, session).collect()
    assert len(collected.document.pools) == whole - 1
    assert [item.pool for item in collected.skipped if item.pool.startswith("j:")] == [f"j:{address.encode(key[0])}"]


UNFORESEEN = [ZeroDivisionError, ValueError, OverflowError, IndexError, KeyError, TypeError]


@pytest.mark.parametrize("error", UNFORESEEN)
@pytest.mark.parametrize("where", ["read", "written", "checked", "priced"])
async def test_whatever_one_pool_leads_to_costs_that_pool_alone(
    standin: Any,
    session: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    error: type[Exception],
) -> None:
    """An error that nobody has thought of, at any step of a pool's way into the document, is that pool's reason."""
    whole = len((await collector(standin, session).collect()).document.pools)
    (name,) = (f"j:{text}" for text in POOLS["jex_pools"])
    write, build, decimals = wire.write, entries.build, TokenBook.info

    def wrong(*_: Any, **__: Any) -> Any:
        raise error("not thought of")

    if where == "read":
        monkeypatch.setattr(exchanges, "JexPool", wrong)
    elif where == "written":
        monkeypatch.setattr(wire, "write", lambda pool: wrong() if pool.id == name else write(pool))
    elif where == "checked":
        monkeypatch.setattr(
            entries, "build", lambda raw, context, path: (wrong if path == name else build)(raw, context, path)
        )
    else:
        monkeypatch.setattr(
            TokenBook, "info", lambda book, token: (wrong if token == "JEX-9040ca" else decimals)(book, token)
        )
    collected = await collector(standin, session).collect()
    assert len(collected.document.pools) == whole - 1
    (skipped,) = [item for item in collected.skipped if item.pool == name]
    assert "not thought of" in skipped.reason


@pytest.mark.parametrize("error", UNFORESEEN)
@pytest.mark.parametrize("listing", ["xexchange_pair", "onedex_pair"])
async def test_whatever_one_entry_of_a_listing_leads_to_costs_that_entry_alone(
    standin: Any, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, listing: str, error: type[Exception]
) -> None:
    """It is named by its place; the exchange's other pools stay."""
    whole = len((await collector(standin, session).collect()).document.pools)
    honest, count = getattr(views, listing), itertools.count()

    def pair(data: bytes) -> Any:
        if next(count) == 0:
            raise error("not thought of")
        return honest(data)

    monkeypatch.setattr(views, listing, pair)
    collected = await collector(standin, session).collect()
    assert len(collected.document.pools) == whole - 1
    assert [item.pool for item in collected.skipped if "not thought of" in item.reason] == [
        f"x:{known.XEXCHANGE_ROUTER} #0" if listing == "xexchange_pair" else f"o:{known.ONEDEX_ROUTER} #0"
    ]


@pytest.mark.parametrize("claimed", ["an LP token", "an address"])
async def test_pools_that_claim_the_same(standin: Any, session: aiohttp.ClientSession, claimed: str) -> None:
    """Two pools with one LP token, or of one address, are both doubtful: both are left out, named; the others stay."""
    jex, stable = address.decode(POOLS["jex_pools"][0]), address.decode(POOLS["ashswap_stable_pools"][0])
    changes: dict[str, Any] = {}
    whole = len((await collector(standin, session).collect()).document.pools)
    if claimed == "an LP token":
        standin.views[stable, "getLpTokenIdentifier", ()] = [b"LPJEXWEGLD-2bccc4"]
        doubtful = {f"j:{address.encode(jex)}", f"a:{address.encode(stable)}"}
    else:
        of_stable = {key: values for key, values in standin.views.items() if key[0] == stable}
        standin.views |= {(jex, *key[1:]): values for key, values in of_stable.items()}
        standin.views[jex, "getLpTokenIdentifier", ()] = [b"ALP-000001"]
        changes = {"ashswap_stable_pools": (address.encode(stable), address.encode(jex))}
        doubtful = {f"j:{address.encode(jex)}", f"a:{address.encode(jex)}"}
    collected = await collector(standin, session, **changes).collect()
    assert doubtful <= {item.pool for item in collected.skipped}
    assert len(collected.document.pools) == whole - len(
        doubtful & {f"j:{address.encode(jex)}", f"a:{address.encode(stable)}"}
    )
    assert not doubtful & {pool.id for pool in collected.document.pools}
    assert decode(collected.data) == collected.document
    named = {token for pool in collected.document.pools for token in (*pool.tokens, pool.lp_token)}
    assert {token.identifier for token in collected.document.tokens} == named


@pytest.mark.parametrize(
    "name", ["jex_pools", "jex_stable_pools", "jex_restricted", "ashswap_stable_pools", "ashswap_crypto_pools"]
)
def test_a_pool_that_is_no_address_is_found_at_the_start(name: str) -> None:
    """A mistyped setting would cost every round; it is named before there is one."""
    with pytest.raises(ValueError, match=f"{name}: "):
        CollectorSettings(**{name: (known.JEX_POOLS[0], known.JEX_POOLS[1][:-1] + "x")})
    for router in ("xexchange_router", "onedex_router", "ashswap_router"):
        with pytest.raises(ValueError, match=f"{router}: "):
            CollectorSettings(**{router: "erd1x"})


async def test_a_pair_that_is_listed_twice(standin: Any, session: aiohttp.ClientSession) -> None:
    """The first counts; a document with two pools of one name would be refused as a whole."""
    metadata = next(key for key in standin.views if key[1] == "getAllPairContractMetadata")
    (pair,) = standin.views[metadata]
    standin.views[metadata] = [pair, nested_bytes(b"MEX-455c57") + nested_bytes(b"USDC-c76f1f") + pair[-32:]]
    collected = await collector(standin, session).collect()
    (pool,) = [pool for pool in collected.document.pools if pool.id.startswith("x:")]
    assert pool.tokens == ("WEGLD-bd4d79", "USDC-c76f1f")
    assert (pool.id, "listed twice") in collected.skipped


async def test_an_exchange_of_too_many_pools(
    standin: Any, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the bound nothing is asked of the pools listed: there is no document."""
    monkeypatch.setattr(harvest, "MAX_POOLS", 2)
    metadata = next(key for key in standin.views if key[1] == "getAllPairContractMetadata")
    (pair,) = standin.views[metadata]
    standin.views[metadata] = [pair[:-1] + bytes((last,)) for last in range(3)]
    with pytest.raises(CollectError, match="3 pools are listed, at most 2"):
        await collector(standin, session, exchanges=("XExchange",)).collect()
    assert not standin.asked["getState"]


async def test_an_exchange_that_lists_nothing_any_more(standin: Any, session: aiohttp.ClientSession) -> None:
    """An exchange that had pools a round ago and lists none now is not believed; one that never had any is."""
    metadata = next(key for key in standin.views if key[1] == "getAllPairContractMetadata")
    honest, standin.views[metadata] = standin.views[metadata], []
    made = collector(standin, session)
    before = len((await made.collect()).document.pools)
    standin.views[metadata] = honest
    assert len((await made.collect()).document.pools) == before + 1
    standin.views[metadata] = []
    with pytest.raises(CollectError, match="XExchange lists no pools any more"):
        await made.collect()
    for pages in [key for key in standin.views if key[1] == "viewPairsPaginated"]:
        standin.views[pages] = []
    with pytest.raises(CollectError, match="no pair on any page, and 947 is the last"):
        await collector(standin, session, exchanges=("OneDex",)).collect()


async def test_a_page_of_more_than_was_asked_for(standin: Any, session: aiohttp.ClientSession) -> None:
    """A page longer than a page is no answer."""
    page = next(key for key, pairs in standin.views.items() if key[1] == "viewPairsPaginated" and pairs)
    standin.views[page] = standin.views[page][:1] * (exchanges.PAGE + 1)
    with pytest.raises(CollectError, match="201 pairs on a page of 200"):
        await collector(standin, session, exchanges=("OneDex",)).collect()


async def test_a_router_that_lists_what_is_no_address(standin: Any, session: aiohttp.ClientSession) -> None:
    """A listing with anything else than addresses is an error of the round."""
    router = address.decode(known.XEXCHANGE_ROUTER)
    for listed in ([b""], [b"\1" * 31], [b"\1" * 33]):
        standin.views[router, "getAllPoolAddresses", ()] = listed
        with pytest.raises(CollectError, match="addresses"):
            await collector(standin, session, ashswap_router=known.XEXCHANGE_ROUTER).collect()


async def test_an_lp_token_that_claims_a_traded_tokens_name(standin: Any, session: aiohttp.ClientSession) -> None:
    """A token's decimals are the system contract's word, whatever pool calls it its LP token."""
    lp = next(
        key for key in standin.views if key[1] == "getLpTokenIdentifier" and standin.views[key] == [b"ALP-0fe50a"]
    )
    standin.views[lp] = [b"USDC-c76f1f"]
    collected = await collector(standin, session).collect()
    (usdc,) = [token for token in collected.document.tokens if token.identifier == "USDC-c76f1f"]
    assert usdc.decimals == 6


@pytest.mark.parametrize(
    "body",
    [
        "[" * 100_000,
        '{"data":{"status":{"erd_current_round":1e999}}}',
        '{"data":{"status":[]}}',
        '{"data":null}',
        "\xff",
    ],
)
async def test_a_block_that_is_none(session: aiohttp.ClientSession, body: str) -> None:
    """Whatever is answered to the question for the block, it is a block or a `GatewayError`."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body.encode("latin-1"), content_type="application/json")

    application = web.Application()
    application.router.add_get("/network/status/1", answer)
    server = TestServer(application)
    await server.start_server()
    with pytest.raises(GatewayError, match="network/status"):
        await Gateway(session, CollectorSettings(gateway=str(server.make_url("/")))).block(1)
    await server.close()


async def block_of(session: aiohttp.ClientSession, **status: int) -> Block:
    """The block that a collector makes of a gateway's status of a shard."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"data": {"status": status}})

    application = web.Application()
    application.router.add_get("/network/status/1", answer)
    server = TestServer(application)
    await server.start_server()
    try:
        return await Gateway(session, CollectorSettings(gateway=str(server.make_url("/")))).block(1)
    finally:
        await server.close()


@pytest.mark.parametrize("stamp", [1730000000, 1730000000999])
async def test_a_block_is_told_in_seconds(session: aiohttp.ClientSession, stamp: int) -> None:
    """Nodes whose blocks are executed later tell milliseconds under the same name."""
    block = await block_of(session, erd_current_round=7, erd_nonce=5, erd_block_timestamp=stamp)
    assert (block.round, block.nonce, block.timestamp) == (7, 5, 1730000000)


async def test_where_blocks_are_executed_later_the_executed_one_is_told(session: aiohttp.ClientSession) -> None:
    """Views show the state after the last executed block, however far what is proposed is ahead."""
    status = {"erd_current_round": 7, "erd_nonce": 5, "erd_block_timestamp": 1, "erd_last_executed_nonce": 3}
    assert (await block_of(session, **status)).nonce == 3


async def test_a_pause_that_is_no_number(standin: Any, session: aiohttp.ClientSession) -> None:
    """A `Retry-After` in other digits than ours is as good as none."""
    standin.faults = [web.Response(status=503, headers={"Retry-After": "\u00b2"})]
    settings = CollectorSettings(gateway=standin.url, attempts=2)
    values = await Gateway(session, settings).view(address.decode(known.ONEDEX_ROUTER), "getLastPairId")
    assert values == [top_uint(947)]


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Rounds:
    """Stands for a collector whose documents the test sets."""

    def __init__(self, made: Collected) -> None:
        self.made = made

    async def collect(self) -> Any:
        return self.made


async def test_old_documents_are_not_served(standin: Any, session: aiohttp.ClientSession) -> None:
    """Past its age, or when the gateway's block does not move any more, the document is not handed out as new."""
    made = await collector(standin, session).collect()
    rounds, clock = Rounds(made), Clock()
    served = Served(CollectorSettings(max_age_seconds=60), clock)
    server = TestServer(served.application())
    await server.start_server()

    async def look() -> tuple[int, int, str]:
        async with session.get(server.make_url("/pools")) as pools, session.get(server.make_url("/health")) as health:
            return pools.status, health.status, (await health.json())["status"]

    assert await look() == (503, 503, "starting")
    await served.round(rounds)  # type: ignore[arg-type]
    clock.now += 60
    assert await look() == (200, 200, "ok")
    clock.now += 1
    assert await look() == (503, 503, "stale"), "no round since"
    await served.round(rounds)  # type: ignore[arg-type]
    assert await look() == (503, 503, "stale"), "the same block as a minute ago"
    rounds.made = at_block(made, round=made.document.block.round + 10)
    await served.round(rounds)  # type: ignore[arg-type]
    assert await look() == (503, 503, "stale"), "a node's clock goes on, its chain does not"
    rounds.made = at_block(made, nonce=20990001)
    await served.round(rounds)  # type: ignore[arg-type]
    assert await look() == (200, 200, "ok")
    await server.close()


def at_block(made: Collected, **changes: int) -> Collected:
    """The same market of another block."""
    block = msgspec.structs.replace(made.document.block, **changes)
    return made._replace(document=msgspec.structs.replace(made.document, block=block))


async def test_of_several_observers_the_one_that_stands_still_is_not_listened_to(
    standin: Any, session: aiohttp.ClientSession
) -> None:
    """A document of an older block than was told before is refused; two that take turns do not make a chain move."""
    made = await collector(standin, session).collect()
    rounds, clock = Rounds(made), Clock()
    served = Served(CollectorSettings(max_age_seconds=60), clock)
    await served.round(rounds)  # type: ignore[arg-type]
    ahead, behind = made, at_block(made, nonce=made.document.block.nonce - 900)
    for _ in range(7):
        clock.now += 5
        rounds.made = behind
        with pytest.raises(CollectError, match="block 20989100 is older than 20990000"):
            await served.round(rounds)  # type: ignore[arg-type]
        assert served.latest is ahead and "observers lags" in str(served.last_error)
        clock.now += 5
        rounds.made = ahead
        await served.round(rounds)  # type: ignore[arg-type]
    assert served.age() == 70
    rounds.made = at_block(made, nonce=made.document.block.nonce + 1)
    await served.round(rounds)  # type: ignore[arg-type]
    assert served.age() == 0


async def test_a_document_is_as_old_as_the_questions_for_it(standin: Any, session: aiohttp.ClientSession) -> None:
    """What a slow gateway tells in the end may have changed since the first question."""
    made, clock = await collector(standin, session).collect(), Clock()

    class Slow(Rounds):
        async def collect(self) -> Any:
            clock.now += 20
            return self.made

    served = Served(CollectorSettings(), clock)
    await served.round(Slow(made))  # type: ignore[arg-type]
    assert served.age() == 20


@pytest.mark.parametrize("error", [CollectError("no answer"), OSError("no space left"), KeyError("a defect")])
async def test_a_fault_of_each_round_is_one_line(
    standin: Any,
    session: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    """A gateway that is away for hours does not fill the log: the same is said again after a minute."""
    settings = CollectorSettings(gateway=standin.url, refresh_seconds=0.05, **POOLS)
    rounds = 0

    async def collect(self: Collector) -> Collected:
        nonlocal rounds
        rounds += 1
        raise error

    monkeypatch.setattr(Collector, "collect", collect)
    gateway = Gateway(session, settings)
    book = TokenBook(gateway)
    running = asyncio.create_task(app._loop(settings, Served(settings), Collector(settings, gateway, book), book))
    await until(lambda: rounds > 3)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [record.name for record in caplog.records].count("millrace.collector.app") == 1


@pytest.mark.parametrize("error", [OSError("no space left"), KeyError("a defect")])
async def test_a_round_that_fails_otherwise_is_followed_by_the_next(
    standin: Any, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A full disk, or a defect of ours, costs a round and not the collector."""
    settings = CollectorSettings(gateway=standin.url, refresh_seconds=0.05, **POOLS)
    served, second = Served(settings), asyncio.Event()
    fail = [True]
    real = Collector.collect

    async def collect(self: Collector) -> Collected:
        if fail.pop() if fail else False:
            raise error
        second.set()
        return await real(self)

    monkeypatch.setattr(Collector, "collect", collect)
    gateway = Gateway(session, settings)
    book = TokenBook(gateway)
    running = asyncio.create_task(app._loop(settings, served, Collector(settings, gateway, book), book))
    await asyncio.wait_for(second.wait(), 10)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
