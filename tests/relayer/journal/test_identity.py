"""The identity of a data directory: made once, whole or refused, and never made anew for a journal that has lost it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from millrace.relayer.journal import holding, identity
from millrace.relayer.journal.identity import Identity, IdentityError
from millrace.relayer.journal.leases import LeaseError
from millrace.relayer.settings import RelayerSettings


def _journal(folder: Path) -> sqlite3.Connection:
    folder.mkdir(exist_ok=True)
    connection = sqlite3.connect(folder / identity.JOURNAL, isolation_level=None)
    connection.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
    return connection


def test_it_is_made_once_and_read_again(tmp_path: Path) -> None:
    """What was made is read as it was made, is random, and is not made a second time."""
    made = identity.make(tmp_path / "a" / "b")
    assert identity.read(tmp_path / "a" / "b") == made
    assert len(made.id) == 32 and int(made.id, 16) >= 0 and made.epoch == 1 and made.state == "new"
    assert identity.make(tmp_path / "c").id != made.id
    with pytest.raises(IdentityError, match="already"):
        identity.make(tmp_path / "a" / "b")
    assert identity.read(tmp_path / "a" / "b") == made


def test_without_one_it_is_said_what_to_do(tmp_path: Path) -> None:
    """A folder that is missing, empty, or of an earlier version is refused with the command that helps."""
    with pytest.raises(IdentityError, match=r"not there.*millrace relayer init"):
        identity.read(tmp_path / "missing")
    with pytest.raises(IdentityError, match="millrace relayer init"):
        identity.read(tmp_path)
    _journal(tmp_path).close()
    with pytest.raises(IdentityError, match=r"earlier version.*millrace relayer init"):
        identity.read(tmp_path)
    assert identity.make(tmp_path) == identity.read(tmp_path)


def test_a_journal_that_lost_its_identity_gets_no_other(tmp_path: Path) -> None:
    """A journal that was once started with an identity is not adopted as if it were of an earlier version."""
    made = identity.make(tmp_path)
    journal = _journal(tmp_path)
    identity.bind(journal, made)
    identity.bind(journal, made)
    journal.close()
    (tmp_path / identity.FILE).unlink()
    for attempt in (identity.read, identity.make):
        with pytest.raises(IdentityError, match="millrace relayer recover"):
            attempt(tmp_path)
    assert not (tmp_path / identity.FILE).exists()


def test_journal_and_identity_of_two_folders_do_not_fit(tmp_path: Path) -> None:
    """A journal that was copied beside another folder's identity is refused."""
    journal = _journal(tmp_path)
    identity.bind(journal, identity.make(tmp_path / "a"))
    with pytest.raises(IdentityError, match="copied"):
        identity.bind(journal, identity.make(tmp_path / "b"))
    journal.close()


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """A file with any one byte changed is another identity nowhere: it is refused, or says what it said."""
    made = identity.make(tmp_path)
    file = tmp_path / identity.FILE
    good = file.read_bytes()
    refused = 0
    for position in range(len(good)):
        file.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        try:
            assert identity.read(tmp_path) == made
        except IdentityError as error:
            refused += 1
            assert "millrace relayer" in str(error)
    assert refused > len(good) // 2
    for length in range(len(good) - 1):
        file.write_bytes(good[:length])
        with pytest.raises(IdentityError):
            identity.read(tmp_path)


def test_moved_and_restored_folders_do_not_start(tmp_path: Path) -> None:
    """A moved folder says where to, a restored one asks for the safe start; a ready one starts."""
    made = Identity("0" * 32, 3)
    identity.check_may_start(tmp_path, made)
    for state, words in (("moved", "moved to there"), ("restored", "millrace relayer recover")):
        other = identity.raised(made, 7, state=state, note="to there" if state == "restored" else "there")  # type: ignore[arg-type]
        assert other.epoch == 8
        with pytest.raises(IdentityError, match=words):
            identity.check_may_start(tmp_path, other)


def test_a_folder_that_shares_its_claims_is_sent_to_no_safe_start(tmp_path: Path) -> None:
    """Without the setting, too: no command makes one of it or moves it, and a restored one says what helps instead."""
    made = identity.make(tmp_path)
    settings = RelayerSettings(data_dir=str(tmp_path), lease_dir=str(tmp_path / "leases"))
    with _journal(tmp_path) as journal, holding.opened(settings):
        journal.execute("INSERT INTO meta VALUES ('shared', 'an id')")
    with pytest.raises(LeaseError, match="millrace relayer init"), holding.opened(settings):
        pass
    restored = identity.raised(made, state="restored", note="from a backup of some time")
    with pytest.raises(IdentityError, match=r"was restored .*millrace relayer init") as caught:
        identity.check_may_start(tmp_path, restored)
    assert "recover" not in str(caught.value)
