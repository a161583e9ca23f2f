"""Whatever happens to a file of the data directory: no second payload, and each change a reader could see is told.

`MILLRACE_DAMAGE` says how many bits are turned over, one at a time (60); `MILLRACE_DAMAGE_SEED` which.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from relayer_damage import (
    LATER,
    OPEN,
    OVER,
    Damage,
    Folders,
    contents,
    cuts,
    deleted_and_emptied,
    flips,
    make,
    row,
    whole_files,
)  # fmt: skip
from relayer_support import transfer, wallet

from millrace.chain.keys import KeyPair
from millrace.chain.transaction import client_hash, to_proto
from millrace.relayer.journal.identity import IdentityError
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.submissions import Record
from millrace.relayer.journal.writer import JournalError, NonceTaken

KEPT = Path(__file__).parents[1] / "kept"
FLIPS = int(os.environ.get("MILLRACE_DAMAGE", "60"))
SEED = int(os.environ.get("MILLRACE_DAMAGE_SEED", str(random.randrange(10**6))))

MUST_BE_TOLD = {
    *(f"journal.sqlite {what}" for what in ("deleted", "emptied", "a folder")),  # beside its log an older one is whole
    *(f"journal.sqlite-wal {what}" for what in ("deleted", "emptied", "a folder", "older")),
    *(f"mark {what}" for what in ("deleted", "emptied", "a folder", "older")),
    *(f"identity {what}" for what in ("deleted", "emptied", "a folder")),
    "journal and log older",
    "journal and log deleted",
    "journal and identity older",
}


@pytest.fixture
async def folders(tmp_path: Path) -> Folders:
    return await make(tmp_path)


PROMISED = [row(nonce, b"other") for nonce in (*OPEN, *OVER, *LATER)]
"""Second payloads of the nonces that `make` signed."""


async def told(
    folder: Path, before: list[list[object]], mark_path: str = "", promised: Sequence[Record] = PROMISED
) -> str:
    """What the start says of a folder, empty if it starts: then it must be as it was, and keep its nonces."""
    journal = Journal(folder / "journal.sqlite", mark_path)
    try:
        journal.open()
    except (JournalError, IdentityError) as error:
        return str(error)
    try:
        assert contents(folder) == before
        for second in promised:
            with pytest.raises(NonceTaken):
                await journal.append([second])
    finally:
        await journal.close()
    return ""


async def try_all(folders: Folders, scratch: Path, damages: Iterable[Damage]) -> dict[str, str]:
    """What is told of each damage."""
    before, results = contents(folders.now), {}
    for damage in damages:
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(folders.now, scratch)
        damage.do(scratch)
        try:
            results[damage.name] = await told(scratch, before)
        except AssertionError as error:
            raise AssertionError(f"{damage.name} is not told (seed {SEED})") from error
    return results


async def test_a_folder_that_was_killed_starts(folders: Folders) -> None:
    """What `kill -9` leaves is whole, also a second time, and after a proper end."""
    before = contents(folders.now)
    for _ in range(3):
        assert await told(folders.now, before) == ""


async def test_row_53_whole_files(folders: Folders, tmp_path: Path) -> None:
    """A file that is missing, empty, unreadable or of an earlier time is told if it holds anything, with what to do."""
    results = await try_all(folders, tmp_path / "scratch", whole_files(folders.older))
    assert results.keys() >= MUST_BE_TOLD
    assert {name for name in MUST_BE_TOLD if not results[name]} == set()
    for name in MUST_BE_TOLD:
        assert "millrace relayer" in results[name] or "et this user" in results[name], results[name]


async def test_row_53_cut_at_each_page(folders: Folders, tmp_path: Path) -> None:
    """A log or mark that ends too early is told, wherever it was cut, and a journal unless its log has what is cut."""
    results = await try_all(folders, tmp_path / "scratch", cuts(folders.now))
    silent = {name for name, text in results.items() if not text}
    assert not [name for name in silent if name.startswith(("journal.sqlite-wal", "mark"))]
    assert len(results) > 40 and len(results) - len(silent) > 30


async def test_row_53_single_bits(folders: Folders, tmp_path: Path) -> None:
    """A bit that a reader could see is told; one in unused space, or that is written anew anyway, may pass."""
    print(f"MILLRACE_DAMAGE_SEED={SEED}")
    results = await try_all(folders, tmp_path / "scratch", flips(folders.now, FLIPS, SEED))
    counts = Counter((name.split()[0], bool(text)) for name, text in results.items())
    assert counts["identity", False] == 0, counts
    assert sum(count for (_, is_told), count in counts.items() if is_told) > 0, counts


async def test_row_53_a_folder_of_an_earlier_version(tmp_path: Path) -> None:
    """What was lost or changed before an upgrade is told by it, or a reader sees what it makes of the whole folder."""
    print(f"MILLRACE_DAMAGE_SEED={SEED}")
    kept, whole, scratch = tmp_path / "kept", tmp_path / "whole", tmp_path / "scratch"
    shutil.unpack_archive(KEPT / "schema-4.zip", kept)
    shutil.copytree(kept, whole)
    promised = [second(wallet(shard), nonce) for shard, nonce in ((1, 0), (1, 1), (2, 0), (0, 0))]
    assert await told(whole, await upgraded(whole), promised=promised) == ""
    before, results = contents(whole), {}
    for damage in (*deleted_and_emptied(kept), *cuts(kept), *flips(kept, FLIPS // 3, SEED)):
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(kept, scratch)
        damage.do(scratch)
        try:
            results[damage.name] = await told(scratch, before, promised=promised)
        except AssertionError as error:
            raise AssertionError(f"{damage.name} is not told (seed {SEED})") from error
    silent = {name for name, text in results.items() if not text}
    assert not [name for name in silent if " bit " not in name and not name.startswith("fates")], silent
    assert not [name for name in silent if name.startswith("identity")], silent


async def upgraded(folder: Path) -> list[list[object]]:
    """What a reader sees of a folder once it was brought up to date."""
    journal = Journal(folder / "journal.sqlite")
    journal.open()
    await journal.close()
    return contents(folder)


def second(pair: KeyPair, nonce: int) -> Record:
    """Another payload of a nonce than what the kept folder has of it."""
    tx = transfer(pair, nonce, gas_limit=123_456)
    return row(nonce, sender=tx.sender, client_hash=client_hash(tx), tx=to_proto(tx), relayer=tx.relayer)


async def test_row_53_the_folder_put_back_as_a_whole(tmp_path: Path) -> None:
    """With the mark elsewhere a folder that is of an earlier time as a whole is told; the newest one starts."""
    mark = tmp_path / "elsewhere" / "mark"
    folders = await make(tmp_path, str(mark))
    text = await told(folders.older, contents(folders.older), str(mark))
    assert "was acknowledged" in text and "older copy" in text
    assert await told(folders.now, contents(folders.now), str(mark)) == ""


async def test_row_53_two_folders_mixed(folders: Folders, tmp_path: Path) -> None:
    """A journal, a mark or an identity of another folder is told for what it is."""
    (tmp_path / "more").mkdir()
    other = await make(tmp_path / "more")
    journal = ["journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"]
    for names, word in ((journal, "belongs to"), (["mark"], "belongs to"), (["identity"], "belongs to")):
        scratch = tmp_path / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(folders.now, scratch)
        for name in names:
            shutil.copy(other.now / name, scratch / name)
        assert word in await told(scratch, contents(scratch))


async def test_row_53_what_is_refused_is_left_as_it_is(folders: Folders, tmp_path: Path) -> None:
    """A start that refuses changes neither journal nor log, so that a lost log can still be put back."""
    scratch = tmp_path / "scratch"
    shutil.copytree(folders.now, scratch)
    log = scratch / "journal.sqlite-wal"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    kept = {
        name: (scratch / name).read_bytes() for name in ("journal.sqlite", "journal.sqlite-wal", "mark", "identity")
    }
    for _ in range(2):
        assert "was acknowledged" in await told(scratch, [])
    assert kept == {name: (scratch / name).read_bytes() for name in kept}
    shutil.copy(folders.now / log.name, log)
    assert await told(scratch, contents(folders.now)) == ""
