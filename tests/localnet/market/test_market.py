"""The generated market looks like a market, and its document shows what is there."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.chain.network import PROFILES, profile
from millrace.chain.token import is_identifier
from millrace.dex import document as documents
from millrace.dex.aggregator_contract import CONTRACT
from millrace.dex.constant_product import FeeUse, XExchangePool
from millrace.dex.document import Block
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool, PoolError, PoolState
from millrace.localnet.contracts.ledger import Ledger
from millrace.localnet.market.founding import with_fee_setups
from millrace.localnet.market.listing import TOKENS
from millrace.localnet.market.market import WRAPPED, Market, document, generate, install

LOCAL = profile("documented", chain_id="local")


@pytest.fixture(scope="module")
def whole() -> Market:
    """The market the local chain has by default."""
    return generate(1, LOCAL)


def installed(market: Market) -> Any:
    return install(market, Ledger(), lambda pubkey: True)


def usable(pool: Pool) -> bool:
    """Whether anybody can trade a hundredth of the pool."""
    try:
        return min(pool.reserves) >= 1000 and pool.amount_out(0, 1, max(pool.reserves[0] // 100, 1)) > 0
    except PoolError:
        return False


def test_the_default_market_has_the_make_of_the_live_one(whole: Market) -> None:
    """A thousand pools over four exchanges, 600 tokens, real hubs with their real decimals."""
    sorts = Counter((pool.exchange, pool.kind) for pool in whole.pools)
    assert sorts == {
        ("OneDex", "constant_product"): 720,
        ("XExchange", "constant_product"): 180,
        ("Jex", "constant_product"): 70,
        ("Jex", "stable"): 6,
        ("AshSwap", "stable"): 14,
        ("AshSwap", "crypto"): 10,
    }
    assert len(whole.tokens) == 600
    assert len(whole.infos) == 1600
    hubs = {"WEGLD-bd4d79": 18, "USDC-c76f1f": 6, "USDT-f8c08c": 6, "MEX-455c57": 18, "UTK-2f80e9": 18}
    assert hubs.items() <= whole.decimals.items()
    assert {token.decimals for token in whole.tokens} >= {2, 4, 5, 6, 8, 16, 18}
    assert all(is_identifier(info.identifier) for info in whole.infos)
    assert len(whole.decimals) == len(whole.infos)


def test_a_seed_names_a_market(whole: Market) -> None:
    """The same seed gives the same bytes, another seed another market."""
    block = Block(1, 1, 1)
    first = documents.encode(document(whole, installed(whole), block))
    again = generate(1, LOCAL)
    assert again == whole
    assert documents.encode(document(again, installed(again), block)) == first
    other = generate(2, LOCAL)
    assert {pool.reserves for pool in other.pools} & {pool.reserves for pool in whole.pools} == set()


def test_the_document_decodes_to_the_very_pools(whole: Market) -> None:
    """What the document says is what the chain holds, every check passed."""
    state = installed(whole)
    built = document(whole, state, Block(5, 4, 3))
    decoded = documents.decode(documents.encode(built))
    assert decoded == built
    assert decoded.pools == tuple(state.ledger.pools.values())


def test_emptied_pools_are_left_out_of_the_document(whole: Market) -> None:
    """A pool from which everything was withdrawn cannot be priced and would spoil the document."""
    state = installed(whole)
    gone = whole.pools[0]
    state.ledger.put_pools((gone.with_reserves((0, 0), 0),))
    decoded = documents.decode(documents.encode(document(whole, state, Block(1, 1, 1))))
    assert [pool.id for pool in decoded.pools] == [pool.id for pool in whole.pools[1:]]


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), tokens=st.integers(20, 90), extra=st.integers(20, 60))
def test_every_market_is_sound(seed: int, tokens: int, extra: int) -> None:
    """Of any size and seed: connected by usable pools, found by the contract, solvent, valid as a document."""
    market = generate(seed, LOCAL, pools=tokens * 3 // 2 + extra, tokens=tokens)
    reached = {WRAPPED}
    links = [pool.tokens for pool in market.pools if usable(pool)]
    for _ in range(tokens):
        reached |= {token for link in links if reached & set(link) for token in link}
    assert reached == {token.identifier for token in market.tokens}
    finder = DictMarket(market.pools, WRAPPED)
    assert all(finder.reaches(pool) for pool in market.pools)
    state = installed(market)
    documents.decode(documents.encode(document(market, state, Block(1, 1, 1))))
    held = Counter(
        {token: amount for account in state.ledger.accounts.values() for token, amount in account.tokens.items()}
    )
    assert all(held[pool.lp_token] == pool.lp_supply for pool in market.pools)
    wrapped = sum(account.tokens.get(WRAPPED, 0) for account in state.ledger.accounts.values())
    assert state.ledger.balance_of(market.addresses.wrapper) == wrapped


def test_prices_agree_within_the_mispricing(whole: Market) -> None:
    """A constant product pool's two sides are worth the same, but for the mispricing asked for."""
    tokens = {token.identifier: token for token in whole.tokens}
    for pool in whole.pools:
        if pool.kind == "constant_product" and usable(pool):
            first, second = (
                reserve * tokens[token].price * 10 ** (18 - tokens[token].decimals)
                for token, reserve in zip(pool.tokens, pool.reserves, strict=True)
            )
            assert abs(first - second) * 10**6 <= max(first, second) * 1_600, pool


