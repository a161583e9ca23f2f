"""A sink's cursor on disk: whole or absent, never guessed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.notifier.brokers.cursor_file import Cursor, CursorFile, CursorUnusable


def test_new(tmp_path: Path) -> None:
    """A sink without a file is new."""
    assert CursorFile(tmp_path / "c").load() is None


def test_last_one_counts(tmp_path: Path) -> None:
    """The newest sequence is read back, by another process too; nothing else is left in the directory."""
    for sequence in (0, 1_700_000_000_000, (1 << 63) - 1, 7):
        cursor = Cursor(sequence, f"{sequence:016x}")
        CursorFile(tmp_path / "c").save(cursor)
        assert CursorFile(tmp_path / "c").load() == cursor
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_half_a_write(tmp_path: Path) -> None:
    """What a killed process left of its new file harms neither the next load nor the next save."""
    file = CursorFile(tmp_path / "c")
    one, two = Cursor(41, "0" * 16), Cursor(42, "0" * 16)
    file.save(one)
    (tmp_path / "c.new").write_bytes(b"4")
    assert file.load() == one
    file.save(two)
    assert file.load() == two


def test_without_a_name(tmp_path: Path) -> None:
    """A sequence alone, of an earlier version or an operator's hand, is read."""
    (tmp_path / "c").write_bytes(b"41\n")
    assert CursorFile(tmp_path / "c").load() == Cursor(41, "")


@given(st.binary(max_size=40).filter(lambda data: re.fullmatch(rb"[0-9]{1,19}( [0-9a-f]{16})?\n", data) is None))
def test_damage(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """Anything but digits on a line, with a name or without, is refused with what to do about it."""
    path = tmp_path_factory.getbasetemp() / "damaged.cursor"
    path.write_bytes(data)
    with pytest.raises(CursorUnusable, match="damaged"):
        CursorFile(path).load()
