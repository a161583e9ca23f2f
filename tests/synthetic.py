"""Random but realistic markets, the same for the same seed: for tests and benchmarks.

Few hub tokens hold most of the liquidity, popularity and pool sizes follow Zipf's law, and each pool's
price is off the true one by up to `noise`: below the smallest fee no cycle is profitable.
"""

from __future__ import annotations

import copy
import hashlib
import math
import random
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from millrace.dex.constant_product import FeeDestination, JexPool, OneDexPool, TrustedPair, XExchangePool
from millrace.dex.crypto import AshCryptoPool
from millrace.dex.cryptoswap import newton_d
from millrace.dex.document import Block, PoolDocument, TokenInfo
from millrace.dex.pool import Pool
from millrace.dex.stable import AshStablePool, JexStablePool
from millrace.dex.stableswap import UNIT, liquidity_fee
from millrace.routing.router import Router

WRAPPED = "WEGLD-bd4d79"
MOST_LISTINGS = 8  # pools on one pair
COLLECTOR = bytes(8) + b"\x05\x00" + hashlib.sha256(b"collector").digest()[:22]
SOLD_FOR = "FEE-00c0de"  # a token that none of the pools holds, for which fees are sold in another pair


class Asset(NamedTuple):
    """A token with its true price per whole unit."""

    identifier: str
    decimals: int
    price: float


def make_market(
    pools: int,
    seed: int,
    *,
    noise: float = 0.003,
    tokens: int | None = None,
    curved: float = 0.0,
    one_exchange: bool = False,
    crypto: bool = True,
    traded_lp: int = 0,
) -> PoolDocument:
    """A document of `pools` constant-product pools of three exchanges over about 0.4 tokens per pool.

    `curved` is the part of the pools that are stable pools (JEX, AshSwap) or, with `crypto`, crypto pools instead.
    `one_exchange` makes all others xExchange pools, even where that exchange lists the pair already.
    `traded_lp` further pools trade the LP tokens of others against a hub token.
    """
    rng = random.Random(f"market/{seed}/{pools}")
    assets = _assets(rng, tokens or max(6, round(pools * 0.4)))
    pairs = _pairs(rng, len(assets), pools)
    weight = [math.log((a + 1) * (b + 1)) - rng.gauss(0.0, 1.2) for a, b in pairs]
    ranks = {k: rank for rank, k in enumerate(sorted(range(pools), key=lambda k: weight[k]))}
    main = tuple(asset.identifier for asset in assets[:3])
    built: list[Pool] = []
    taken: set[tuple[str, frozenset[str]]] = set()
    for k, (a, b) in enumerate(pairs):
        depth = max(2e7 / (1 + ranks[k]), 50.0)
        skew = 1.0 + rng.uniform(-noise, noise)
        reserves = (_units(assets[a], depth), _units(assets[b], depth * skew))
        if rng.random() < curved:
            built.append(_curved_pool(rng, k, (assets[a], assets[b]), reserves, crypto=crypto))
        else:
            kinds = "x" if one_exchange else "xoj"
            built.append(_pool(rng, k, (assets[a], assets[b]), reserves, main, taken, kinds))
    prices = {asset.identifier: asset.price / 10**asset.decimals for asset in assets}
    for issuer in rng.sample(built, min(traded_lp, len(built))):
        built.append(_lp_pool(rng, len(built), issuer, prices, noise))
    infos = tuple(TokenInfo(asset.identifier, asset.decimals) for asset in assets)
    lps = tuple(TokenInfo(pool.lp_token, 18, is_lp=True, lp_of=pool.id) for pool in built)
    return PoolDocument(
        block=Block(seed, seed, 1_700_000_000),
        native_token="EGLD",
        wrapped_native_token=WRAPPED,
        tokens=infos + lps,
        pools=tuple(built),
        main_pair_tokens=main,
    )


def of_single_trades(router: Router) -> Router:
    """The same market where nothing is gained by trades in pieces, to the bound at least.

    So it is one on plans that trade once with each pool in each direction: the dual on the very curves of the pools.
    """
    other, net = copy.copy(router), router._graph.net
    once = net._replace(kept=np.zeros_like(net.kept), kmore=np.zeros_like(net.kmore))
    other._prepare(router._graph._replace(net=once), list(router._trades), lambda: None)
    return other


