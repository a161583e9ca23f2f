"""The EGLD wrapper: one for one, both ways."""

from typing import Any

import pytest

from millrace.chain.token import NATIVE
from millrace.localnet.market.market import WRAPPED


def test_wrapping_and_unwrapping_are_one_for_one(world: Any) -> None:
    """What goes in comes out as the other coin, and the wrapper holds EGLD for every wrapped unit."""
    egld, wrapped = world.held(NATIVE), world.held(WRAPPED)
    result = world.call(world.at.wrapper, "wrapEgld", pay=[(NATIVE, 1000)])
    assert (world.held(NATIVE), world.held(WRAPPED)) == (egld - 1000, wrapped + 1000)
    assert [event.identifier for event in result.events] == ["ESDTLocalMint", "ESDTTransfer"]
    result = world.call(world.at.wrapper, "unwrapEgld", pay=[(WRAPPED, 1000)])
    assert (world.held(NATIVE), world.held(WRAPPED)) == (egld, wrapped)
    assert [event.identifier for event in result.events] == ["ESDTLocalBurn", "transferValueOnly"]
    assert world.totals()[WRAPPED] == world.held(NATIVE, world.at.wrapper)


@pytest.mark.parametrize(
    ("function", "args", "pay"),
    [
        ("wrapEgld", [], [(WRAPPED, 5)]),
        ("wrapEgld", [], []),
        ("unwrapEgld", [], [(NATIVE, 5)]),
        ("unwrapEgld", [], [("USDC-c76f1f", 5)]),
        ("unwrapEgld", [], [(WRAPPED, 5), ("USDC-c76f1f", 5)]),
        ("wrapEgld", [b"\x01"], [(NATIVE, 5)]),
    ],
)
def test_anything_else_is_refused(world: Any, function: str, args: list[bytes], pay: list[Any]) -> None:
    """The wrong coin, no coin, several coins or arguments revert."""
    before = world.picture()
    assert not world.call(world.at.wrapper, function, *args, pay=pay).ok
    assert world.picture() == before
