"""How the generated market's pools come about: which pairs, how deep, at which price, in which state.

Every token has one price in dollars. A pool is founded with amounts of equal value, off by a little
mispricing, through the exchange's own first deposit, so that LP supply and invariants are consistent.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec

from millrace.chain import address
from millrace.dex.constant_product import FeeDestination, JexPool, OneDexPool, TrustedPair, XExchangePool
from millrace.dex.crypto import AshCryptoPool
from millrace.dex.pool import Pool, PoolState
from millrace.dex.stable import AshStablePool, JexStablePool
from millrace.dex.stableswap import UNIT, liquidity_fee
from millrace.localnet.market.dice import CONTEXT, Dice
from millrace.localnet.market.listing import CRYPTO_PAIRS, HUBS, MAIN_PAIR_TOKENS, STABLE_GROUPS

ATTO: Final = 10**18
MILLION: Final = 1_000_000

SHARES: Final = {"XExchange": 180, "OneDex": 720, "Jex": 70, "JexStable": 6, "AshStable": 14, "AshCrypto": 10}
"""Pools of each sort in a market of a thousand; the live market is of this make."""

CONSTANT_PRODUCT: Final = ("OneDex", "XExchange", "Jex")
MAX_PARALLEL_JEX: Final = 2
TOP_DEPTH: Final = 5_000_000 * ATTO
"""Value of one side of the deepest pool, in 10^-18 dollars."""
LEAST_DEPTH: Final = 60 * ATTO
LEAST_RESERVE: Final = 20_000

FEE_BASE: Final = 100_000
FEE_SETUPS: Final = (
    "half",
    "collector",
    "half",
    "elsewhere",
    "collector",
    "half",
    "off",
    "half",
    "collector",
    "elsewhere",
)
"""Where the special fee of xExchange pairs goes, in turn by a pair's place among them."""

LETTER: Final = {"XExchange": "x", "OneDex": "o", "Jex": "j", "JexStable": "j"}


class Token(msgspec.Struct, frozen=True):
    """A token of the market. `price` is what a whole token is worth, in 10^-18 dollars."""

    identifier: str
    decimals: int
    price: int

    def units(self, value: int) -> int:
        """How many smallest units have a value given in 10^-18 dollars."""
        scale: int = 10**self.decimals
        return value * scale // self.price


class Site(msgspec.Struct, frozen=True):
    """Where a pool will stand: its sort (a key of `SHARES`) and tokens by index.

    A `needed` pool connects a token to the market: it stays active and is never a dust pool.
    """

    sort: str
    tokens: tuple[int, ...]
    needed: bool = False


class Ground(msgspec.Struct, frozen=True):
    """What all pools are founded with."""

    tokens: tuple[Token, ...]
    dice: Dice
    mispricing_ppm: int
    onedex: bytes
    next_address: Callable[[], bytes]


