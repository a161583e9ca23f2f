"""Through its contracts' views the market can be read back, as from the live chain."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from millrace.chain import abi
from millrace.chain.address import ESDT_SYSTEM_CONTRACT
from millrace.collector.exchanges import Reader
from millrace.collector.gateway import ViewError
from millrace.collector.tokens import TokenBook
from millrace.dex import document as documents
from millrace.dex.constant_product import FeeUse, OneDexPool, XExchangePool
from millrace.dex.pool import Pool, PoolState
from millrace.localnet.contracts.execution import QueryError, query, stored
from millrace.localnet.market import market
from millrace.localnet.market.listing import MAIN_PAIR_TOKENS


class Gateway:
    """Answers views from a state, as a gateway does from a node."""

    def __init__(self, world: Any) -> None:
        self._state = world.state

    async def view(self, contract: bytes, function: str, *args: bytes) -> list[bytes]:
        try:
            return query(self._state, contract, function, args)
        except QueryError as error:
            raise ViewError(str(error)) from None

    async def key(self, contract: bytes, key: bytes) -> bytes:
        return stored(self._state, contract, key)

    async def value(self, contract: bytes, function: str, *args: bytes) -> bytes:
        values = await self.view(contract, function, *args)
        return values[0] if values else b""


def as_read(pool: Pool) -> Pool:
    """The pool without what no view tells: who shares in the fees that leave it."""
    if isinstance(pool, OneDexPool):
        leaving = pool.special_fee + pool.staking_fee
        return msgspec.structs.replace(pool, special_fee=leaving, staking_fee=0)
    if pool.exchange == "Jex" and pool.state == PoolState.INACTIVE:
        return msgspec.structs.replace(pool, state=PoolState.NO_SWAPS)
    return pool


async def test_every_pool_can_be_read_back_from_its_contract(world: Any) -> None:
    """A reader that knows only the routers and addresses rebuilds all pools, also after trades and deposits."""
    dice = random.Random(3)
    with_keys = world.pools("Jex")[0]
    world.ledger.put_pools((msgspec.structs.replace(with_keys, token_id_keys=True),))
    for sort in ("XExchange", "OneDex", "Jex"):
        pool = dice.choice(world.pools(sort))
        world.ledger.put_pools((pool.mint(tuple(reserve // 10 for reserve in pool.reserves)).pool,))
    gateway: Any = Gateway(world)
    reader = Reader(gateway, TokenBook(gateway))
    pools = list(world.ledger.pools.values())
    at = {
        (exchange, kind): [p.address for p in pools if (p.exchange, p.kind) == (exchange, kind)]
        for exchange, kind in {(p.exchange, p.kind) for p in pools}
    }
    restricted = frozenset(pool.address for pool in pools if getattr(pool, "restricted", False))
    onedex, main = await reader.onedex(world.at.onedex)
    harvests = [
        await reader.xexchange(world.at.xexchange_router),
        onedex,
        await reader.jex(at["Jex", "constant_product"], at["Jex", "stable"], restricted),
        await reader.ashswap(at["AshSwap", "stable"], at["AshSwap", "crypto"], None),
    ]
    found = {pool.id: pool for harvest in harvests for pool in harvest.pools}
    skipped = {item.pool for harvest in harvests for item in harvest.skipped}
    inactive = {pool.id for pool in pools if pool.exchange == "OneDex" and pool.state == PoolState.INACTIVE}
    assert skipped == inactive
    assert found == {pool.id: as_read(pool) for pool in pools if pool.id not in inactive}
    assert set(main) <= set(MAIN_PAIR_TOKENS)


async def test_a_document_made_from_the_views_shows_the_very_pairs(world: Any) -> None:
    """Market, views, reader, document: xExchange's pairs come out as they are, with where each one's fee goes."""
    gateway: Any = Gateway(world)
    read = (await Reader(gateway, TokenBook(gateway)).xexchange(world.at.xexchange_router)).pools
    shown = market.document(world.market, world.state, documents.Block(1, 1, 1))
    rest = tuple(pool for pool in shown.pools if not isinstance(pool, XExchangePool))
    made = documents.decode(documents.encode(msgspec.structs.replace(shown, pools=(*read, *rest))))
    pairs = {pool.id: pool for pool in world.market.pools if isinstance(pool, XExchangePool)}
    assert {pool.id: pool for pool in made.pools if isinstance(pool, XExchangePool)} == pairs
    uses = Counter(pair.fee_use for pair in pairs.values())
    assert uses.keys() == {FeeUse(), FeeUse(True), FeeUse(True, here=1), FeeUse(True, elsewhere=1)}


def test_a_pair_tells_where_its_fee_goes_in_the_live_layouts(world: Any) -> None:
    """Address and token, two tokens and address, nested; without a collector the view fails as the live one does."""
    pairs = [pool for pool in world.ledger.pools.values() if isinstance(pool, XExchangePool)]
    sold = next(pair for pair in pairs if pair.trusted_pairs)
    (to,), (trusted,) = sold.fee_destinations or (), sold.trusted_pairs or ()

    def told(pair: XExchangePool, function: str) -> list[bytes]:
        return query(world.state, pair.address, function)

    assert told(sold, "getFeesCollectorAddress") == [world.at.fee_receivers["XExchange"]]
    assert told(sold, "getFeesCollectorCutPercentage") == [b"\xc3\x50"]
    assert told(sold, "getFeeDestinations") == [bytes(32) + abi.nested_bytes(to.token.encode())]
    first, second = (abi.nested_bytes(token.encode()) for token in trusted.tokens)
    assert told(sold, "getTrustedSwapPairs") == [first + second + trusted.address]
    off = next(pair for pair in pairs if not pair.fee_enabled)
    assert [told(off, name) for name in ("getFeeState", "getFeeDestinations", "getTrustedSwapPairs")] == [[b""], [], []]
    with pytest.raises(QueryError, match=r"storage decode error \(key: feesCollectorAddress\)"):
        told(off, "getFeesCollectorAddress")


async def test_the_system_contract_names_every_tokens_decimals(world: Any) -> None:
    """LP tokens included; an unknown token is an error."""
    gateway: Any = Gateway(world)
    book = TokenBook(gateway)
    for token, decimals in world.market.decimals.items():
        assert await book.decimals(token) == decimals
    with pytest.raises(QueryError):
        query(world.state, ESDT_SYSTEM_CONTRACT, "getTokenProperties", [b"NOPE-123456"])


def test_pages_of_pairs_follow_each_other(world: Any) -> None:
    """Pages of any size together list every pair once, and nothing comes after the last."""
    whole = query(world.state, world.at.onedex, "viewPairsPaginated", [b"", b"\x03\xe8"])
    (last,) = query(world.state, world.at.onedex, "getLastPairId")
    assert len(whole) == abi.decode_uint(last)
    pages = [
        item
        for start in range(0, len(whole) + 14, 7)
        for item in query(world.state, world.at.onedex, "viewPairsPaginated", [abi.top_uint(start), b"\x07"])
    ]
    assert pages == whole
    assert query(world.state, world.at.onedex, "viewPair", [last]) == whole[-1:]
    with pytest.raises(QueryError):
        query(world.state, world.at.onedex, "viewPair", [b"\xff\xff"])
