"""The data folder of a running system: one owner, and no memory of an earlier chain."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.system.up import FolderInUse, owned


def test_a_folder_has_one_owner_and_begins_anew(tmp_path: Path) -> None:
    """What services knew of an earlier chain is gone, keys stay, and a second owner is refused and deletes nothing."""
    data = tmp_path / "data"
    for file in ("relayer/journal.db", "relayer-leases/key.held", "notifier/journal.db", "keys/relayer-shard0.pem"):
        (data / file).parent.mkdir(parents=True)
        (data / file).write_text("old")
    with owned(data):
        assert not (data / "relayer").exists()
        assert not (data / "relayer-leases").exists()
        assert not (data / "notifier").exists()
        assert (data / "keys" / "relayer-shard0.pem").read_text() == "old"
        (data / "relayer").mkdir()
        with pytest.raises(FolderInUse), owned(data):
            pass
        assert (data / "relayer").exists()
    with owned(data):
        assert not (data / "relayer").exists()
