"""The helper by which tests wait."""

from __future__ import annotations

import pytest

from waiting import until


async def test_it_waits_until_something_holds_and_not_for_ever() -> None:
    """A function or a coroutine function is asked until it says so; what never holds ends as a timeout."""
    asked: list[int] = []

    def third() -> bool:
        asked.append(1)
        return len(asked) % 3 == 0

    async def sixth() -> bool:
        return third() and len(asked) == 6

    await until(third, pause=0)
    await until(sixth, pause=0)
    assert len(asked) == 6
    with pytest.raises(TimeoutError):
        await until(lambda: None, seconds=0.001)
