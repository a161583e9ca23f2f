"""From one entry of the pool document to a pool, with every check on the way."""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from millrace.chain import address
from millrace.chain.token import is_identifier
from millrace.dex.constant_product import FeeDestination, JexPool, OneDexPool, TrustedPair, XExchangePool
from millrace.dex.crypto import AshCryptoPool
from millrace.dex.pool import Pool
from millrace.dex.rate import RATE_POOLS, SOLD
from millrace.dex.stable import AshStablePool, JexStablePool
from millrace.dex.stableswap import UNIT, liquidity_fee
from millrace.dex.wire import (
    MAX_DIGITS,
    AshCryptoEntry,
    AshStableEntry,
    DocumentError,
    Entry,
    JexEntry,
    JexStableEntry,
    Number,
    OneDexEntry,
    RateEntry,
    Share,
    XExchangeEntry,
    parse,
    whole,
)

MAX_COINS: Final = 8
MAX_DECIMALS: Final = 18
MAX_TEXT: Final = 200
MAX_PAIR_ID: Final = (1 << 16) - 1
"""The aggregator contract's instructions name a OneDex pair in 16 bits: no route leads through others."""
MAX_FEE_ENTRIES: Final = 64
"""Fee destinations or trusted pairs of one pair; more count as not known. Each costs a swap gas: no pair has many."""


class Context(NamedTuple):
    """What an entry is checked against."""

    decimals: dict[str, int]
    main: frozenset[str] | None
    wrapped: str


class _Head(msgspec.Struct):
    exchange: str
    kind: str


class _Name(msgspec.Struct):
    id: str


_HEAD = msgspec.json.Decoder(_Head)
_NAME = msgspec.json.Decoder(_Name)

Faults = Callable[[str, str], None]
"""Takes the name of a faulty pool or token and what is wrong with it; may raise."""


def build(raw: msgspec.Raw, context: Context, path: str) -> Pool:
    """The pool of one entry. Raises `DocumentError`."""
    return _read(raw, context, path).pool


class _Known(NamedTuple):
    """An entry with what has been made of it."""

    raw: msgspec.Raw
    decoder: msgspec.json.Decoder[Any]
    entry: Entry
    pool: Pool


def _read(raw: msgspec.Raw, context: Context, path: str) -> _Known:
    head = parse(raw, _HEAD, path)
    known = _FORMS.get((head.exchange, head.kind))
    if known is None:
        raise DocumentError(f"{path}: no pools of exchange {head.exchange[:40]!r} and kind {head.kind[:40]!r}")
    decoder, make = known
    entry = parse(raw, decoder, path)
    return _Known(raw, decoder, entry, make(_Fields(entry, context, path)))


class _Faulty(NamedTuple):
    """An entry of which nothing can be made."""

    raw: msgspec.Raw
    reason: str


class Reader:
    """Reads the entries of one document after the other; of what has not changed since the last one, nothing.

    From one block to the next most pools stay as they are, and of most others only reserves and LP units move: then
    all that has been checked already holds. It remembers one document. One thread at a time.
    """

    def __init__(self) -> None:
        self._context: Context | None = None
        self._known: list[_Known | _Faulty] = []

    def read(
        self, raws: Iterable[msgspec.Raw], context: Context, pause: Callable[[], None], faults: Faults
    ) -> dict[int, Pool]:
        """The pools of a document's entries by their positions; one that is as it was is the very same.

        `faults` takes what is wrong with an entry, which then is left out, or raises.
        """
        before = self._known if context == self._context else []
        now: list[_Known | _Faulty] = []
        for k, raw in enumerate(raws):
            pause()
            known = self._next(raw, before[k] if k < len(before) else None, context, f"$.pools[{k}]")
            if isinstance(known, _Faulty):
                faults(_name(raw, k), known.reason)
            now.append(known)
        self._context, self._known = context, now
        return {k: known.pool for k, known in enumerate(now) if isinstance(known, _Known)}

    def _next(self, raw: msgspec.Raw, before: _Known | _Faulty | None, context: Context, path: str) -> _Known | _Faulty:
        if isinstance(before, _Faulty):
            if raw == before.raw:
                return before
        elif before is not None and (same := _again(raw, before)) is not None:
            return same
        try:
            return _read(raw, context, path)
        except DocumentError as error:
            return _Faulty(raw.copy(), str(error))


