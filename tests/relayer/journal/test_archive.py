"""Archived lines of the audit log: out of the journal, in files that prove themselves against it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from relayer_support import settings, submit, transfer, wallet

from millrace.cli import main
from millrace.relayer.journal import archive as archives
from millrace.relayer.journal import audit, identity
from millrace.relayer.journal.archive import ArchiveError
from millrace.relayer.journal.identity import IdentityError
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.writer import JournalError

DAY_MS = 86_400_000
NOW_MS = time.time_ns() // 1_000_000
KEY = b"\7" * 32


def _lines(days_ago: int, count: int) -> list[audit.Line]:
    at = NOW_MS - days_ago * DAY_MS
    return [(at + n, "reserve", KEY, b"\1" * 32, n, n.to_bytes(32), 5) for n in range(count)]


async def _opened(folder: Path, *lines: audit.Line) -> Journal:
    with contextlib.suppress(IdentityError):  # it has one
        identity.make(folder)
    journal = Journal(folder / identity.JOURNAL)
    journal.open()
    journal.change(lambda connection: audit.write(connection, lines))
    await journal.flush()
    return journal


async def test_what_is_archived_is_out_and_proven(tmp_path: Path) -> None:
    """Several files one after the other; what stays is what is younger; the journal is whole at its next start."""
    id_ = "0" * 32
    journal = await _opened(tmp_path / "data", *_lines(9, 40), *_lines(6, 30), *_lines(3, 20))
    spent = journal.spent_since(NOW_MS - 4 * DAY_MS)
    files = [tmp_path / "1", tmp_path / "2"]
    assert await archives.archive(journal, id_, NOW_MS - 7 * DAY_MS, files[0]) == 40
    await journal.close()
    journal = await _opened(tmp_path / "data")
    assert await archives.archive(journal, id_, NOW_MS - 5 * DAY_MS, files[1]) == 30
    assert archives.verify(journal, id_, files) == 70
    assert journal.spent_since(NOW_MS - 4 * DAY_MS) == spent
    with pytest.raises(ArchiveError, match="nothing"):
        await archives.archive(journal, id_, NOW_MS - 5 * DAY_MS, tmp_path / "3")
    for wrong in ([], files[:1], files[1:], files[::-1], files * 2):
        with pytest.raises(ArchiveError):
            archives.verify(journal, id_, wrong)
    with pytest.raises(ArchiveError):
        archives.verify(journal, "1" * 32, files)
    await journal.close()
    await (await _opened(tmp_path / "data")).close()


async def test_the_newest_line_and_the_last_days_stay(tmp_path: Path) -> None:
    """Budgets are restored from the last days, and leases count by the newest line."""
    journal = await _opened(tmp_path / "data", *_lines(9, 10))
    with pytest.raises(ArchiveError, match="48 hours"):
        await archives.archive(journal, "", NOW_MS - DAY_MS, tmp_path / "0")
    assert await archives.archive(journal, "", NOW_MS - 3 * DAY_MS, tmp_path / "1") == 9
    assert journal.read("SELECT id FROM audit") == [(10,)]
    await journal.close()


async def test_still_append_only(tmp_path: Path) -> None:
    """What was taken out for once is forbidden again."""
    journal = await _opened(tmp_path / "data", *_lines(9, 10))
    await archives.archive(journal, "", NOW_MS - 3 * DAY_MS, tmp_path / "1")
    schema = journal.read("SELECT sql FROM sqlite_master WHERE name LIKE 'audit_is_append_only_%'")
    assert len(schema) == 2
    for statement in ("DELETE FROM audit", "UPDATE audit SET amount = '0'"):
        with pytest.raises(JournalError, match="append-only"):
            await journal._open_writer().commit(lambda connection, text=statement: connection.execute(text))
    await journal.close()


async def test_any_change_of_a_file_is_found(tmp_path: Path) -> None:
    """A bit, a line or the end that is not as it was: the file is refused."""
    journal = await _opened(tmp_path / "data", *_lines(9, 6))
    file = tmp_path / "1"
    await archives.archive(journal, "", NOW_MS - 3 * DAY_MS, file)
    good = file.read_bytes()
    lines = good.splitlines(keepends=True)
    bad = [good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in range(len(good) - 1)]
    bad += [b"".join(lines[:n] + lines[n + 1 :]) for n in range(len(lines))]
    bad += [b"".join([*lines[: n + 1], *lines[n:]]) for n in range(len(lines))]
    for data in bad:
        file.write_bytes(data)
        with pytest.raises(ArchiveError):
            archives.verify(journal, "", [file])
    file.write_bytes(good)
    assert archives.verify(journal, "", [file]) == 5
    await journal.close()


async def test_by_the_command(world: Any) -> None:
    """The commands open the journal as the relayer does, and not while it runs; nothing is as old as that here."""
    await world.start()
    assert await submit(world, transfer(wallet(1), 0)) == ["ok"]
    given = settings(world.folder)
    options = ["--set", f"data_dir={given.data_dir}"]
    words = ["relayer", "archive", "--before", "2020-01-01", str(world.folder / "old"), *options]
    assert "in use" in (await _invoke(words)).output
    await world.stop()
    done = await _invoke(words)
    assert done.exit_code == 1 and "nothing as old as that" in done.output, done.output
    journal = await _opened(given.data_dir)
    await journal.close()
    (world.folder / "file").write_text("x\n")
    done = await _invoke(["relayer", "verify-archive", str(world.folder / "file"), *options])
    assert done.exit_code == 1 and "Error" in done.output


async def _invoke(words: list[str]) -> Any:
    """The command has an event loop of its own, so it runs in another thread."""
    return await asyncio.to_thread(CliRunner().invoke, main, words)
