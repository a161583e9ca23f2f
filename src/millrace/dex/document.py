"""The pool document: one JSON object with every token and pool of a market, fetched and swapped in whole.

`decode` checks everything. It refuses the whole document for any fault, or leaves single faulty pools and tokens out
and names them; `encode` writes the same form. Inside, pools are the values of `millrace.dex.pool` and addresses are
raw bytes.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Annotated

import msgspec

from millrace.chain import address
from millrace.chain.token import is_identifier
from millrace.dex import entries, wire
from millrace.dex.constant_product import OneDexPool
from millrace.dex.entries import MAX_DECIMALS
from millrace.dex.pool import Pool
from millrace.dex.rate import RatePool
from millrace.dex.steps import in_steps
from millrace.dex.wire import DocumentError, TokenInfo

__all__ = ["Block", "DocumentError", "PoolDocument", "Quarantined", "TokenInfo", "decode", "encode", "pools"]

VERSION = 1
MAX_BYTES = 64 * 1024 * 1024
MAX_ITEMS = 100_000


_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
"""A whole number that every reader of JSON gets exactly: answers hand it on."""


class Block(msgspec.Struct, frozen=True):
    """The block whose state the document shows; `timestamp` in seconds."""

    round: _Count
    nonce: _Count
    timestamp: _Count


class Quarantined(msgspec.Struct, frozen=True):
    """A pool or token that was left out: its id, or `#` and its position where it has none; and what is wrong."""

    name: str
    reason: str


class PoolDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A market at one block.

    `main_pair_tokens` are OneDex's, None where the document does not speak of OneDex. Routers are 32-byte
    addresses, empty where unknown. `quarantined` is what the document held besides and is not to be used.
    """

    block: Block
    wrapped_native_token: str
    tokens: tuple[TokenInfo, ...]
    pools: tuple[Pool, ...]
    native_token: str = "EGLD"
    main_pair_tokens: tuple[str, ...] | None = None
    onedex_router: bytes = b""
    xexchange_router: bytes = b""
    quarantined: tuple[Quarantined, ...] = ()


class _OneDex(msgspec.Struct, rename="camel", omit_defaults=True):
    router: str | None = None
    main_pair_tokens: list[str] = msgspec.field(default_factory=list)


class _XExchange(msgspec.Struct, omit_defaults=True):
    router: str | None = None


class _Exchanges(msgspec.Struct, omit_defaults=True):
    onedex: _OneDex | None = msgspec.field(default=None, name="OneDex")
    xexchange: _XExchange | None = msgspec.field(default=None, name="XExchange")


class _Wire(msgspec.Struct, rename="camel", kw_only=True):
    version: int
    block: Block
    native_token: str = "EGLD"
    wrapped_native_token: str
    tokens: list[msgspec.Raw]
    exchanges: _Exchanges = msgspec.field(default_factory=_Exchanges)
    pools: list[msgspec.Raw]


_WIRE = msgspec.json.Decoder(_Wire)
_TOKEN = msgspec.json.Decoder(TokenInfo)
_ENCODER = msgspec.json.Encoder()


def pools(document: PoolDocument) -> list[Pool]:
    """The document's pools."""
    return list(document.pools)


def _go_on() -> None:
    """The pause of a reader who is in a hurry."""


def decode(
    data: bytes,
    max_bytes: int = MAX_BYTES,
    pause: Callable[[], None] = _go_on,
    reader: entries.Reader | None = None,
    *,
    quarantine: bool = False,
) -> PoolDocument:
    """Parse and check a document. Raises `DocumentError`, whose text names the path and the fault.

    With `quarantine` a fault of a single pool or token costs that one, and every pool with such a token; of pools or
    tokens that claim the same name all are doubtful, unless they are the same in all: then it is one.

    `pause` is called at every step: a thread that reads in the background can rest there. With a `reader` that has read
    the document before this one, what has not changed is not read again.
    """
    if len(data) > max_bytes:
        raise DocumentError(f"$: the document has {len(data)} bytes, at most {max_bytes} are taken")
    parsed = wire.parse(data, _WIRE, "$")
    if parsed.version != VERSION:
        raise DocumentError(f"$.version: {parsed.version} is not {VERSION}")
    for field, items in (("tokens", parsed.tokens), ("pools", parsed.pools)):
        if len(items) > MAX_ITEMS:
            raise DocumentError(f"$.{field}: {len(items)} items, at most {MAX_ITEMS} are taken")
    pause()
    quarantined: list[Quarantined] = []

    def faults(name: str, reason: str) -> None:
        if not quarantine:
            raise DocumentError(reason)
        quarantined.append(Quarantined(name, reason))

    tokens = _tokens(in_steps(parsed.tokens, pause), faults)
    decimals = {token.identifier: token.decimals for token in tokens}
    wrapped = parsed.wrapped_native_token
    if wrapped not in decimals:
        raise DocumentError("$.wrappedNativeToken: not one of the document's tokens")
    onedex, xexchange = parsed.exchanges.onedex, parsed.exchanges.xexchange
    main = None if onedex is None else tuple(onedex.main_pair_tokens)
    context = entries.Context(decimals, None if main is None else frozenset(main), wrapped)
    built = (reader or entries.Reader()).read(parsed.pools, context, pause, faults)
    pause()
    built = _without_repetitions(built, pause)
    pause()
    built = _without_false_shares(built, tokens, wrapped, pause, faults)
    pause()
    built = _without_doubles(built, pause, faults)
    pause()
    return PoolDocument(
        block=parsed.block,
        native_token=parsed.native_token,
        wrapped_native_token=wrapped,
        tokens=tuple(tokens),
        pools=tuple(built.values()),
        main_pair_tokens=main,
        onedex_router=_router(onedex.router if onedex else None, "OneDex"),
        xexchange_router=_router(xexchange.router if xexchange else None, "XExchange"),
        quarantined=tuple(quarantined),
    )


