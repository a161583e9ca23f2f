"""Liquid staking and a money market beside the generated market: `rate_pools` of the settings adds them.

Rates are plain numbers, and what is paid out is also traded against what it stands for, a little below its rate.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from millrace.chain import address
from millrace.dex.constant_product import JexPool
from millrace.dex.document import TokenInfo
from millrace.dex.pool import Pool
from millrace.dex.rate import RATE_POOLS
from millrace.localnet.market.founding import Token

STOCK: Final = 10**23
"""Smallest units that each contract can pay out; the first reserve is what all of it costs."""
TRADED: Final = 10**22
"""Smallest units of what is paid out in the pair that trades it."""


class Sort(NamedTuple):
    """One contract: what it takes (the number of a token of the market, or a name of those here) and what it pays."""

    venue: tuple[str, str]
    taken: int | str
    paid: str | int
    rate: tuple[int, int]
    native: bool = False
    traded: bool = False


SORTS: Final = (
    Sort(("Hatom", "stake"), 0, "HSEGLD-5ca1e1", (95, 100), native=True, traded=True),
    Sort(("XOXNO", "stake"), 0, "XSEGLD-5ca1e2", (90, 100), native=True, traded=True),
    Sort(("LXOXNO", "stake"), 2, "LSXOX-5ca1e3", (80, 100), traded=True),
    Sort(("Hatom", "supply"), 1, "HLUSDC-5ca1e4", (40, 1)),
    Sort(("Hatom", "redeem"), "HLUSDC-5ca1e4", 1, (1, 41)),
)


class Added(NamedTuple):
    """What comes to a market."""

    tokens: tuple[Token, ...]
    pools: tuple[Pool, ...]
    infos: tuple[TokenInfo, ...]


def rate_pools(listed: tuple[Token, ...], next_address: Callable[[], bytes]) -> Added:
    """The contracts, their tokens, and the pairs that trade these. The first token is the wrapped native one."""
    known = {token.identifier: token for token in listed}
    tokens: list[Token] = []
    infos: list[TokenInfo] = []
    pools: list[Pool] = []
    for sort in SORTS:
        taken, paid = (listed[end].identifier if isinstance(end, int) else end for end in (sort.taken, sort.paid))
        num, den = sort.rate
        if paid not in known:
            known[paid] = Token(paid, known[taken].decimals, known[taken].price * den // num)
            tokens.append(known[paid])
            infos.append(_info(paid, known[paid].decimals))
        at = next_address()
        made = RATE_POOLS[sort.venue]
        pools.append(
            made(
                id=f"r:{address.encode(at)}:{sort.venue[1]}",
                address=at,
                tokens=(taken, paid),
                reserves=(STOCK * den // num, STOCK),
                rate=sort.rate,
                native=sort.native,
            )
        )
        if sort.traded:
            pair = _pair(taken, paid, sort.rate, next_address())
            pools.append(pair)
            infos.append(msgspec.structs.replace(_info(pair.lp_token, 18), is_lp=True, lp_of=pair.id))
    return Added(tuple(tokens), tuple(pools), tuple(infos))


def _pair(taken: str, paid: str, rate: tuple[int, int], at: bytes) -> JexPool:
    """A pair in which what is paid out costs one per cent less than it stands for."""
    return JexPool(
        id=f"j:{address.encode(at)}",
        address=at,
        tokens=(paid, taken),
        reserves=(TRADED, TRADED * rate[1] * 99 // (rate[0] * 100)),
        lp_token=f"{paid.split('-')[0]}LP-{at[-3:].hex()}",
        lp_supply=TRADED,
        lp_fee=20,
        platform_fee=10,
    )


def _info(identifier: str, decimals: int) -> TokenInfo:
    ticker = identifier.split("-")[0]
    return TokenInfo(identifier, decimals, ticker.capitalize(), ticker)
