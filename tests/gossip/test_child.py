"""The peer process as a child: what it knows of us."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.gossip.child import Child
from millrace.gossip.wire import GetStats


async def test_row_38_no_secret_of_ours_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is started without our variables, so keys among them do not reach it."""
    monkeypatch.setenv("MILLRACE_TEST_KEY", "00" * 32)
    child = await Child.spawn("error", 20.0)
    try:
        variables = _environ_of(child.pid)
        assert b"MILLRACE_TEST_KEY" not in variables and b"PATH=" in variables
    finally:
        await child.end()


def _environ_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


async def test_a_command_to_a_process_that_has_just_ended() -> None:
    """Between its end and the news of it nothing is written, which uvloop would refuse: the news answers."""

    class Closed:
        def is_closing(self) -> bool:
            return True

        def write(self, data: bytes) -> None:
            raise RuntimeError("unable to perform operation; the handler is closed")

    child = Child(None, None, Closed(), None)  # type: ignore[arg-type]
    child.send(GetStats(1, 0))