def encode(document: PoolDocument) -> bytes:
    """The document as JSON. The same document gives the same bytes."""
    onedex = None
    if document.main_pair_tokens is not None:
        onedex = _OneDex(_text(document.onedex_router), list(document.main_pair_tokens))
    router = _text(document.xexchange_router)
    return _ENCODER.encode(
        {
            "version": VERSION,
            "block": document.block,
            "nativeToken": document.native_token,
            "wrappedNativeToken": document.wrapped_native_token,
            "tokens": document.tokens,
            "exchanges": _Exchanges(onedex, None if router is None else _XExchange(router)),
            "pools": [wire.write(pool) for pool in document.pools],
        }
    )


def _tokens(raws: Iterable[msgspec.Raw], faults: entries.Faults) -> list[TokenInfo]:
    """The sound tokens."""
    found: dict[str, TokenInfo] = {}
    twice: set[str] = set()
    for position, raw in enumerate(raws):
        path = f"$.tokens[{position}]"
        try:
            token = _token(raw, path)
        except DocumentError as error:
            faults(f"#{position}", str(error))
            continue
        earlier = found.get(token.identifier)
        if earlier is not None and earlier != token:
            twice.add(token.identifier)
            faults(token.identifier, f"{path}.identifier: {token.identifier} comes twice, and not as before")
        found[token.identifier] = token
    return [token for token in found.values() if token.identifier not in twice]


def _token(raw: msgspec.Raw, path: str) -> TokenInfo:
    token = wire.parse(raw, _TOKEN, path)
    if not is_identifier(token.identifier):
        raise DocumentError(f"{path}.identifier: {token.identifier[:40]!r} is not a token identifier")
    if not 0 <= token.decimals <= MAX_DECIMALS:
        raise DocumentError(f"{path}.decimals: {token.decimals} is not between 0 and {MAX_DECIMALS}")
    return token


def _without_repetitions(built: dict[int, Pool], pause: Callable[[], None]) -> dict[int, Pool]:
    """The pools, each once: what ends one page of an upstream's list can begin the next one, the same."""
    first_of: dict[str, int] = {}
    once: dict[int, Pool] = {}
    for position, pool in in_steps(built.items(), pause):
        first = first_of.setdefault(pool.id, position)
        if first == position or built[first] != pool:
            once[position] = pool
    return once


def _without_doubles(built: dict[int, Pool], pause: Callable[[], None], faults: entries.Faults) -> dict[int, Pool]:
    """The pools of which each is the only one with its id, LP token, address or OneDex number."""
    keys: dict[str, Callable[[Pool], Hashable]] = {
        "id": lambda pool: pool.id,
        "lpToken": lambda pool: pool.lp_token or None,
        "pairId": lambda pool: pool.pair_id if isinstance(pool, OneDexPool) else None,
        "address": lambda pool: None if isinstance(pool, OneDexPool | RatePool) else pool.address,
    }
    doubles: dict[int, str] = {}
    seen: dict[tuple[str, Hashable], int] = {}
    for position, pool in in_steps(built.items(), pause):
        for field, key in keys.items():
            value = key(pool)
            if value is None:
                continue
            first = seen.setdefault((field, value), position)
            if first != position:
                for one in (first, position):
                    doubles[one] = f"$.pools[{one}].{field}: another pool has it too ({built[one].id})"
    for position in sorted(doubles, reverse=True):
        faults(built[position].id, doubles[position])
    return {position: pool for position, pool in built.items() if position not in doubles}


def _without_false_shares(
    built: dict[int, Pool],
    tokens: Iterable[TokenInfo],
    wrapped: str,
    pause: Callable[[], None],
    faults: entries.Faults,
) -> dict[int, Pool]:
    """The pools whose LP token, where others trade it or have it as theirs, is one, and theirs, as far as the
    document's tokens say.

    Whatever is traded for a token that is none would count as a trade of such a pool's shares; and who names another
    pool's must not cost it its place.
    """
    named: Counter[str] = Counter()
    for pool in in_steps(built.values(), pause):
        named.update((pool.lp_token, *pool.tokens))
    listed = {token.identifier: token for token in tokens if named[token.identifier] > 1}
    sound: dict[int, Pool] = {}
    for position, pool in in_steps(built.items(), pause):
        info = listed.get(pool.lp_token)
        if pool.lp_token == wrapped:
            reason = f"{wrapped} is the wrapped native token"
        elif info is not None and not info.is_lp:
            reason = f"{info.identifier} is no LP token, as the document's tokens say"
        elif info is not None and info.lp_of not in (None, pool.id):
            reason = f"{info.identifier} is the LP token of another pool, as the document's tokens say"
        else:
            sound[position] = pool
            continue
        faults(pool.id, f"$.pools[{position}].lpToken: {reason}")
    return sound


def _router(text: str | None, exchange: str) -> bytes:
    if not text:
        return b""
    try:
        return address.decode(text)
    except ValueError as error:
        raise DocumentError(f"$.exchanges.{exchange}.router: {error}") from None


def _text(router: bytes) -> str | None:
    return address.encode(router) if router else None