def _name(raw: msgspec.Raw, position: int) -> str:
    """What an entry calls itself; its place where it does not."""
    try:
        return _NAME.decode(raw).id[:MAX_TEXT] or f"#{position}"
    except (ValueError, RecursionError):
        return f"#{position}"


def _again(raw: msgspec.Raw, known: _Known) -> _Known | None:
    """What is made of an entry that differs from `known` in reserves and LP units at most; None for any other."""
    if raw == known.raw:
        return _Known(raw, known.decoder, known.entry, known.pool)  # the old document need not stay for it
    try:
        entry: Entry = known.decoder.decode(raw)
    except (ValueError, RecursionError):  # `_read` tells what is wrong with it
        return None
    reserves, supply = [whole(value) for value in entry.reserves], whole(entry.lp_supply)
    held = tuple([value for value in reserves if value])
    if supply is None or len(held) < len(reserves) or len(held) != len(known.pool.reserves):
        return None
    entry.reserves, entry.lp_supply = known.entry.reserves, known.entry.lp_supply
    if entry != known.entry:
        return None
    pool = msgspec.structs.replace(known.pool, reserves=held, lp_supply=supply)
    return _Known(raw, known.decoder, known.entry, pool)


class _Fields:
    """Checked access to one entry's fields; every complaint carries the path."""

    def __init__(self, entry: Any, context: Context, path: str) -> None:
        self.entry = entry
        self.context = context
        self.path = path

    def fault(self, field: str, text: str) -> DocumentError:
        return DocumentError(f"{self.path}.{field}: {text}")

    def number(self, field: str, value: Number, *, least: int = 0) -> int:
        number = whole(value)
        if number is None:
            raise self.fault(field, f"expected a whole number of at most {MAX_DIGITS} digits")
        if number < least:
            raise self.fault(field, f"{number} is less than {least}")
        return number

    def numbers(self, field: str, values: Sequence[Number], *, count: int) -> tuple[int, ...]:
        """`count` positive numbers."""
        if len(values) != count:
            raise self.fault(field, f"{len(values)} values for {count}")
        return tuple([self.number(f"{field}[{k}]", value, least=1) for k, value in enumerate(values)])

    def base(self, *fees: int) -> int:
        base = self.number("feeBase", self.entry.fee_base, least=1)
        if sum(fees) / base >= 1.0:  # as a search sees it: just below the base is nothing left, too
            raise self.fault("feeBase", f"fees of {sum(fees)} are not below the base {base}")
        return base

    def common(self, coins: tuple[int, int]) -> dict[str, Any]:
        """The fields of `Pool`, checked. `coins` is the least and the largest number of tokens."""
        entry = self.entry
        if not 0 < len(entry.id) <= MAX_TEXT:
            raise self.fault("id", f"must have 1 to {MAX_TEXT} characters")
        tokens = self._tokens(coins)
        supply = self.number("lpSupply", entry.lp_supply)
        return {
            "id": entry.id,
            "address": self._address(),
            "tokens": tokens,
            "reserves": self.numbers("reserves", entry.reserves, count=len(tokens)),
            "lp_token": self._lp_token(tokens),
            "lp_supply": supply,
            "lp_decimals": self._lp_decimals(),
            "state": entry.state,
        }

    def _tokens(self, coins: tuple[int, int]) -> tuple[str, ...]:
        tokens = tuple(self.entry.tokens)
        if not coins[0] <= len(tokens) <= coins[1]:
            raise self.fault("tokens", f"{len(tokens)} tokens, expected {coins[0]} to {coins[1]}")
        for token in tokens:
            if token not in self.context.decimals:
                raise self.fault("tokens", f"{token[:40]!r} is not one of the document's tokens")
        if len(set(tokens)) < len(tokens):
            raise self.fault("tokens", "a token comes twice")
        return tokens

    def _address(self) -> bytes:
        return self.address_at("address", self.entry.address)

    def address_at(self, field: str, text: str) -> bytes:
        try:
            return _decoded(text)
        except ValueError as error:
            raise self.fault(field, str(error)) from None

    def identifier(self, field: str, token: str) -> str:
        if not is_identifier(token):
            raise self.fault(field, f"{token[:40]!r} is not a token identifier")
        return token

    def _lp_token(self, tokens: tuple[str, ...]) -> str:
        token: str = self.entry.lp_token or ""
        if token:
            self.identifier("lpToken", token)
        if token in tokens:
            raise self.fault("lpToken", f"{token} is one of the pool's own tokens")
        return token

    def _lp_decimals(self) -> int:
        decimals = self.number("lpDecimals", self.entry.lp_decimals)
        if decimals > MAX_DECIMALS:
            raise self.fault("lpDecimals", f"{decimals} is more than {MAX_DECIMALS}")
        return decimals

    def decimals(self, tokens: tuple[str, ...]) -> tuple[int, ...]:
        return tuple([self.context.decimals[token] for token in tokens])

    def prices(self, count: int) -> tuple[int, ...]:
        given = self.entry.underlying_prices
        if given is None:
            return (UNIT,) * count
        return self.numbers("underlyingPrices", given, count=count)


