"""The collector reads the local chain through its gateway endpoints and finds the market that is there."""

from __future__ import annotations

import time
from typing import Any

import aiohttp
import pytest

from millrace.chain.address import encode
from millrace.collector.collect import Collector
from millrace.collector.gateway import Gateway
from millrace.collector.settings import CollectorSettings, RateSource
from millrace.collector.tokens import TokenBook
from millrace.dex.rate import RatePool
from millrace.localnet.chain.machine import Chain
from millrace.localnet.edges.api import Api
from millrace.localnet.edges.control import Control
from millrace.localnet.settings import LocalnetSettings
from millrace.runtime.http import HttpServer


async def test_the_collected_document_prices_like_the_chains_own() -> None:
    """Every tradable pool of the chain's document is collected over HTTP and pays the same for the same input."""
    settings = LocalnetSettings(notifier_url="", gossip=False, pools=60, tokens=30)
    chain = Chain(settings, genesis_ms=time.time_ns() // 1_000_000)
    for _ in range(5):
        chain.advance_round()
    server = HttpServer(Api(chain, Control(chain, [], lambda _: None), list).app())
    port = await server.start("127.0.0.1", 0)
    shown = chain.pool_document()
    addresses = {
        (exchange, kind): tuple(
            encode(pool.address) for pool in shown.pools if (pool.exchange, pool.kind) == (exchange, kind)
        )
        for exchange in ("AshSwap", "Jex")
        for kind in ("constant_product", "stable", "crypto")
    }
    wanted = CollectorSettings(
        gateway=f"http://127.0.0.1:{port}",
        xexchange_router=encode(chain.market.addresses.xexchange_router),
        onedex_router=encode(chain.market.addresses.onedex),
        ashswap_stable_pools=addresses["AshSwap", "stable"],
        ashswap_crypto_pools=addresses["AshSwap", "crypto"],
        jex_pools=addresses["Jex", "constant_product"],
        jex_stable_pools=addresses["Jex", "stable"],
        jex_restricted=tuple(encode(pool.address) for pool in shown.pools if getattr(pool, "restricted", False)),
    )
    async with aiohttp.ClientSession() as session:
        gateway = Gateway(session, wanted)
        collected = await Collector(wanted, gateway, TokenBook(gateway)).collect()
    await server.stop()
    executed = {chain.executed_nonce(shard) for shard in chain.shards}
    assert executed == {shown.block.nonce} == {collected.document.block.nonce}, "the state shown, not what is proposed"
    found = {pool.id: pool for pool in collected.document.pools}
    tradable = [pool for pool in shown.pools if pool.state == "active" and getattr(pool, "enabled", True)]
    assert len(tradable) > 40
    for pool in tradable:
        amount = max(pool.reserves[0] // 100, 1)
        assert found[pool.id].amount_out(0, 1, amount) == pool.amount_out(0, 1, amount), pool.id


async def test_rates_are_collected_where_views_are_named() -> None:
    """Rate and stock come from the views that the settings name; a contract without them is left out."""
    settings = LocalnetSettings(notifier_url="", gossip=False, pools=30, tokens=20, rate_pools=True)
    chain = Chain(settings, genesis_ms=time.time_ns() // 1_000_000)
    for _ in range(5):
        chain.advance_round()
    server = HttpServer(Api(chain, Control(chain, [], lambda _: None), list).app())
    port = await server.start("127.0.0.1", 0)
    shown = {pool.id: pool for pool in chain.pool_document().pools if isinstance(pool, RatePool)}
    assert len(shown) == 5
    sources = tuple(
        RateSource(
            exchange=pool.exchange,
            kind=pool.kind,
            address=encode(pool.address),
            tokens=(pool.tokens[0], pool.tokens[1]),
            native=pool.native,
            view="getRate",
            stock_view="getStock",
        )
        for pool in shown.values()
    )
    wrong = RateSource(
        exchange="Hatom",
        kind="supply",
        address=encode(chain.market.addresses.wrapper),
        tokens=sources[0].tokens,
        view="getRate",
        stock=1,
    )
    wanted = CollectorSettings(
        gateway=f"http://127.0.0.1:{port}",
        exchanges=("XExchange",),
        xexchange_router=encode(chain.market.addresses.xexchange_router),
        rates=(*sources, wrong),
    )
    async with aiohttp.ClientSession() as session:
        gateway = Gateway(session, wanted)
        collected = await Collector(wanted, gateway, TokenBook(gateway)).collect()
    await server.stop()
    found = {pool.id: pool for pool in collected.document.pools if isinstance(pool, RatePool)}
    assert found.keys() == shown.keys()
    for name, pool in shown.items():
        assert (type(found[name]), found[name].tokens, found[name].native) == (type(pool), pool.tokens, pool.native)
        paid = found[name].amount_out(0, 1, 10**15)
        assert 0 <= pool.amount_out(0, 1, 10**15) - paid <= 1, "a rate over 10^18 is rounded down"
    assert any(wrong.address in item.pool for item in collected.skipped)


@pytest.mark.parametrize(
    "changes", [{"exchange": "Nobody"}, {"address": "erd1x"}, {"view": ""}, {"base": 0}, {"stock": 0}]
)
def test_a_source_of_rates_that_says_too_little_is_refused(changes: dict[str, Any]) -> None:
    """Before anybody is asked, and by name."""
    sound = {
        "exchange": "Hatom",
        "kind": "stake",
        "address": encode(bytes(32)),
        "tokens": ("WEGLD-bd4d79", "SEGLD-3ad2d0"),
        "view": "getRate",
        "stock": 1,
    }
    RateSource(**sound)
    with pytest.raises(ValueError, match=r"."):
        RateSource(**{**sound, **changes})


def test_a_source_that_takes_egld_names_the_wrapped_token_first() -> None:
    """Another first token is refused before anybody is asked; which one is wrapped the settings say."""
    source = RateSource(
        exchange="Hatom", kind="supply", address=encode(bytes(32)), tokens=("USDC-c76f1f", "HUSDC-d80042"),
        native=True, view="getRate", stock=1,
    )  # fmt: skip
    CollectorSettings(wrapped_native_token="USDC-c76f1f", rates=(source,))
    with pytest.raises(ValueError, match="takes EGLD, and its first token is USDC-c76f1f"):
        CollectorSettings(rates=(source,))
