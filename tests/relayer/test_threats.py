"""An attacker's suite: one test or more for rows of the threat model that no other file holds."""

from __future__ import annotations

from typing import Any

import pytest
from relayer_support import start, submit, transfer, wallet

from millrace.chain import call

ALICE = wallet(1)

TOKEN = b"A-123456".hex().encode()


@pytest.mark.parametrize(
    "data",
    [
        b"burn@0",
        b"burn@zz",
        b"burn@",
        b"burn@0@01",
        b"burn",
        call.encode("burn", b"x"),
        call.esdt_transfer("A-123456", 1, "burn"),
    ],
)
async def test_row_15_denied_functions_by_name(world: Any, data: bytes) -> None:
    """However its arguments look, a function is matched by its name: also one that cannot be read as a call."""
    await start(world, '[lists]\ndeny_functions = ["burn"]')
    tx = transfer(ALICE, data=data, gas_limit=900_000)
    assert await submit(world, tx) == ["function not allowed"]
    assert await submit(world, transfer(ALICE, data=b"burner@0", gas_limit=900_000)) == ["ok"]


@pytest.mark.parametrize("data", [b"burn@0", b"ESDTTransfer@0", b"x@zz"])
async def test_row_15_what_cannot_be_read_is_no_plain_transfer(world: Any, data: bytes) -> None:
    """Where only plain transfers are sponsored, unreadable data does not pass for one."""
    await start(world, '[lists]\nallow_functions = [""]')
    (reason,) = await submit(world, transfer(ALICE, data=data, gas_limit=900_000))
    assert reason in ("function not allowed", "invalid data")
    assert await submit(world, transfer(ALICE)) == ["ok"]


@pytest.mark.parametrize(
    "data",
    [
        b"ESDTTransfer@" + TOKEN + b"@01@6275726e@0",
        b"ESDTNFTTransfer@" + TOKEN + b"@01@01@" + b"00" * 32 + b"@6275726e@0",
        b"MultiESDTNFTTransfer@" + b"00" * 32 + b"@01@" + TOKEN + b"@@01@6275726e@z",
    ],
)
async def test_row_15_unreadable_token_transfers_are_refused(world: Any, data: bytes) -> None:
    """What a token transfer calls cannot be told if its arguments cannot be read: it is not sponsored at all."""
    await start(world)
    tx = transfer(ALICE, receiver=ALICE.public, data=data, gas_limit=900_000)
    assert await submit(world, tx) == ["invalid data"]
