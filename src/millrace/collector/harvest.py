"""What is read of an exchange: its pools, and those that are left out, each with its reason."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from millrace.chain.abi import AbiError
from millrace.collector.gateway import GatewayError, LostAnswer, gather
from millrace.dex.pool import Pool

log = logging.getLogger(__name__)

MOST_LOST = 10  # an exchange of which more than one pool in so many (and more than two) got no answer is an error
MAX_POOLS = 20_000
"""Pools of one exchange; one that lists more is not the exchange it should be."""
LONGEST_REASON = 300


class Skipped(NamedTuple):
    """A pool that was left out, and why."""

    pool: str
    reason: str


class Harvest(NamedTuple):
    """Pools of an exchange, and those left out."""

    pools: list[Pool]
    skipped: list[Skipped]


class NoPool(Exception):
    """Nothing to trade with: empty, or not set up."""


def unforeseen(pool: str, error: Exception) -> Skipped:
    """A pool whose numbers lead to an error that nobody has thought of: it costs that pool and no other."""
    log.debug("a pool cannot be used", extra={"pool": pool}, exc_info=error)
    return Skipped(pool, f"internal error: {error!r}"[:LONGEST_REASON])


async def each(work: Sequence[tuple[str, Callable[[], Awaitable[Pool]]]]) -> Harvest:
    """Read every pool, once; those that fail are left out with the reason.

    Raises `GatewayError` when the gateway lost so many that the document would show a market that is not there, or
    when there are more than any exchange has.
    """
    if len(work) > MAX_POOLS:
        raise GatewayError(f"{len(work)} pools are listed, at most {MAX_POOLS} are read")
    first = dict(reversed(work))
    harvest = Harvest([], [Skipped(name, "listed twice") for name, read in work if first[name] is not read])
    lost: list[str] = []

    async def one(name: str, read: Callable[[], Awaitable[Pool]]) -> None:
        try:
            harvest.pools.append(await read())
        except (GatewayError, AbiError, NoPool) as error:
            harvest.skipped.append(Skipped(name, str(error)))
            if isinstance(error, LostAnswer):
                lost.append(str(error))
        except Exception as error:
            harvest.skipped.append(unforeseen(name, error))

    await gather([one(name, read) for name, read in first.items()])
    if len(lost) > max(2, len(first) // MOST_LOST):
        raise GatewayError(f"no answer about {len(lost)} of {len(first)} pools: {lost[0]}")
    harvest.pools.sort(key=lambda pool: pool.id)
    return harvest


def filled(reserves: tuple[int, ...]) -> Any:
    """The reserves of a pool that holds something of every token. Raises `NoPool`."""
    if not reserves or min(reserves) <= 0:
        raise NoPool("empty")
    return reserves


def readable(
    decode: Callable[[bytes], Any], items: Sequence[bytes], where: str, first: int = 0
) -> tuple[list[Any], list[Skipped]]:
    """The entries of a listing, and those that cannot be read, by their place in it."""
    found: list[Any] = []
    broken: list[Skipped] = []
    for number, item in enumerate(items, first):
        try:
            found.append(decoded(decode, item))
        except GatewayError as error:
            broken.append(Skipped(f"{where} #{number}", str(error)))
        except Exception as error:
            broken.append(unforeseen(f"{where} #{number}", error))
    return found, broken


def decoded(decode: Callable[[bytes], Any], data: bytes) -> Any:
    """What a view's answer says. Raises `GatewayError` for one that cannot be read."""
    try:
        return decode(data)
    except AbiError as error:
        raise GatewayError(f"{decode.__name__}: {error}") from None
