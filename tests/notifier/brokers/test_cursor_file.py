"""A sink's cursor on disk: whole or absent, never guessed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.notifier.brokers.cursor_file import CursorFile, CursorUnusable


def test_new(tmp_path: Path) -> None:
    """A sink without a file is new."""
    assert CursorFile(tmp_path / "c").load() is None


def test_last_one_counts(tmp_path: Path) -> None:
    """The newest sequence is read back, by another process too; nothing else is left in the directory."""
    for sequence in (0, 1_700_000_000_000, (1 << 63) - 1, 7):
        CursorFile(tmp_path / "c").save(sequence)
        assert CursorFile(tmp_path / "c").load() == sequence
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_half_a_write(tmp_path: Path) -> None:
    """What a killed process left of its new file harms neither the next load nor the next save."""
    file = CursorFile(tmp_path / "c")
    file.save(41)
    (tmp_path / "c.new").write_bytes(b"4")
    assert file.load() == 41
    file.save(42)
    assert file.load() == 42


@given(st.binary(max_size=40).filter(lambda data: not (data[:-1].isdigit() and data.endswith(b"\n"))))
def test_damage(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """Anything but digits on a line is refused with what to do about it."""
    path = tmp_path_factory.getbasetemp() / "damaged.cursor"
    path.write_bytes(data)
    with pytest.raises(CursorUnusable, match="damaged"):
        CursorFile(path).load()
