"""The pool document: one JSON object with every token and pool of a market, fetched and swapped in whole.

`decode` checks everything and refuses the whole document for any fault; `encode` writes the same form.
Inside, pools are the values of `millrace.dex.pool` and addresses are raw bytes.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence

import msgspec

from millrace.chain import address
from millrace.chain.token import is_identifier
from millrace.dex import entries, wire
from millrace.dex.constant_product import OneDexPool
from millrace.dex.entries import MAX_DECIMALS
from millrace.dex.pool import Pool
from millrace.dex.steps import in_steps
from millrace.dex.wire import DocumentError, TokenInfo

__all__ = ["Block", "DocumentError", "PoolDocument", "TokenInfo", "decode", "encode", "pools"]

VERSION = 1
MAX_BYTES = 64 * 1024 * 1024
MAX_ITEMS = 100_000


class Block(msgspec.Struct, frozen=True):
    """The block whose state the document shows; `timestamp` in seconds."""

    round: int
    nonce: int
    timestamp: int


class PoolDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A market at one block.

    `main_pair_tokens` are OneDex's, None where the document does not speak of OneDex. Routers are 32-byte
    addresses, empty where unknown.
    """

    block: Block
    wrapped_native_token: str
    tokens: tuple[TokenInfo, ...]
    pools: tuple[Pool, ...]
    native_token: str = "EGLD"
    main_pair_tokens: tuple[str, ...] | None = None
    onedex_router: bytes = b""
    xexchange_router: bytes = b""


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
    tokens: list[TokenInfo]
    exchanges: _Exchanges = msgspec.field(default_factory=_Exchanges)
    pools: list[msgspec.Raw]


_WIRE = msgspec.json.Decoder(_Wire)
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
) -> PoolDocument:
    """Parse and check a document. Raises `DocumentError`, whose text names the path and the fault.

    `pause` is called at every step: a thread that reads in the background can rest there. With a `reader` that has
    read the document before this one, what has not changed is not read again.
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
    decimals = _decimals(in_steps(parsed.tokens, pause))
    if parsed.wrapped_native_token not in decimals:
        raise DocumentError("$.wrappedNativeToken: not one of the document's tokens")
    onedex, xexchange = parsed.exchanges.onedex, parsed.exchanges.xexchange
    main = None if onedex is None else tuple(onedex.main_pair_tokens)
    context = entries.Context(decimals, None if main is None else frozenset(main))
    built = (reader or entries.Reader()).read(parsed.pools, context, pause)
    pause()
    _check_unique(built, pause)
    pause()
    return PoolDocument(
        block=parsed.block,
        native_token=parsed.native_token,
        wrapped_native_token=parsed.wrapped_native_token,
        tokens=tuple(parsed.tokens),
        pools=tuple(built),
        main_pair_tokens=main,
        onedex_router=_router(onedex.router if onedex else None, "OneDex"),
        xexchange_router=_router(xexchange.router if xexchange else None, "XExchange"),
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


def _decimals(tokens: Iterable[TokenInfo]) -> dict[str, int]:
    known: dict[str, int] = {}
    for position, token in enumerate(tokens):
        path = f"$.tokens[{position}]"
        if not is_identifier(token.identifier):
            raise DocumentError(f"{path}.identifier: {token.identifier[:40]!r} is not a token identifier")
        if token.identifier in known:
            raise DocumentError(f"{path}.identifier: {token.identifier} comes twice")
        if not 0 <= token.decimals <= MAX_DECIMALS:
            raise DocumentError(f"{path}.decimals: {token.decimals} is not between 0 and {MAX_DECIMALS}")
        known[token.identifier] = token.decimals
    return known


def _check_unique(built: Sequence[Pool], pause: Callable[[], None]) -> None:
    keys: dict[str, Callable[[Pool], Hashable]] = {
        "id": lambda pool: pool.id,
        "lpToken": lambda pool: pool.lp_token or None,
        "pairId": lambda pool: pool.pair_id if isinstance(pool, OneDexPool) else None,
        "address": lambda pool: None if isinstance(pool, OneDexPool) else pool.address,
    }
    for field, key in keys.items():
        _refuse_twice(in_steps(built, pause), field, key)


def _refuse_twice(built: Iterable[Pool], field: str, key: Callable[[Pool], Hashable]) -> None:
    seen: set[Hashable] = set()
    for position, pool in enumerate(built):
        value = key(pool)
        if value is None:
            continue
        if value in seen:
            raise DocumentError(f"$.pools[{position}].{field}: another pool has it too ({pool.id})")
        seen.add(value)


def _router(text: str | None, exchange: str) -> bytes:
    if not text:
        return b""
    try:
        return address.decode(text)
    except ValueError as error:
        raise DocumentError(f"$.exchanges.{exchange}.router: {error}") from None


def _text(router: bytes) -> str | None:
    return address.encode(router) if router else None