def counts(pools: int) -> dict[str, int]:
    """How many pools of each sort; what rounding leaves over goes to OneDex."""
    wanted = {sort: pools * share // 1000 for sort, share in SHARES.items()}
    wanted["OneDex"] += pools - sum(wanted.values())
    return wanted


def sites(tokens: Sequence[Token], pools: int, dice: Dice) -> list[Site]:
    """The pairs and groups of the market, first those that connect every token."""
    wanted = counts(pools)
    taken = _Taken(wanted)
    names = {token.identifier: index for index, token in enumerate(tokens)}
    curved = [
        *_groups("JexStable", STABLE_GROUPS, names, wanted),
        *_groups("AshStable", STABLE_GROUPS, names, wanted),
        *_groups("AshCrypto", CRYPTO_PAIRS, names, wanted),
    ]
    # Sorts of which fewer pools could be placed than wanted leave room for OneDex pairs.
    taken.left["OneDex"] += sum(wanted[sort] for sort in wanted if sort not in CONSTANT_PRODUCT) - len(curved)
    placed = [*_spanning(len(tokens), dice, taken), *curved]
    placed += _further(len(tokens), pools - len(placed), dice, taken, placed)
    return placed


def _groups(sort: str, groups: Sequence[tuple[str, ...]], names: dict[str, int], wanted: dict[str, int]) -> list[Site]:
    usable = [tuple(names[name] for name in group) for group in groups if all(name in names for name in group)]
    offset = 0 if sort != "JexStable" else 4  # the two exchanges begin with different groups
    turned = usable[offset:] + usable[:offset]
    return [Site(sort, group) for group in turned[: wanted[sort]]]


class _Taken:
    """Which pairs each exchange has, and how many more pools of each sort are to be placed."""

    def __init__(self, wanted: dict[str, int]) -> None:
        self.left = {sort: wanted[sort] for sort in CONSTANT_PRODUCT}
        self.pairs: dict[tuple[str, frozenset[int]], int] = {}

    def leave_to_jex(self) -> None:
        """With few tokens an exchange may run out of pairs; JEX, which lists a pair twice, takes over the rest."""
        self.left = dict.fromkeys(CONSTANT_PRODUCT, 0) | {"Jex": sum(self.left.values())}

    def place(self, a: int, b: int, dice: Dice, *, needed: bool = False) -> Site | None:
        """A pool of the two tokens on an exchange that has room and does not list the pair yet."""
        pair = frozenset((a, b))
        free = [
            sort
            for sort in CONSTANT_PRODUCT
            if self.left[sort]
            and self.pairs.get((sort, pair), 0) < (MAX_PARALLEL_JEX if sort == "Jex" and not needed else 1)
        ]
        if a == b or not free:
            return None
        sort = free[dice.weighted(_running(self.left[name] for name in free))]
        self.left[sort] -= 1
        self.pairs[sort, pair] = self.pairs.get((sort, pair), 0) + 1
        return Site(sort, (a, b) if dice.chance(500) else (b, a), needed)


def _spanning(tokens: int, dice: Dice, taken: _Taken) -> Iterator[Site]:
    """One pool per token with a hub before it, the first hubs favoured."""
    hubs = min(HUBS, tokens)
    popular = _running(1_000_000 // (hub + 1) ** 2 for hub in range(hubs))
    for token in range(1, tokens):
        hub = dice.weighted(popular) if token >= hubs else 0
        site = taken.place(token, hub, dice, needed=True)
        if site is None:
            raise ValueError("too few pools to connect every token; ask for more pools or fewer tokens")
        yield site


def _further(tokens: int, wanted: int, dice: Dice, taken: _Taken, placed: Sequence[Site]) -> Iterator[Site]:
    """Second listings, pairs of hubs, tokens with a second hub, and tokens with each other."""
    hubs = min(HUBS, tokens)
    popular = _running(1_000_000_000 // (token + 1) for token in range(tokens))
    hub_popular = popular[:hubs]
    pairs = [site.tokens for site in placed if site.sort in CONSTANT_PRODUCT]
    patience = 200 * (wanted + 1)
    for attempt in range(2 * patience):
        if wanted <= 0:
            return
        if attempt == patience:
            taken.leave_to_jex()
        kind = dice.below(100)
        if kind < 15:
            a, b = dice.below(hubs), dice.below(hubs)
        elif kind < 45:
            a, b = dice.pick(pairs)
        elif kind < 85:
            a, b = dice.weighted(popular), dice.weighted(hub_popular)
        else:
            a, b = dice.weighted(popular), dice.weighted(popular)
        site = taken.place(a, b, dice)
        if site is not None:
            wanted -= 1
            yield site
    raise ValueError("too many pools for so few tokens; ask for fewer pools or more tokens")


def depths(placed: Sequence[Site], dice: Dice) -> list[int]:
    """Value of one side of each pool: Zipf over a ranking by the tokens' popularity, with scatter."""
    scores = []
    for index, site in enumerate(placed):
        popularity = sum(CONTEXT.ln(Decimal(token + 1)) for token in site.tokens[:2])
        scatter = CONTEXT.multiply(dice.normal(), Decimal("1.2"))
        scores.append((CONTEXT.subtract(popularity, scatter), index))
    result = [0] * len(placed)
    for rank, (_, index) in enumerate(sorted(scores)):
        result[index] = max(dice.spread(TOP_DEPTH // (rank + 1), "0.3"), LEAST_DEPTH)
    return result


def found(ground: Ground, site: Site, depth: int, number: int, lp_token: str) -> Pool:
    """The pool of a site. `number` is the pair id of a OneDex pair."""
    tokens = [ground.tokens[index] for index in site.tokens]
    at = ground.onedex if site.sort == "OneDex" else ground.next_address()
    letter = LETTER.get(site.sort, "a")
    common: dict[str, Any] = {
        "id": f"{letter}:{address.encode(at)}" + (f":{number}" if site.sort == "OneDex" else ""),
        "address": at,
        "tokens": tuple(token.identifier for token in tokens),
        "lp_token": lp_token,
    }
    empty = _EMPTY[site.sort](ground, tokens, common, number)
    mint = empty.mint(_amounts(ground, site, tokens, depth))
    return mint.pool


def _amounts(ground: Ground, site: Site, tokens: Sequence[Token], depth: int) -> tuple[int, ...]:
    """Amounts of equal value, but for a little mispricing; stable pools are never quite balanced."""
    deepest = max(depth, *(LEAST_RESERVE * token.price // 10**token.decimals for token in tokens))
    amounts = [token.units(deepest) for token in tokens]
    span = ground.mispricing_ppm
    if site.sort in ("JexStable", "AshStable"):
        span = 60_000
    return tuple(
        [amounts[0]] + [amount * (MILLION + ground.dice.between(-span, span)) // MILLION for amount in amounts[1:]]
    )


def _xexchange(ground: Ground, tokens: Sequence[Token], common: dict[str, Any], number: int) -> Pool:
    total, special = ((300, 50), (300, 100), (1000, 100))[ground.dice.weighted((7, 9, 10))]
    return XExchangePool(**common, reserves=(0, 0), total_fee=total, special_fee=special)


def _onedex(ground: Ground, tokens: Sequence[Token], common: dict[str, Any], number: int) -> Pool:
    total = (40, 60, 100)[ground.dice.weighted((6, 8, 10))]
    first, second = (token.identifier in MAIN_PAIR_TOKENS for token in tokens)
    staking = total // 4
    return OneDexPool(
        **common,
        reserves=(0, 0),
        pair_id=number,
        total_fee=total,
        special_fee=total // 2 - staking,
        staking_fee=staking,
        main=(first, second),
    )


def _jex(ground: Ground, tokens: Sequence[Token], common: dict[str, Any], number: int) -> Pool:
    lp_fee, platform_fee = ((20, 20), (30, 10), (50, 50))[ground.dice.weighted((7, 9, 10))]
    return JexPool(**common, reserves=(0, 0), lp_fee=lp_fee, platform_fee=platform_fee)


def _prices(tokens: Sequence[Token]) -> tuple[int, ...]:
    """Each token's price in units of the last one's, over 10^18."""
    return tuple(token.price * UNIT // tokens[-1].price for token in tokens)


def _jex_stable(ground: Ground, tokens: Sequence[Token], common: dict[str, Any], number: int) -> Pool:
    fee = ground.dice.pick((300, 500))
    return JexStablePool(
        **common,
        reserves=(0,) * len(tokens),
        decimals=tuple(token.decimals for token in tokens),
        prices=_prices(tokens),
        amp=256,
        swap_fee=fee,
        liquidity_fee=liquidity_fee(fee, len(tokens)),
    )


def _ash_stable(ground: Ground, tokens: Sequence[Token], common: dict[str, Any], number: int) -> Pool:
    prices = _prices(tokens)
    return AshStablePool(
        **common,
        reserves=(0,) * len(tokens),
        decimals=tuple(token.decimals for token in tokens),
        prices=prices,
        amp=ground.dice.pick((100, 256, 400)),
        swap_fee=ground.dice.pick((40, 50)),
        admin_fee=50_000,
        pool_type="plain" if set(prices) == {UNIT} else "lending",
    )


def _ash_crypto(ground: Ground, tokens: Sequence[Token], common: dict[str, Any], number: int) -> Pool:
    first, second = tokens
    return AshCryptoPool(
        **common,
        reserves=(0, 0),
        decimals=(first.decimals, second.decimals),
        ann=400_000,
        gamma=145_000_000_000_000,
        d=0,
        price_scale=second.price * UNIT // first.price,
        mid_fee=26_000_000,
        out_fee=45_000_000,
        fee_gamma=230_000_000_000_000,
        admin_fee=5_000_000_000,
    )


_EMPTY: Final[dict[str, Callable[[Ground, Sequence[Token], dict[str, Any], int], Pool]]] = {
    "XExchange": _xexchange,
    "OneDex": _onedex,
    "Jex": _jex,
    "JexStable": _jex_stable,
    "AshStable": _ash_stable,
    "AshCrypto": _ash_crypto,
}


def blemish(pool: Pool, dice: Dice) -> Pool:
    """A few pools are not in order, as on the live chain: paused, closed, disabled, restricted or dust."""
    fate = dice.below(1000)
    if fate < 20:
        return msgspec.structs.replace(pool, state=PoolState.INACTIVE)
    if fate < 35:
        return msgspec.structs.replace(pool, state=PoolState.NO_SWAPS)
    if fate < 45 and isinstance(pool, OneDexPool):
        return msgspec.structs.replace(pool, enabled=False)
    if fate < 60 and pool.kind == "constant_product":
        # Almost everything was withdrawn: a handful of units is left of one token, and their worth of the other.
        first = dice.between(40, 900)
        worth = pool.reserves[1] * first // pool.reserves[0]
        return pool.with_reserves((first, max(worth, dice.between(40, 900))))
    return pool


def with_fee_setups(pools: Sequence[Pool], collector: bytes) -> tuple[Pool, ...]:
    """The pools, and where the special fee of each xExchange pair goes: by its place, nothing is drawn for it.

    `collector` is the address of the fees collector.
    """
    pairs = [pool for pool in pools if isinstance(pool, XExchangePool)]
    settled = {
        pair.id: msgspec.structs.replace(pair, **_fee_setup(pairs, place, collector))
        for place, pair in enumerate(pairs)
    }
    return tuple([settled.get(pool.id, pool) for pool in pools])


def _fee_setup(pairs: Sequence[XExchangePool], place: int, collector: bytes) -> dict[str, Any]:
    """The fields that say where the special fee of the pair at a place goes."""
    setup = FEE_SETUPS[place % len(FEE_SETUPS)]
    fields: dict[str, Any] = {
        "fee_enabled": True,
        "fees_collector": collector,
        "fees_collector_cut": FEE_BASE // 2,
        "fee_destinations": (),
        "trusted_pairs": (),
    }
    if setup == "off":
        return fields | {"fee_enabled": False, "fees_collector": b"", "fees_collector_cut": 0}
    if setup == "collector":
        return fields | {"fees_collector_cut": FEE_BASE}
    pair = pairs[place]
    burned = pair.tokens[place % 2]
    trusted = _outlet(pairs, place) if setup == "elsewhere" else None
    if trusted is not None:
        (burned,) = set(trusted.tokens) - set(pair.tokens)
        fields["trusted_pairs"] = (trusted,)
    # Burned, as on the live chain: the destination is nobody.
    return fields | {"fee_destinations": (FeeDestination(address.ZERO, burned),)}


def _outlet(pairs: Sequence[XExchangePool], place: int) -> TrustedPair | None:
    """The next pair that trades exactly one of the tokens of the pair at a place, takes swaps and is no dust."""
    own = set(pairs[place].tokens)
    for other in (*pairs[place + 1 :], *pairs[:place]):
        open_to_sales = other.state == PoolState.ACTIVE and min(other.reserves) >= LEAST_RESERVE
        if open_to_sales and len(own & set(other.tokens)) == 1:
            first, second = other.tokens
            return TrustedPair((first, second), other.address)
    return None


def _running(weights: Iterable[int]) -> list[int]:
    total, sums = 0, []
    for weight in weights:
        total += weight
        sums.append(total)
    return sums
