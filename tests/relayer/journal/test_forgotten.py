"""A folder that has forgotten something is refused by commands, too: what they make of it would be taken for whole."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from relayer_damage import Folders, make
from relayer_support import RELAYERS

from millrace.relayer.journal import at_risk, backup, claims, moving
from millrace.relayer.journal.at_risk import AtRiskError
from millrace.relayer.journal.backup import BackupError
from millrace.relayer.journal.claims import ClaimsError
from millrace.relayer.journal.leases import FileLeases

KEYS = [pair.public for pair in RELAYERS.values()]


def moved(folder: Path, to: Path) -> None:
    with closing(FileLeases(to.parent / "leases")) as store:
        moving.move(folder, to, KEYS, store)


COMMANDS: dict[str, Callable[[Path, Path], object]] = {
    "backup": backup.backup,
    "move": moved,
    "export-claims": lambda folder, to: claims.export(folder, to, "local"),
    "write-off": lambda folder, _: at_risk.ask_write_offs(folder / "journal.sqlite", 0.0, "", ""),
}
DAMAGES: dict[str, Callable[[Folders], None]] = {
    "no log": lambda folders: (folders.now / "journal.sqlite-wal").unlink(),
    "half a log": lambda folders: _cut(folders.now / "journal.sqlite-wal"),
    "no mark": lambda folders: (folders.now / "mark").unlink(),
    "an older mark": lambda folders: _copy(folders.older / "mark", folders.now / "mark"),
}


def _cut(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


def _copy(source: Path, target: Path) -> None:
    target.write_bytes(source.read_bytes())


def _files(folder: Path) -> dict[str, bytes]:
    """All that a folder's relayer remembers by, as it lies there; who only reads may make a log with nothing in it."""
    found = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "journal.sqlite-shm"}
    return {name: data for name, data in found.items() if data}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("damage", DAMAGES)
async def test_row_53_what_a_start_would_refuse_is_refused_and_stays_as_it_is(
    tmp_path: Path, damage: str, command: str
) -> None:
    """No copy, no claims and no wish are made of it, and what was lost may be put back afterwards."""
    folders = await make(tmp_path)
    DAMAGES[damage](folders)
    before = _files(folders.now)
    with pytest.raises((BackupError, ClaimsError, AtRiskError), match="Put back what belongs there"):
        COMMANDS[command](folders.now, tmp_path / "made")
    assert _files(folders.now) == before and not (tmp_path / "made").exists()


@pytest.mark.parametrize("command", COMMANDS)
async def test_row_53_what_a_kill_left_whole_is_taken(tmp_path: Path, command: str) -> None:
    """A log that is not in the database yet, and a mark one commit behind, are no damage."""
    COMMANDS[command]((await make(tmp_path)).now, tmp_path / "made")


@pytest.mark.parametrize("state", ["restored", "moved"])
async def test_row_53_claims_of_a_folder_that_others_have_gone_on_from_are_refused(tmp_path: Path, state: str) -> None:
    """They would not have what was signed since."""
    folder = (await make(tmp_path)).now
    if state == "moved":
        moved(folder, tmp_path / "made")
    else:
        backup.backup(folder, tmp_path / "copy")
        folder = tmp_path / "made"
        backup.restore(tmp_path / "copy", folder)
    with pytest.raises(ClaimsError, match="millrace relayer recover"):
        claims.export(folder, tmp_path / "claims", "local")
    assert not (tmp_path / "claims").exists()
