"""When submissions set out: at once, or with others that come close to them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from millrace.relayer.gateway.gathering import BUSY_PACE, FULL, LONG, WINDOW_SECONDS, Gathering

ENOUGH = int(BUSY_PACE * WINDOW_SECONDS)
"""Accepted submissions of a busy window."""


class Setting:
    """A gathering whose windows end when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.gathering = Gathering(self._set_out_together, lambda: self.now)
        self.seen: dict[int, int] = {}
        self.gone: list[int] = []
        self.left = asyncio.Event()

    def submit(self, connection: int, size: int = 1) -> None:
        seen = self.seen.get(connection, 0)
        self.seen[connection] = self.gathering.join(size, seen, cast(Any, Lane(self, connection)))

    def window(self, accepted: int, connections: int) -> None:
        """So many connections submit something that sets out, so much is accepted, and the window ends."""
        for connection in range(connections):
            self.submit(connection)
        for _ in range(accepted):
            self.gathering.accepted(1)
        self.now += WINDOW_SECONDS
        self.gone.clear()
        self.left.clear()

    def _set_out_together(self, lanes: Sequence[Any]) -> None:
        for lane in lanes:
            lane.set_out()


class Lane:
    """A connection's submissions."""

    def __init__(self, setting: Setting, connection: int) -> None:
        self.setting, self.connection = setting, connection

    def set_out(self) -> None:
        self.setting.gone.append(self.connection)
        self.setting.left.set()


@pytest.fixture
async def setting() -> Setting:
    return Setting()


async def test_with_little_to_do_nobody_waits(setting: Setting) -> None:
    """At the start, and below the pace at which others come within an interval."""
    setting.submit(0)
    assert setting.gone == [0]
    setting.window(ENOUGH - 1, 10)
    setting.submit(0)
    assert setting.gone == [0]


async def test_a_full_group_sets_out_in_its_order(setting: Setting) -> None:
    """So that it is never longer than what stages and frames take at a time."""
    setting.window(ENOUGH, 10 * FULL)
    for connection in range(FULL - 1):
        setting.submit(connection)
    assert setting.gone == []
    setting.submit(FULL - 1)
    assert setting.gone == list(range(FULL))


async def test_a_group_sets_out_in_time(setting: Setting) -> None:
    """Whoever else might come."""
    setting.window(ENOUGH, 10)
    setting.submit(3)
    setting.submit(4)
    assert setting.gone == []
    await setting.left.wait()
    assert setting.gone == [3, 4]


async def test_nobody_waits_for_who_is_not_there(setting: Setting) -> None:
    """Few that wait for their answers before they submit again, or one, are as fast as they ever were."""
    setting.window(ENOUGH, 2)
    setting.submit(0)
    assert setting.gone == []
    setting.submit(1)
    assert setting.gone == [0, 1]
    setting.window(ENOUGH, 0)
    setting.window(ENOUGH, 1)
    setting.submit(0)
    assert setting.gone == [0]


async def test_what_is_long_waits_for_nobody(setting: Setting) -> None:
    """It takes nobody along, and says nothing of whether others come."""
    setting.window(ENOUGH, 10)
    setting.submit(0)
    setting.submit(1, LONG)
    assert setting.gone == [1]
    setting.window(0, 10)
    for _ in range(ENOUGH):
        setting.gathering.accepted(LONG)
    setting.submit(0)
    assert setting.gone == [0]


async def test_a_pause_ends_the_waiting(setting: Setting) -> None:
    """What was accepted in a window counts for the time it took."""
    setting.window(ENOUGH, 10)
    setting.now += WINDOW_SECONDS
    setting.submit(0)
    assert setting.gone == [0]