def _assets(rng: random.Random, count: int) -> list[Asset]:
    assets = [Asset(WRAPPED, 18, 40.0), Asset("USDC-c76f1f", 6, 1.0), Asset("USDT-f8c08c", 6, 1.0)]
    for k in range(3, count):
        suffix = hashlib.sha256(f"token/{k}".encode()).hexdigest()[:6]
        price = 10 ** rng.uniform(-4, 3.5)
        decimals = 18 if price > 0.01 or rng.random() < 0.8 else rng.choice((2, 6, 8))
        assets.append(Asset(f"TK{k}X-{suffix}", decimals, price))
    return assets


def _pairs(rng: random.Random, tokens: int, pools: int) -> list[tuple[int, int]]:
    """Every token gets a pool with a hub, then popular tokens get more; parallel pools are common."""
    hubs = min(tokens - 1, max(3, min(8, 2 + int(math.log10(pools + 1) * 1.6))))
    popularity = [1.0 / (t + 1) for t in range(tokens)]
    pairs = [(t, rng.choices(range(min(t, hubs)), popularity[: min(t, hubs)])[0]) for t in range(1, tokens)]
    listed = Counter((min(pair), max(pair)) for pair in pairs)
    while len(pairs) < pools:
        draw = rng.random()
        if draw < 0.15:
            a, b = rng.sample(range(hubs), 2)
        elif draw < 0.45:
            a, b = rng.choice(pairs)
        else:
            a = rng.choices(range(tokens), popularity)[0]
            b = rng.choices(range(hubs if draw < 0.85 else tokens), popularity[: hubs if draw < 0.85 else tokens])[0]
        pair = (min(a, b), max(a, b))
        if a != b and listed[pair] < MOST_LISTINGS:
            listed[pair] += 1
            pairs.append((a, b))
    return pairs[:pools]


def _pool(
    rng: random.Random,
    number: int,
    assets: tuple[Asset, Asset],
    reserves: tuple[int, int],
    main: tuple[str, ...],
    taken: set[tuple[str, frozenset[str]]],
    kinds: str,
) -> Pool:
    """A pool of a random exchange; xExchange and OneDex list a pair once."""
    tokens = (assets[0].identifier, assets[1].identifier)
    address = bytes(8) + b"\x05\x00" + hashlib.sha256(f"pool/{number}".encode()).digest()[:22]
    lp_token = f"LP{number}X-{hashlib.sha256(f'lp/{number}'.encode()).hexdigest()[:6]}"
    supply = max(10**6, math.isqrt(reserves[0] * reserves[1]))
    exchange = rng.choice(kinds)
    if len(kinds) > 1 and (exchange, frozenset(tokens)) in taken:
        exchange = "j"
    taken.add((exchange, frozenset(tokens)))
    low = rng.random() < 0.75
    if exchange == "x":
        return XExchangePool(
            id=f"x:{number}", address=address, tokens=tokens, reserves=reserves, lp_token=lp_token,
            lp_supply=supply, total_fee=300 if low else 1000, special_fee=50 if low else 100,
            **_fee_setup(number, tokens),
        )  # fmt: skip
    if exchange == "o":
        return OneDexPool(
            id=f"o:{number}", address=bytes(8) + b"\x05\x00" + bytes(22), tokens=tokens, reserves=reserves,
            lp_token=lp_token, lp_supply=supply, pair_id=number + 1, total_fee=40 if low else 100,
            special_fee=10 if low else 25, staking_fee=10 if low else 25,
            main=(tokens[0] in main, tokens[1] in main),
        )  # fmt: skip
    return JexPool(
        id=f"j:{number}", address=address, tokens=tokens, reserves=reserves, lp_token=lp_token,
        lp_supply=supply, lp_fee=20 if low else 60, platform_fee=10 if low else 40,
    )  # fmt: skip


