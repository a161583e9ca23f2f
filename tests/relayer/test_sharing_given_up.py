"""What a relayer that shares its keys gave up, or claimed and did not keep: all others know it for what it is."""

from __future__ import annotations

import asyncio

from relayer_support import RELAYERS, submit, transfer, wallet

from millrace.chain.transaction import client_hash
from relayer.test_sharing import Relayer, Several
from relayer.test_sharing import several as several
from servers.postgres import Postgres

ALICE, KEY = wallet(1), RELAYERS[1].public
FEE = 100_000 * 10**9


async def renewed(relayer: Relayer) -> None:
    """Wait until the server has heard once more of a relayer."""
    sharing = relayer.service.sharing
    assert sharing is not None
    told, remember = asyncio.Event(), sharing._remember

    def heard(commits: int) -> None:
        remember(commits)
        told.set()

    sharing._remember = heard
    async with asyncio.timeout(10):
        await told.wait()
    sharing._remember = remember


def set_aside(relayer: Relayer) -> int:
    """Of what a relayer gave up itself, or those whose seat it took, and may still have to be paid."""
    return relayer.service.lifecycle.sponsor.written_off.of_key(KEY)


async def give_up(relayer: Relayer) -> None:
    """Relay a transaction, and write it off."""
    assert await submit(relayer, transfer(ALICE, 0)) == ["ok"]
    assert relayer.service.lifecycle.write_off(client_hash(transfer(ALICE, 0)))


def days_later(several: Several, postgres: Postgres) -> None:
    """Claims are two days old, and some holder knew of none that may still run."""
    schema = several.folder.name
    postgres.sql(
        f'UPDATE "{schema}".claims SET created_ms = created_ms - 172800000',
        f'UPDATE "{schema}".seats SET open_since = (extract(epoch FROM clock_timestamp()) * 1000)::bigint - 600000',
    )


async def test_what_was_given_up_is_known_to_who_takes_the_seat_days_later(
    several: Several, postgres: Postgres
) -> None:
    """It may run as long as its nonce is not used, and who hears that tells all: nobody leaves the fee alone then."""
    one = await several.start("one", claims_seats=1)
    await give_up(one)
    await one.end()
    days_later(several, postgres)
    one = await several.start("one", claims_seats=1)
    await renewed(one)
    await one.end()
    two = await several.start("two", claims_seats=1)
    assert set_aside(two) == FEE
    two.service.lifecycle.nonce_moved(ALICE.public, 1)
    await renewed(two)
    await two.end()
    assert postgres.sql(f'SELECT count(*) FROM "{several.folder.name}".claims WHERE ended_ms IS NULL') == "0"


async def test_what_was_given_up_is_given_up_where_it_was_open(several: Several) -> None:
    """Who comes back to its seat, where another wrote off what it had in flight, knows that it may still run."""
    one = await several.start("one", claims_seats=1)
    assert await submit(one, transfer(ALICE, 0)) == ["ok"]
    await one.die()
    two = await several.start("two", claims_seats=1)
    assert two.service.lifecycle.write_off(client_hash(transfer(ALICE, 0)))
    await two.end()
    one = await several.start("one", claims_seats=1)
    assert set_aside(one) == FEE and not one.service.lifecycle.inflight.entries()
    one.service.lifecycle.nonce_moved(ALICE.public, 1)
    await one.end()
    two = await several.start("two", claims_seats=1)
    assert set_aside(two) == 0


async def test_what_was_given_up_is_set_aside_once(several: Several) -> None:
    """Who comes back to another seat leaves its fee to who has the one it was claimed for, and heard of it there."""
    one = await several.start("one")
    await give_up(one)
    await one.end()
    two = await several.start("two")
    three = await several.start("three")
    assert {two.service.sharing.seat.number, three.service.sharing.seat.number} == {0, 1}  # type: ignore[union-attr]
    holder, other = (two, three) if set_aside(two) else (three, two)
    assert (set_aside(holder), set_aside(other)) == (FEE, 0)
    await other.end()
    one = await several.start("one")
    assert set_aside(one) == 0
    assert one.service.sharing is not None and one.service.sharing.written_off.of_key(KEY) == FEE
