"""What the aggregator contract reads of a pool before it deposits into it: the published exchanges' own names."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from millrace.chain.abi import nested_bytes, nested_uint
from millrace.dex import aggregator_contract as xo
from millrace.dex.aggregator_contract import ALL, CONTRACT, Action, Program
from millrace.dex.pool import Pool
from millrace.localnet.contracts.execution import stored

ADDS = {"XExchange": Action.XEXCHANGE_ADD, "OneDex": Action.ONEDEX_ADD, "Jex": Action.JEX_ADD}


def of_pair(name: str, pool: Any) -> bytes:
    """A key that names the pair."""
    return name.encode() + nested_uint(pool.pair_id, 4)


def of_token(name: str, pool: Pool, k: int) -> bytes:
    """A key that names a token."""
    return name.encode() + nested_bytes(pool.tokens[k].encode())


def number(value: int) -> bytes:
    """A number as it is stored."""
    return value.to_bytes((value.bit_length() + 7) // 8, "big")


ROWS: dict[str, dict[str, Any]] = {
    "XExchange": {
        "first_token_id": lambda p: (b"first_token_id", p.tokens[0].encode()),
        "second_token_id": lambda p: (b"second_token_id", p.tokens[1].encode()),
        "reserve of the first": lambda p: (of_token("reserve", p, 0), number(p.reserves[0])),
        "reserve of the second": lambda p: (of_token("reserve", p, 1), number(p.reserves[1])),
        "total_fee_percent": lambda p: (b"total_fee_percent", number(p.total_fee)),
        "special_fee_percent": lambda p: (b"special_fee_percent", number(p.special_fee)),
    },
    "OneDex": {
        "pair_first_token_id": lambda p: (of_pair("pair_first_token_id", p), p.tokens[0].encode()),
        "pair_second_token_id": lambda p: (of_pair("pair_second_token_id", p), p.tokens[1].encode()),
        "first reserve": lambda p: (of_pair("pair_first_token_reserve", p), number(p.reserves[0])),
        "second reserve": lambda p: (of_pair("pair_second_token_reserve", p), number(p.reserves[1])),
        "pair_fee": lambda p: (of_pair("pair_fee", p), {40: b"", 60: b"\x01", 100: b"\x02"}[p.total_fee]),
    },
    "Jex": {
        "first_token_id": lambda p: (b"first_token_id", p.tokens[0].encode()),
        "second_token_id": lambda p: (b"second_token_id", p.tokens[1].encode()),
        "first reserve": lambda p: (b"first_token_reserve", number(p.reserves[0])),
        "second reserve": lambda p: (b"second_token_reserve", number(p.reserves[1])),
        "liq_providers_fees": lambda p: (b"liq_providers_fees", number(p.lp_fee)),
        "platform_fees": lambda p: (b"platform_fees", number(p.platform_fee)),
    },
}
"""What the aggregator contract reads, by exchange: the key and what should be there."""
LACKING = {("Jex", "first_token_id"), ("Jex", "second_token_id")}
"""What the published contracts do not store."""


@pytest.mark.parametrize(("exchange", "row"), [(exchange, row) for exchange in ROWS for row in ROWS[exchange]])
def test_contracts_store_what_the_published_ones_store(world: Any, exchange: str, row: str) -> None:
    """Every key the aggregator contract reads is there with its value, or is not, as on the live chain."""
    for pool in world.pools(exchange):
        key, value = ROWS[exchange][row](pool)
        expected = b"" if (exchange, row) in LACKING else value
        assert stored(world.state, pool.address, key) == expected, pool.id


def deposit(world: Any, pool: Pool) -> Any:
    """Half of an input sold, and both deposited, by the aggregator contract."""
    first, second = pool.tokens
    needs_address = ADDS[pool.exchange] in xo.NEEDS_ADDRESS
    w = 0 if needs_address else getattr(pool, "pair_id", xo.AUTO)
    program = Program(
        tokens=(first, second, pool.lp_token),
        addresses=(pool.address,) if needs_address else (),
        amounts=(),
        instructions=(xo.add(ADDS[pool.exchange], (0, 1), ALL, w),),
        min_amount_out=1,
        token_out=2,
    )
    pay = [(first, pool.reserves[0] // 100), (second, pool.reserves[1] // 50)]
    return world.call(CONTRACT, "xo", *xo.encode_arguments(program), pay=pay)


@pytest.mark.parametrize("exchange", ADDS)
def test_a_deposit_needs_every_key_that_is_read(world: Any, exchange: str) -> None:
    """It works where all are stored, and reverts in the contract's words where one is not."""
    pool = world.pools(exchange)[0]
    result = deposit(world, pool)
    complete = not any(exchange == lacking for lacking, _ in LACKING)
    assert result.ok is complete
    if not complete:
        assert result.return_message == "storage decode error (key: first_token_id): ESDT expected"


def test_a_jex_pair_that_has_the_keys_takes_deposits(world: Any) -> None:
    """A contract that differs from the published one: its tokens are under both names."""
    pool = msgspec.structs.replace(world.pools("Jex")[0], token_id_keys=True)
    world.ledger.put_pools((pool,))
    for name, token in (("first", pool.tokens[0]), ("second", pool.tokens[1])):
        for key in (f"{name}_token", f"{name}_token_id"):
            assert stored(world.state, pool.address, key.encode()) == token.encode()
    assert deposit(world, pool).ok


def test_a_onedex_pair_with_a_fee_that_is_not_enumerated_takes_no_deposit(world: Any) -> None:
    """Nothing else is stored for it, and the contract knows no other."""
    pool = msgspec.structs.replace(world.pools("OneDex")[0], total_fee=50, special_fee=25, staking_fee=0)
    world.ledger.put_pools((pool,))
    result = deposit(world, pool)
    assert not result.ok
    assert "pair_fee" in result.return_message


def test_nothing_is_stored_elsewhere(world: Any) -> None:
    """An account without a contract, and a key that nobody uses."""
    assert stored(world.state, b"\x05" * 32, b"first_token_id") == b""
    assert stored(world.state, world.pools("XExchange")[0].address, b"none") == b""
