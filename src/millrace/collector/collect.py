"""One round: all exchanges, one document."""

from __future__ import annotations

import asyncio
import hashlib
from typing import NamedTuple

import msgspec

from millrace.chain import address
from millrace.chain.abi import AbiError
from millrace.chain.shard import shard_by_mask
from millrace.collector.exchanges import Reader
from millrace.collector.gateway import Gateway, GatewayError, gather
from millrace.collector.harvest import Harvest, Skipped, unforeseen
from millrace.collector.settings import CollectorSettings
from millrace.collector.tokens import TokenBook
from millrace.dex import entries, wire
from millrace.dex.document import Block, DocumentError, PoolDocument, TokenInfo, decode, encode
from millrace.dex.pool import Pool

NOTHING = Harvest([], [])


class Collected(NamedTuple):
    """A document as it will be served, the pools that are not in it, and a digest of its bytes."""

    document: PoolDocument
    data: bytes
    skipped: list[Skipped]
    digest: str


class CollectError(Exception):
    """No document could be made."""


class Collector:
    """Collects again and again; what never changes is asked once."""

    def __init__(self, settings: CollectorSettings, gateway: Gateway, book: TokenBook) -> None:
        self._settings = settings
        self._gateway = gateway
        self._book = book
        self._reader = Reader(gateway, book, settings.slow_seconds)
        self._listed: set[str] = set()
        """Exchanges that have listed pools so far."""

    async def collect(self) -> Collected:
        """Read every exchange and check the result as its reader will. Raises `CollectError`."""
        settings = self._settings
        try:
            router = address.decode(settings.xexchange_router)
            block, _, xexchange, (onedex, main), jex, ashswap, rates = await gather(
                [
                    self._gateway.block(shard_by_mask(router)),
                    self._book.decimals(settings.wrapped_native_token),
                    self._xexchange(router),
                    self._onedex(),
                    self._jex(),
                    self._ashswap(),
                    self._reader.rated(settings.rates),
                ]
            )
        except (GatewayError, AbiError) as error:
            raise CollectError(str(error)) from None
        harvests: dict[str, Harvest] = {"XExchange": xexchange, "OneDex": onedex, "Jex": jex, "AshSwap": ashswap}
        self._check_listings(harvests)
        harvests["rates"] = rates
        pools = [pool for harvest in harvests.values() for pool in harvest.pools]
        skipped = [item for harvest in harvests.values() for item in harvest.skipped]
        return await asyncio.to_thread(self._document, block, pools, skipped, main)

    def _check_listings(self, harvests: dict[str, Harvest]) -> None:
        """A node out of step with the chain may list nothing: that is no market without this exchange."""
        listed = {name for name, harvest in harvests.items() if harvest.pools or harvest.skipped}
        gone = self._listed - listed
        if gone:
            raise CollectError(f"{', '.join(sorted(gone))} lists no pools any more")
        self._listed = listed

    def _document(
        self, block: Block, pools: list[Pool], skipped: list[Skipped], main: tuple[str, ...] | None
    ) -> Collected:
        """Put together what a reader of the document will accept; what it would not is left out."""
        context = entries.Context({}, None if main is None else frozenset(main), self._settings.wrapped_native_token)
        accepted = []
        for pool in pools:
            try:
                context.decimals.update({token: self._book.info(token).decimals for token in pool.tokens})
                entries.build(msgspec.Raw(msgspec.json.encode(wire.write(pool))), context, pool.id)
                accepted.append(pool)
            except DocumentError as error:
                skipped.append(Skipped(pool.id, str(error)))
            except Exception as error:
                skipped.append(unforeseen(pool.id, error))
        settings = self._settings
        document = PoolDocument(
            block=block,
            wrapped_native_token=settings.wrapped_native_token,
            tokens=self._tokens(accepted),
            pools=tuple(accepted),
            main_pair_tokens=main,
            onedex_router=address.decode(settings.onedex_router) if main is not None else b"",
            xexchange_router=address.decode(settings.xexchange_router),
        )
        data = encode(document)
        try:
            read = decode(data, quarantine=True)
        except DocumentError as error:
            raise CollectError(f"the collected document would be refused: {error}") from None
        if read.quarantined:  # pools that claim one LP token or address: which of them is right nobody can tell
            skipped += [Skipped(item.name, item.reason) for item in read.quarantined]
            document = msgspec.structs.replace(document, pools=read.pools, tokens=self._tokens(list(read.pools)))
            data = encode(document)
        return Collected(document, data, skipped, hashlib.blake2b(data, digest_size=16).hexdigest())

    async def _xexchange(self, router: bytes) -> Harvest:
        return await self._reader.xexchange(router) if "XExchange" in self._settings.exchanges else NOTHING

    async def _onedex(self) -> tuple[Harvest, tuple[str, ...] | None]:
        if "OneDex" not in self._settings.exchanges:
            return NOTHING, None
        return await self._reader.onedex(address.decode(self._settings.onedex_router))

    async def _jex(self) -> Harvest:
        settings = self._settings
        if "Jex" not in settings.exchanges:
            return NOTHING
        restricted = frozenset(map(address.decode, settings.jex_restricted))
        pairs, stable = map(address.decode, settings.jex_pools), map(address.decode, settings.jex_stable_pools)
        return await self._reader.jex(pairs, stable, restricted)

    async def _ashswap(self) -> Harvest:
        settings = self._settings
        if "AshSwap" not in settings.exchanges:
            return NOTHING
        router = address.decode(settings.ashswap_router) if settings.ashswap_router else None
        stable = map(address.decode, settings.ashswap_stable_pools)
        crypto = map(address.decode, settings.ashswap_crypto_pools)
        return await self._reader.ashswap(stable, crypto, router)

    def _tokens(self, pools: list[Pool]) -> tuple[TokenInfo, ...]:
        """The tokens of the pools and their LP tokens, in order.

        Decimals of an LP token that is traded too are what the system contract says, not what its pool says.
        """
        named = {token for pool in pools for token in pool.tokens} | {self._settings.wrapped_native_token}
        tokens = {token: self._book.info(token) for token in named}
        for pool in pools:
            if pool.lp_token:
                new = TokenInfo(identifier=pool.lp_token, decimals=pool.lp_decimals)
                info = tokens.get(pool.lp_token, new)
                issuer = None if info.is_lp else pool.id  # of one that several name nobody can tell whose it is
                tokens[pool.lp_token] = msgspec.structs.replace(info, is_lp=True, lp_of=issuer)
        return tuple(tokens[name] for name in sorted(tokens))
