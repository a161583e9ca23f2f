"""Where the aggregator contract finds pools: by token pair or pair id where it can, by address otherwise."""

import copy
from collections.abc import Iterable, Mapping
from typing import Protocol

from millrace.dex.aggregator_contract import WRAPPER
from millrace.dex.constant_product import OneDexPool, XExchangePool
from millrace.dex.pool import Pool
from millrace.dex.rate import RatePool


class Market(Protocol):
    """Where the contract finds pools: by token pair or id where it can, by address otherwise."""

    @property
    def wrapped(self) -> str:
        """Identifier of the wrapped native token."""

    @property
    def wrapper(self) -> bytes:
        """Address of the wrapping contract."""

    def xexchange(self, token: str, other: str) -> Pool | None:
        """The xExchange pool of two tokens, in either order."""

    def onedex(self, token: str, other: str) -> Pool | None:
        """The OneDex pair of two tokens, in either order."""

    def onedex_pair(self, pair_id: int) -> Pool | None:
        """The OneDex pair of that id."""

    def onedex_lp(self, lp_token: str) -> Pool | None:
        """The OneDex pair that issues that LP token."""

    def rated(self, exchange: str, kind: str, token: str) -> Pool | None:
        """The contract of that kind that takes a token at a rate."""

    def at(self, address: bytes) -> Pool | None:
        """The pool whose contract has that address (not for OneDex)."""


class DictMarket:
    """A market in dictionaries. `update` puts pools in place of those with the same id.

    Of several xExchange or OneDex pools with the same two tokens only the first can be reached, as on
    the exchanges' own routers; `reaches` tells.
    """

    def __init__(self, pools: Iterable[Pool], wrapped: str, wrapper: bytes = WRAPPER) -> None:
        self.wrapped = wrapped
        self.wrapper = wrapper
        self.pools: dict[str, Pool] = {}
        self._ids: dict[object, str] = {}
        self._hidden: set[str] = set()  # pools that others stand before
        for pool in pools:
            self.pools[pool.id] = pool
            for key in _keys(pool):
                if self._ids.setdefault(key, pool.id) != pool.id:
                    self._hidden.add(pool.id)

    def _find(self, key: object) -> Pool | None:
        found = self._ids.get(key)
        return None if found is None else self.pools[found]

    def xexchange(self, token: str, other: str) -> Pool | None:
        return self._find(("XExchange", frozenset((token, other))))

    def onedex(self, token: str, other: str) -> Pool | None:
        return self._find(("OneDex", frozenset((token, other))))

    def onedex_pair(self, pair_id: int) -> Pool | None:
        return self._find(("OneDex", pair_id))

    def onedex_lp(self, lp_token: str) -> Pool | None:
        return self._find(("OneDex", lp_token))

    def rated(self, exchange: str, kind: str, token: str) -> Pool | None:
        return self._find((exchange, kind, token))

    def at(self, address: bytes) -> Pool | None:
        return self._find(address)

    def reaches(self, pool: Pool) -> bool:
        """Whether the contract, asked for this pool's tokens or address, finds this pool."""
        return pool.id in self.pools and pool.id not in self._hidden

    def left_by(self, pools: Mapping[str, Pool]) -> "DictMarket":
        """The market with these pools, by id, in place of its own; this one stays as it is."""
        other = copy.copy(self)
        other.pools = {**self.pools, **pools}
        return other

    def update(self, pools: Mapping[str, Pool]) -> None:
        """Replace pools by id."""
        self.pools.update(pools)


def _keys(pool: Pool) -> tuple[object, ...]:
    pair = frozenset(pool.tokens)
    if isinstance(pool, OneDexPool):
        # Those without an LP token share none: nobody is to be hidden for that.
        issued = (("OneDex", pool.lp_token),) if pool.lp_token else ()
        return ("OneDex", pair), ("OneDex", pool.pair_id), *issued
    if isinstance(pool, XExchangePool):
        return ("XExchange", pair), pool.address
    if isinstance(pool, RatePool):
        # A market's contract may be two pools, one of each direction: none of them is found by its address.
        return ((pool.exchange, pool.kind, pool.tokens[0]),)
    return (pool.address,)
