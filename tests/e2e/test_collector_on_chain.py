"""The collector reads the local chain through its gateway endpoints and finds the market that is there."""

from __future__ import annotations

import time

import aiohttp

from millrace.chain.address import encode
from millrace.collector.collect import Collector
from millrace.collector.gateway import Gateway
from millrace.collector.settings import CollectorSettings
from millrace.collector.tokens import TokenBook
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
    head = chain.shards[chain.home].head
    assert head is not None
    assert collected.document.block.nonce in {shard.next_nonce - 1 for shard in chain.shards.values()}
    found = {pool.id: pool for pool in collected.document.pools}
    tradable = [pool for pool in shown.pools if pool.state == "active" and getattr(pool, "enabled", True)]
    assert len(tradable) > 40
    for pool in tradable:
        amount = max(pool.reserves[0] // 100, 1)
        assert found[pool.id].amount_out(0, 1, amount) == pool.amount_out(0, 1, amount), pool.id
