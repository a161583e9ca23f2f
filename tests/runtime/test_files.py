"""Files that are replaced: whoever looks, at whatever moment the machine stops, finds the old one or the new one."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from millrace.runtime import files


def test_replacing_is_durable_in_this_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are on disk before the name is theirs, and the name is when the block has ended."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    calls: list[tuple[str, bytes]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        what = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        calls.append((what, path.read_bytes()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with files.replacing(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert calls == [("file", b"old"), ("folder", b"new")]
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("at", ["block", "sync", "rename"])
def test_a_refusal_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """Whatever refuses before the new name stands is told, and the old file is as it was; the next attempt succeeds."""
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def refuse(*_: object) -> None:
        raise OSError("refused")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="refused"):
        if at == "sync":
            patch.setattr(os, "fsync", refuse)
        elif at == "rename":
            patch.setattr(Path, "replace", refuse)
        with files.replacing(path) as file:
            file.write(b"new, in part")
            if at == "block":
                refuse()
    assert path.read_bytes() == b"old"
    with files.replacing(path, 0o644) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
