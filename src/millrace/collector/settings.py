"""Settings of the collector (`MILLRACE_POOLS__<FIELD>`, table `[pools]`)."""

from __future__ import annotations

import msgspec

from millrace.chain import address
from millrace.collector import known
from millrace.dex.rate import RATE_POOLS
from millrace.runtime.settings import Seconds, Wait


class RateSource(msgspec.Struct, frozen=True, kw_only=True):
    """One contract that trades at a rate, and the views that tell it: none are known, so none are assumed."""

    exchange: str
    """`XOXNO`, `LXOXNO` or `Hatom`."""
    kind: str
    """`stake`, or of Hatom's markets `supply` or `redeem`."""
    address: str
    """The contract, bech32."""
    tokens: tuple[str, str]
    """What it takes and what it pays; the wrapped native token where it takes EGLD."""
    native: bool = False
    """Whether it takes EGLD itself."""
    view: str
    """A view without arguments that tells the rate over `base`."""
    base: int = 10**18
    """What the view's number is counted over."""
    inverse: bool = False
    """Whether the view tells what a unit paid costs, and not what a unit taken is paid."""
    stock: int = 0
    """Most units it can be trusted to pay, where `stock_view` does not tell."""
    stock_view: str = ""
    """A view without arguments that tells how many units it can pay."""

    def __post_init__(self) -> None:
        """Raises `ValueError` for what no rate could be read of."""
        if (self.exchange, self.kind) not in RATE_POOLS:
            known = ", ".join(f"{exchange} {kind}" for exchange, kind in RATE_POOLS)
            raise ValueError(f"rates: {self.exchange} {self.kind} is none of {known}")
        address.decode(self.address)
        if not self.view or self.base < 1:
            raise ValueError(f"rates: {self.exchange} {self.kind} needs a view and a base of at least 1")
        if not self.stock_view and self.stock < 1:
            raise ValueError(f"rates: {self.exchange} {self.kind} needs stock_view, or a stock of at least 1")


class CollectorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Only `gateway` has to be thought about; the addresses are mainnet's."""

    gateway: str = "https://gateway.multiversx.com"
    """Base URL of a gateway; `/vm-values/query` and `/network/status` are asked there."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8500
    """Port that serves the document as `/pools`, with /health; 0 takes any free port."""
    refresh_seconds: Seconds = 6.0
    """Time between the starts of two rounds; a round that takes longer is followed by the next at once."""
    slow_seconds: Wait = 300.0
    """Fees, pool types and LP tokens are asked again after this time only."""
    max_age_seconds: Seconds = 60.0
    """Past this age of the last document, or of the last block the gateway knows, `/pools` answers 503: its readers
    could not tell otherwise that prices are old."""
    output: str = ""
    """File that each document is also written to, in whole; empty: none."""
    once: bool = False
    """Collect one document, write it to `output` (or to standard output) and end."""
    exchanges: tuple[str, ...] = ("XExchange", "OneDex", "AshSwap", "Jex")
    """Exchanges to collect; those not named are left out."""
    parallel: int = 16
    """Most queries under way at a time."""
    attempts: int = 4
    """Tries of a query that the gateway refuses for the moment, or loses."""
    query_timeout_seconds: Seconds = 10.0
    """A query that takes longer counts as lost."""
    token_cache: str = ""
    """File that remembers tokens' decimals between runs; empty: none."""
    wrapped_native_token: str = "WEGLD-bd4d79"
    """Identifier of the wrapped native token."""
    xexchange_router: str = known.XEXCHANGE_ROUTER
    """The contract that lists xExchange's pairs."""
    onedex_router: str = known.ONEDEX_ROUTER
    """The contract that holds OneDex's pairs."""
    ashswap_router: str = ""
    """AshSwap's router, asked for stable pools beyond those named below; empty: not asked."""
    ashswap_stable_pools: tuple[str, ...] = known.ASHSWAP_STABLE_POOLS
    """Addresses of AshSwap's stable pools."""
    ashswap_crypto_pools: tuple[str, ...] = known.ASHSWAP_CRYPTO_POOLS
    """Addresses of AshSwap's crypto pools."""
    jex_pools: tuple[str, ...] = known.JEX_POOLS
    """Addresses of JEX's pairs."""
    jex_stable_pools: tuple[str, ...] = known.JEX_STABLE_POOLS
    """Addresses of JEX's stable pools."""
    rates: tuple[RateSource, ...] = ()
    """Liquid staking and money markets; without any, nothing is traded at a rate."""
    jex_restricted: tuple[str, ...] = ()
    """JEX stable pools that serve only contracts on their own list; no view tells."""

    def __post_init__(self) -> None:
        """Raises `ValueError` for addresses that are none (one would cost every round) and wrong rates."""
        for source in self.rates:
            if source.native and source.tokens[0] != self.wrapped_native_token:
                raise ValueError(
                    f"rates: {source.exchange} {source.kind} takes EGLD, and its first token is {source.tokens[0]}"
                )
        pools = "ashswap_stable_pools", "ashswap_crypto_pools", "jex_pools", "jex_stable_pools", "jex_restricted"
        named = [(name, text) for name in pools for text in getattr(self, name)]
        named += [(name, getattr(self, name)) for name in ("xexchange_router", "onedex_router", "ashswap_router")]
        for name, text in named:
            try:
                if text:
                    address.decode(text)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
