"""The data folder of a running system: one owner, and no memory of an earlier chain."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.system.up import FolderRefused, owned


def test_a_folder_has_one_owner_and_begins_anew(tmp_path: Path) -> None:
    """What services knew of an earlier chain is gone, keys stay, and a second owner is refused and deletes nothing."""
    data = tmp_path / "data"
    for file in ("relayer/journal.db", "relayer-leases/key.held", "notifier/journal.db", "keys/relayer-shard0.pem"):
        (data / file).parent.mkdir(parents=True)
        (data / file).write_text("old")
    (data / "lock").touch()
    with owned(data):
        assert not (data / "relayer").exists()
        assert not (data / "relayer-leases").exists()
        assert not (data / "notifier").exists()
        assert (data / "keys" / "relayer-shard0.pem").read_text() == "old"
        (data / "relayer").mkdir()
        with pytest.raises(FolderRefused), owned(data):
            pass
        assert (data / "relayer").exists()
    with owned(data):
        assert not (data / "relayer").exists()


def test_what_somebody_else_keeps_is_not_deleted(tmp_path: Path) -> None:
    """A folder that another start did not make is refused as it is: it may hold a relayer's journal."""
    journal = tmp_path / "relayer" / "journal.db"
    journal.parent.mkdir()
    journal.write_text("what was signed")
    with pytest.raises(FolderRefused, match="did not put there"), owned(tmp_path):
        pass
    assert journal.read_text() == "what was signed"
    assert not (tmp_path / "lock").exists()


@pytest.mark.parametrize("name", ["file", "file/below", "/proc/none"])
def test_a_folder_that_cannot_be_made(tmp_path: Path, name: str) -> None:
    """It is named with the reason, and nothing is thrown at who typed it."""
    (tmp_path / "file").touch()
    with pytest.raises(FolderRefused, match="cannot be written"), owned(tmp_path / name):
        pass
