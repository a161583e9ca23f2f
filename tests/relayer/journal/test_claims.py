"""Claims in a file: all of them, of this chain, whole or refused; what is imported only ever adds."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from millrace.relayer.journal import claims, identity, submissions
from millrace.relayer.journal.claims import Claim, ClaimsError

ALICE, BOB = b"\1" * 32, b"\2" * 32


def _folder(path: Path, *rows: tuple[bytes, int, bytes | None]) -> Path:
    identity.make(path)
    with closing(sqlite3.connect(path / identity.JOURNAL)) as journal, journal:
        journal.executescript(submissions.SCHEMA + claims.SCHEMA)
        journal.executemany(
            "INSERT INTO submissions (sender, nonce, client_hash, tx, kind, relayer, fee, ip, created_ms, state, "
            "broadcast) VALUES (?1, ?2, CAST(?2 AS BLOB), x'00', 'relay', ?3, '1', 'ip', 1, 'finished', 1)",
            rows,
        )
    return path


def _found(folder: Path, sender: bytes) -> Claim | None:
    with closing(sqlite3.connect(folder / identity.JOURNAL)) as journal:
        return claims.find(lambda sql, values: journal.execute(sql, values).fetchall(), sender)


def test_the_highest_of_each_sender_that_we_pay_for(tmp_path: Path) -> None:
    """Exported is a sender's highest nonce with its hash; what our keys do not sign is left out."""
    source = _folder(tmp_path / "a", (ALICE, 3, b"k"), (ALICE, 11, b"k"), (ALICE, 7, b"k"), (BOB, 1, None))
    assert claims.export(source, tmp_path / "file", "local") == 1
    target = _folder(tmp_path / "b")
    assert claims.import_(target, tmp_path / "file", "local") == 1
    assert _found(target, ALICE) == Claim(11, b"11") and _found(target, BOB) is None


def test_of_two_the_higher_one_stays_in_any_order(tmp_path: Path) -> None:
    """Imports commute, and are exported again with what is known besides."""
    files = []
    for nonce in (5, 9):
        source = _folder(tmp_path / f"from-{nonce}", (ALICE, nonce, b"k"))
        files.append(tmp_path / f"file-{nonce}")
        claims.export(source, files[-1], "local")
    for name, order in (("x", files), ("y", files[::-1])):
        target = _folder(tmp_path / name, (ALICE, 7, b"k"), (BOB, 2, b"k"))
        for file in order:
            claims.import_(target, file, "local")
        assert _found(target, ALICE) == Claim(9, b"9")
        assert claims.export(target, tmp_path / f"out-{name}", "local") == 2
        further = _folder(tmp_path / f"further-{name}")
        claims.import_(further, tmp_path / f"out-{name}", "local")
        assert _found(further, ALICE) == Claim(9, b"9") and _found(further, BOB) == Claim(2, b"2")


def test_into_a_folder_that_was_just_made(tmp_path: Path) -> None:
    """Before its relayer was ever started there is no journal: it is begun, and so is the relayer's later on."""
    claims.export(_folder(tmp_path / "a", (ALICE, 3, b"k")), tmp_path / "file", "local")
    identity.make(tmp_path / "b")
    assert claims.import_(tmp_path / "b", tmp_path / "file", "local") == 1
    assert _found(tmp_path / "b", ALICE) == Claim(3, b"3")


def test_nothing_of_a_file_that_is_not_whole(tmp_path: Path) -> None:
    """Cut off anywhere, changed in any byte, longer, or of another chain, it is refused and nothing is taken over."""
    source = _folder(tmp_path / "a", (ALICE, 3, b"k"), (BOB, 4, b"k"))
    file = tmp_path / "file"
    claims.export(source, file, "local")
    good = file.read_bytes()
    target = _folder(tmp_path / "b")
    bad = [good[:length] for length in range(0, len(good) - 1, 7)] + [good + good, good + b"x"]
    bad += [good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in range(len(good) - 1)]
    for data in bad:
        file.write_bytes(data)
        with pytest.raises(ClaimsError):
            claims.import_(target, file, "local")
    file.write_bytes(good)
    with pytest.raises(ClaimsError, match="chain"):
        claims.import_(target, file, "1")
    claims.import_(_folder(tmp_path / "c"), file, "local")
    with closing(sqlite3.connect(target / identity.JOURNAL)) as journal:
        assert journal.execute("SELECT count(*) FROM imported_claims").fetchone() == (0,)


@pytest.mark.parametrize("nonce", [2**63, 2**64, -1])
def test_a_nonce_that_no_row_can_hold(tmp_path: Path, nonce: int) -> None:
    """It is refused in words, as any line that nobody exported, though the end of the file fits."""
    file = tmp_path / "file"
    claims.export(_folder(tmp_path / "a", (ALICE, 3, b"k")), file, "local")
    head, line, _ = file.read_bytes().splitlines(keepends=True)
    body = head + line.replace(b'"nonce":3', f'"nonce":{nonce}'.encode())
    file.write_text(f"{body.decode()}{json.dumps({'count': 1, 'sha256': hashlib.sha256(body).hexdigest()})}\n")
    target = _folder(tmp_path / "b")
    with pytest.raises(ClaimsError, match=r"line 2: .*export it again"):
        claims.import_(target, file, "local")
    assert _found(target, ALICE) is None


def test_what_an_export_lacks_is_said(tmp_path: Path) -> None:
    """After a safe start what was lost before, and what others claimed that share the keys; of others nothing."""
    folder = _folder(tmp_path / "a", (ALICE, 3, b"k"))
    assert claims.gaps(folder) == []
    identity.write(folder, replace(identity.read(folder), recovered=2))
    with closing(sqlite3.connect(folder / identity.JOURNAL)) as journal, journal:
        journal.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT)")
        journal.execute("INSERT INTO meta VALUES ('shared', 'an id')")
    lost, others = claims.gaps(folder)
    assert "no `recover --ahead 0`" in lost and "claims_url" in others
