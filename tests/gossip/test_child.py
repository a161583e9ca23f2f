"""The peer process as a child: what it knows of us."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.gossip.child import Child


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