@lru_cache(maxsize=1 << 16)
def _decoded(text: str) -> bytes:
    return address.decode(text)


def _xexchange(fields: _Fields) -> Pool:
    entry: XExchangeEntry = fields.entry
    total = fields.number("totalFee", entry.total_fee)
    special = fields.number("specialFee", entry.special_fee)
    base = fields.base(total)
    cut = fields.number("feesCollectorCut", entry.fees_collector_cut or 0)
    if special > total:
        raise fields.fault("specialFee", f"{special} is more than the total fee {total}")
    if cut > base:
        raise fields.fault("feesCollectorCut", f"{cut} is more than the base {base}")
    return XExchangePool(
        **fields.common((2, 2)),
        total_fee=total,
        special_fee=special,
        fee_base=base,
        fee_enabled=entry.fee_enabled,
        fees_collector=_fees_collector(fields, entry),
        fees_collector_cut=cut,
        fee_destinations=_fee_destinations(fields, entry),
        trusted_pairs=_trusted_pairs(fields, entry),
    )


def _fees_collector(fields: _Fields, entry: XExchangeEntry) -> bytes | None:
    """The collector's address, empty for none; None where it or its cut is not known."""
    if not entry.fees_collector:
        return None if entry.fees_collector is None else b""
    pubkey = fields.address_at("feesCollector", entry.fees_collector)
    return None if entry.fees_collector_cut is None else pubkey


def _fee_destinations(fields: _Fields, entry: XExchangeEntry) -> tuple[FeeDestination, ...] | None:
    found = entry.fee_destinations
    if found is None or len(found) > MAX_FEE_ENTRIES:
        return None
    path = "feeDestinations[{}].{}".format
    return tuple(
        [
            FeeDestination(
                fields.address_at(path(k, "address"), to.address), fields.identifier(path(k, "token"), to.token)
            )
            for k, to in enumerate(found)
        ]
    )


def _trusted_pairs(fields: _Fields, entry: XExchangeEntry) -> tuple[TrustedPair, ...] | None:
    found = entry.trusted_pairs
    if found is None or len(found) > MAX_FEE_ENTRIES:
        return None
    pairs = []
    for k, pair in enumerate(found):
        first, second = [fields.identifier(f"trustedPairs[{k}].tokens", token) for token in pair.tokens]
        pairs.append(TrustedPair((first, second), fields.address_at(f"trustedPairs[{k}].address", pair.address)))
    return tuple(pairs)


def _onedex(fields: _Fields) -> Pool:
    entry: OneDexEntry = fields.entry
    total = fields.number("totalFee", entry.total_fee)
    special = fields.number("specialFee", entry.special_fee)
    staking = fields.number("stakingFee", entry.staking_fee)
    if special + staking > total:
        raise fields.fault("stakingFee", f"special and staking fee exceed the total fee {total}")
    if fields.context.main is None:
        raise DocumentError("$.exchanges.OneDex: missing, though the document has OneDex pools")
    pair_id = fields.number("pairId", entry.pair_id)
    if pair_id > MAX_PAIR_ID:
        raise fields.fault("pairId", f"{pair_id} is more than {MAX_PAIR_ID}")
    common = fields.common((2, 2))
    first, second = common["tokens"]
    main = fields.context.main
    return OneDexPool(
        **common,
        pair_id=pair_id,
        total_fee=total,
        special_fee=special,
        staking_fee=staking,
        fee_base=fields.base(total),
        main=(first in main, second in main),
        enabled=entry.enabled,
    )


def _jex(fields: _Fields) -> Pool:
    entry: JexEntry = fields.entry
    lp_fee = fields.number("lpFee", entry.lp_fee)
    platform_fee = fields.number("platformFee", entry.platform_fee)
    return JexPool(
        **fields.common((2, 2)),
        lp_fee=lp_fee,
        platform_fee=platform_fee,
        fee_base=fields.base(lp_fee, platform_fee),
        token_id_keys=entry.token_id_keys,
    )