def test_round_trips_through_two_pools_lose(whole: Market) -> None:
    """With the default mispricing there is no profit in buying in one pool and selling in another one."""
    by_pair: dict[frozenset[str], list[Pool]] = {}
    for pool in whole.pools:
        if pool.kind == "constant_product" and usable(pool):
            by_pair.setdefault(frozenset(pool.tokens), []).append(pool)
    tried = 0
    for pools in by_pair.values():
        for first in pools:
            for second in pools:
                amount = first.reserves[0] // 10_000
                if first is second or amount < 10**4:
                    continue
                a, b = first.tokens
                out = first.amount_out(0, 1, amount)
                assert second.amount_out(second.index(b), second.index(a), out) < amount
                tried += 1
    assert tried > 100


def test_mispricing_on_demand_leaves_arbitrage() -> None:
    """A setting spreads prices so far apart that round trips pay."""
    market = generate(1, LOCAL, pools=300, tokens=60, mispricing_ppm=30_000)
    by_pair: dict[frozenset[str], list[Pool]] = {}
    for pool in market.pools:
        if pool.kind == "constant_product" and usable(pool):
            by_pair.setdefault(frozenset(pool.tokens), []).append(pool)
    gains = 0
    for pools in by_pair.values():
        for first in pools:
            for second in pools:
                amount = first.reserves[0] // 10_000
                if first is not second and amount:
                    a, b = first.tokens
                    with contextlib.suppress(PoolError):  # too small for a slice of the special fee to be sold
                        out = first.amount_out(0, 1, amount)
                        gains += second.amount_out(second.index(b), second.index(a), out) > amount
    assert gains > 5


def test_depth_falls_like_in_a_market(whole: Market) -> None:
    """A few pools hold most of the value and the hubs are in them."""
    tokens = {token.identifier: token for token in whole.tokens}
    depth = {
        pool.id: pool.reserves[0] * tokens[pool.tokens[0]].price // 10 ** tokens[pool.tokens[0]].decimals
        for pool in whole.pools
    }
    ranked = sorted(whole.pools, key=lambda pool: -depth[pool.id])
    total = sum(depth.values())
    assert sum(depth[pool.id] for pool in ranked[:100]) > total // 2
    hubs = {listed.identifier for listed in TOKENS[:8]}
    assert all(hubs & set(pool.tokens) for pool in ranked[:10])
    assert depth[ranked[0].id] > 400 * depth[ranked[800].id] > 0


def test_some_pools_are_not_in_order(whole: Market) -> None:
    """Inactive, swapless, disabled, restricted and dust pools exist, and not many."""
    states = Counter(pool.state for pool in whole.pools)
    assert 0 < states["inactive"] < 40
    assert 0 < states["noSwaps"] < 40
    assert 0 < sum(not getattr(pool, "enabled", True) for pool in whole.pools) < 40
    assert sum(getattr(pool, "restricted", False) for pool in whole.pools) == 1
    assert 0 < sum(min(pool.reserves) < 1000 for pool in whole.pools) < 40