def _fee_setup(number: int, tokens: tuple[str, str]) -> dict[str, Any]:
    """Where an xExchange pair's special fee goes: of every twenty, off in two, whole to the collector in six.

    In eight half of it is sold in the pair itself, in three in another one, and of one it is not known.
    """
    part = number % 20
    if part < 2:
        return {"fee_enabled": False}
    if part == 19:
        return {}
    elsewhere = part > 15
    to = FeeDestination(bytes(32), SOLD_FOR if elsewhere else tokens[number % 2])
    return {
        "fees_collector": COLLECTOR,
        "fees_collector_cut": 100_000 if part < 8 else 50_000,
        "fee_destinations": () if part < 8 else (to,),
        "trusted_pairs": (TrustedPair((tokens[0], SOLD_FOR), bytes(31) + b"\x01"),) if elsewhere else (),
    }


def _lp_pool(rng: random.Random, number: int, issuer: Pool, prices: dict[str, float], noise: float) -> Pool:
    """A pool that trades the LP token of `issuer` at about what its LP units stand for."""
    other = rng.choice([token for token in list(prices)[:3] if token not in issuer.tokens])
    worth = sum(reserve * prices[token] for token, reserve in zip(issuer.tokens, issuer.reserves, strict=True))
    part = rng.uniform(0.1, 0.5)
    units = max(1000, int(issuer.lp_supply * part))
    against = max(1000, int(worth * part / prices[other] * (1.0 + rng.uniform(-noise, noise))))
    return JexPool(
        id=f"j:{number}", address=bytes(8) + b"\x05\x00" + hashlib.sha256(f"pool/{number}".encode()).digest()[:22],
        tokens=(issuer.lp_token, other), reserves=(units, against),
        lp_token=f"LP{number}X-{hashlib.sha256(f'lp/{number}'.encode()).hexdigest()[:6]}",
        lp_supply=max(10**6, math.isqrt(units * against)), lp_fee=20, platform_fee=10,
    )  # fmt: skip


def _curved_pool(
    rng: random.Random, number: int, assets: tuple[Asset, Asset], reserves: tuple[int, int], *, crypto: bool
) -> Pool:
    """A stable pool around the true price, or a crypto pool scaled to it."""
    tokens = (assets[0].identifier, assets[1].identifier)
    address = bytes(8) + b"\x05\x00" + hashlib.sha256(f"pool/{number}".encode()).digest()[:22]
    lp_token = f"LP{number}X-{hashlib.sha256(f'lp/{number}'.encode()).hexdigest()[:6]}"
    decimals = (assets[0].decimals, assets[1].decimals)
    common: dict[str, Any] = {"address": address, "tokens": tokens, "lp_token": lp_token, "decimals": decimals}
    prices = (UNIT, int(assets[1].price / assets[0].price * UNIT))
    balances = [r * 10 ** (18 - d) * p // UNIT for r, d, p in zip(reserves, decimals, prices, strict=True)]
    kind = rng.choice(("ash", "jex", "crypto") if crypto else ("ash", "jex"))
    if kind == "crypto" and min(balances) > 10**17:
        d = newton_d(400_000, 145 * 10**12, balances)
        return AshCryptoPool(
            id=f"a:{number}", **common, reserves=reserves, lp_supply=d, ann=400_000, gamma=145 * 10**12, d=d,
            price_scale=prices[1], mid_fee=26 * 10**6, out_fee=45 * 10**6, fee_gamma=230 * 10**12,
        )  # fmt: skip
    amp = rng.choice((10, 100, 1000))
    supply = max(10**6, sum(balances))
    if kind == "jex":
        return JexStablePool(
            id=f"j:{number}", **common, reserves=reserves, lp_supply=supply, prices=prices, amp=amp,
            swap_fee=400, liquidity_fee=liquidity_fee(400, 2),
        )  # fmt: skip
    return AshStablePool(
        id=f"a:{number}", **common, reserves=reserves, lp_supply=supply, prices=prices, amp=amp, swap_fee=40,
        admin_fee=33_000,
    )  # fmt: skip


def _units(asset: Asset, value: float) -> int:
    return max(1000, int(value / asset.price * 10**asset.decimals))