def _ash_stable(fields: _Fields) -> Pool:
    entry: AshStableEntry = fields.entry
    common = fields.common((2, MAX_COINS))
    swap_fee = fields.number("swapFee", entry.swap_fee)
    admin_fee = fields.number("adminFee", entry.admin_fee)
    base = fields.base(swap_fee)
    if admin_fee > base:
        raise fields.fault("adminFee", f"{admin_fee} is more than the base {base}")
    return AshStablePool(
        **common,
        decimals=fields.decimals(common["tokens"]),
        prices=fields.prices(len(common["tokens"])),
        amp=fields.number("amp", entry.amp, least=1),
        swap_fee=swap_fee,
        admin_fee=admin_fee,
        fee_base=base,
        pool_type=entry.pool_type[:MAX_TEXT],
    )


def _jex_stable(fields: _Fields) -> Pool:
    entry: JexStableEntry = fields.entry
    common = fields.common((2, MAX_COINS))
    coins = len(common["tokens"])
    swap_fee = fields.number("swapFee", entry.swap_fee)
    usual = liquidity_fee(swap_fee, coins)
    on_deposits = usual if entry.liquidity_fee is None else entry.liquidity_fee
    share = entry.platform_share or Share(33, 100)
    part = fields.number("platformShare.num", share.num)
    whole_part = fields.number("platformShare.den", share.den, least=max(part, 1))
    return JexStablePool(
        **common,
        decimals=fields.decimals(common["tokens"]),
        prices=fields.prices(coins),
        amp=fields.number("amp", entry.amp, least=1),
        swap_fee=swap_fee,
        liquidity_fee=fields.number("liquidityFee", on_deposits),
        fee_base=fields.base(max(swap_fee, fields.number("liquidityFee", on_deposits))),
        platform_share=(part, whole_part),
        restricted=entry.restricted,
    )


def _ash_crypto(fields: _Fields) -> Pool:
    entry: AshCryptoEntry = fields.entry
    common = fields.common((2, 2))
    first, second = fields.decimals(common["tokens"])
    (price_scale,) = fields.numbers("priceScale", entry.price_scale, count=1)
    mid_fee = fields.number("midFee", entry.mid_fee)
    out_fee = fields.number("outFee", entry.out_fee)
    return AshCryptoPool(
        **common,
        decimals=(first, second),
        ann=fields.number("a", entry.a, least=1),
        gamma=fields.number("gamma", entry.gamma, least=1),
        d=fields.number("d", entry.d, least=1),
        price_scale=price_scale,
        mid_fee=mid_fee,
        out_fee=out_fee,
        fee_gamma=fields.number("feeGamma", entry.fee_gamma, least=1),
        admin_fee=fields.number("adminFee", entry.admin_fee),
        fee_base=fields.base(max(mid_fee, out_fee)),
        ramping=fields.number("futureAGammaTime", entry.future_a_gamma_time) > 0,
    )


def _rate(fields: _Fields) -> Pool:
    entry: RateEntry = fields.entry
    made = RATE_POOLS[entry.exchange, entry.kind]
    paid = fields.number("rate.num", entry.rate.num, least=1)
    taken = fields.number("rate.den", entry.rate.den, least=1)
    common = fields.common((2, 2))
    if entry.native and common["tokens"][SOLD] != fields.context.wrapped:  # what is paid in is unwrapped for it
        raise fields.fault("native", f"takes EGLD, and its first token is {common['tokens'][SOLD]}")
    return made(**common, rate=(paid, taken), native=entry.native)


_Form = tuple[msgspec.json.Decoder[Any], Callable[[_Fields], Pool]]

_FORMS: Final[dict[tuple[str, str], _Form]] = {
    ("XExchange", "constant_product"): (msgspec.json.Decoder(XExchangeEntry), _xexchange),
    ("OneDex", "constant_product"): (msgspec.json.Decoder(OneDexEntry), _onedex),
    ("Jex", "constant_product"): (msgspec.json.Decoder(JexEntry), _jex),
    ("AshSwap", "stable"): (msgspec.json.Decoder(AshStableEntry), _ash_stable),
    ("Jex", "stable"): (msgspec.json.Decoder(JexStableEntry), _jex_stable),
    ("AshSwap", "crypto"): (msgspec.json.Decoder(AshCryptoEntry), _ash_crypto),
    **{venue: (msgspec.json.Decoder(RateEntry), _rate) for venue in RATE_POOLS},
}