@pytest.mark.parametrize("name", PROFILES)
def test_contracts_live_in_the_aggregators_shard_under_any_profile(name: str) -> None:
    """Addresses end like the aggregator contract's, so that no rule can part them."""
    network = profile(name)
    market = generate(3, network, pools=40, tokens=12)
    at = market.addresses
    assert at.aggregator == CONTRACT
    everything = {at.wrapper, at.onedex, at.provider, *at.fee_receivers.values()}
    everything |= {pool.address for pool in market.pools}
    assert {network.shard_of(contract) for contract in everything} == {network.shard_of(CONTRACT)}


def test_pairs_send_their_fees_different_ways(whole: Market) -> None:
    """Of ten xExchange pairs one has its fee off, three pay a collector alone, four burn half here, two elsewhere."""
    pairs = [pool for pool in whole.pools if isinstance(pool, XExchangePool)]
    uses = [pair.fee_use for pair in pairs]
    elsewhere = FeeUse(collector=True, elsewhere=1)
    ten = {FeeUse(): 1, FeeUse(collector=True): 3, FeeUse(collector=True, here=1): 4, elsewhere: 2}
    assert all(Counter(uses[start : start + 10]) == ten for start in range(0, len(uses), 10))
    assert {pair.fees_collector for pair in pairs} == {b"", whole.addresses.fee_receivers["XExchange"]}
    assert all(bool(pair.fees_collector) == pair.fee_enabled for pair in pairs)
    by_address = {pair.address: pair for pair in pairs}
    for pair in pairs:
        for to in pair.fee_destinations or ():
            assert to.address == bytes(32)
        for trusted in pair.trusted_pairs or ():
            other = by_address[trusted.address]
            assert (other.tokens, other.state) == (trusted.tokens, "active")
            assert len({*pair.tokens} & {*other.tokens}) == 1


@pytest.mark.parametrize(("first", "count"), [(0, 1), (0, 4), (3, 10), (7, 60), (0, 180)])
def test_where_fees_go_is_told_by_the_place_alone(whole: Market, first: int, count: int) -> None:
    """Of any pairs nothing but the fee setup changes, and that the same way each time."""
    some = [pool for pool in whole.pools if isinstance(pool, XExchangePool)][first:][:count]
    settled = with_fee_setups(some, whole.addresses.provider)
    assert settled == with_fee_setups(some, whole.addresses.provider)
    setup = {"fee_enabled", "fees_collector", "fees_collector_cut", "fee_destinations", "trusted_pairs"}
    for before, after in zip(some, settled, strict=True):
        assert isinstance(after, XExchangePool)
        kept = [name for name in before.__struct_fields__ if name not in setup]
        assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
        use = after.fee_use
        assert use is not None
        assert use.here + use.elsewhere == len(after.fee_destinations or ())


def test_a_fee_that_no_other_pair_could_sell_is_sold_at_home(whole: Market) -> None:
    """A pair whose tokens no other active pair trades burns one of its own tokens instead."""
    pair = next(pool for pool in whole.pools if isinstance(pool, XExchangePool))
    closed = msgspec.structs.replace(pair, tokens=(pair.tokens[0], "OTHER-000001"), state=PoolState.INACTIVE)
    twins = [msgspec.structs.replace(pair, id=f"x{k}") for k in range(4)]
    for others in ([], [closed], [msgspec.structs.replace(closed, state=PoolState.ACTIVE)]):
        settled = with_fee_setups([*twins, *others], whole.addresses.provider)[3]
        assert isinstance(settled, XExchangePool)
        open_to_sales = any(other.state == PoolState.ACTIVE for other in others)
        assert settled.fee_use == FeeUse(collector=True, here=not open_to_sales, elsewhere=open_to_sales)


def test_few_tokens_with_many_pools_are_listed_more_often() -> None:
    """When OneDex has every pair already, further pools go to JEX, which takes a pair twice."""
    market = generate(1, LOCAL, pools=120, tokens=10)
    assert len(market.pools) == 120
    pairs = Counter(frozenset(pool.tokens) for pool in market.pools if pool.exchange == "Jex")
    assert max(pairs.values()) == 2
    finder = DictMarket(market.pools, WRAPPED)
    assert all(finder.reaches(pool) for pool in market.pools)


@pytest.mark.parametrize(("pools", "tokens"), [(10, 60), (500, 3), (10, 2)])
def test_numbers_that_do_not_fit_are_refused(pools: int, tokens: int) -> None:
    """A market that cannot be made is an error in words, not an endless search."""
    with pytest.raises(ValueError, match=r"pools|tokens"):
        generate(1, LOCAL, pools=pools, tokens=tokens)
