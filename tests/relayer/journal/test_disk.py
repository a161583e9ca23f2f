"""A journal on a disk that is really full, and in files that its user may not read or write."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from relayer_damage import contents, make

OTHER_USER = 65534

FULL = """
import asyncio, json, sys
from pathlib import Path
from millrace.chain.transaction import Transaction, client_hash, to_proto
from millrace.relayer.journal import identity
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.submissions import Record
from millrace.relayer.journal.writer import JournalError

disk = Path(sys.argv[1])
path, filler = disk / "data" / "journal.sqlite", disk / "filler"

def row(nonce):
    tx = Transaction(nonce, 0, b"r" * 32, b"s" * 32, 10**9, 50000, "1", data=b"x" * 2000, signature=b"g" * 64)
    names = (tx.sender, nonce, client_hash(tx), None, to_proto(tx))
    return Record(*names, "broadcast", None, 1, None, "ip", 1, "journalled", True)

def fill(keep):
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            file.truncate(max(0, file.tell() - keep))

async def main():
    identity.make(path.parent)
    journal = Journal(path)
    journal.open()
    fill(200_000)
    acknowledged, refused = [], ""
    while not refused:
        try:
            await journal.append([row(len(acknowledged))])
            acknowledged.append(len(acknowledged))
        except JournalError as error:
            refused = str(error)
    try:
        await journal.append([row(10_000)])
        acknowledged.append(10_000)
    except JournalError:
        pass
    filler.unlink()
    await journal.append([row(20_000)])
    acknowledged.append(20_000)
    await journal.close()
    fill(0)
    try:
        again = Journal(path)
        again.open()
        await again.close()
        text = ""
    except JournalError as error:
        text = str(error)
    filler.unlink()
    last = Journal(path)
    last.open()
    kept = [nonce for (nonce,) in last.read("SELECT nonce FROM submissions ORDER BY nonce")]
    await last.close()
    print(json.dumps({"refused": refused, "start": text, "acknowledged": acknowledged, "kept": kept}))

asyncio.run(main())
"""

AT_EACH_PAGE = """
import asyncio, json, logging, shutil, sys
from pathlib import Path
from millrace.chain.transaction import Transaction, client_hash, to_proto
from millrace.relayer.journal import identity
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.submissions import Record
from millrace.relayer.journal.writer import JournalError

logging.disable()
disk, relayer, sender = Path(sys.argv[1]), b"R" * 32, b"s" * 32
data, filler = disk / "data", disk / "filler"

def row(nonce):
    tx = Transaction(
        nonce, 0, b"r" * 32, sender, 10**9, 50000, "1", data=b"x" * 900, signature=b"g" * 64, relayer=relayer
    )
    names = (sender, nonce, client_hash(tx), None, to_proto(tx))
    return Record(*names, "relay", relayer, 9, None, "ip", 1, "journalled", True)

def fill(keep):
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            file.truncate(max(0, file.tell() - keep))

async def until_full(journal):
    acknowledged = []
    try:
        while True:
            nonce = len(acknowledged)
            await journal.append([row(nonce)])
            acknowledged.append(nonce)
            journal.cosigned([(sender, nonce, b"%064d" % nonce)])
            if nonce >= 2:
                done = row(nonce - 2)
                line = (5000, "settle", relayer, sender, done.nonce, done.client_hash, 7)
                journal.ended([(sender, done.nonce, done.client_hash, "finished", "7", 5000)], [line])
    except JournalError:
        return acknowledged

async def once(keep, room_before_the_end):
    shutil.rmtree(data, ignore_errors=True)
    identity.make(data)
    journal = Journal(data / "journal.sqlite")
    journal.open()
    fill(keep)
    acknowledged = await until_full(journal)
    if room_before_the_end:
        filler.unlink()
    await journal.close()
    filler.unlink(missing_ok=True)
    journal = Journal(data / "journal.sqlite")
    journal.open()
    kept = [nonce for (nonce,) in journal.read("SELECT nonce FROM submissions ORDER BY nonce")]
    signed = journal.read("SELECT count(*) FROM signatures")[0][0]
    ended = journal.read("SELECT count(*) FROM submissions WHERE state = 'finished'")[0][0]
    await journal.close()
    lost = len(acknowledged) - signed, max(0, len(acknowledged) - 2) - ended
    return {"keep": keep, "acknowledged": acknowledged, "kept": kept, "lost": lost if room_before_the_end else (0, 0)}

async def main():
    print(json.dumps([await once(4096 * pages, room) for pages in range(24) for room in (True, False)]))

asyncio.run(main())
"""

COMMANDS = """
import json, os, subprocess, sys
from pathlib import Path
from click.testing import CliRunner
from millrace.chain.keys import KeyPair
from millrace.cli import main

disk = Path(sys.argv[1])
keys = []
for shard in range(3):
    seed = next(n for n in range(1, 100) if KeyPair.from_seed(n.to_bytes(32, "big")).public[-1] % 3 == shard)
    file = disk / f"{shard}.pem"
    file.touch(mode=0o600)
    file.write_text(KeyPair.from_seed(seed.to_bytes(32, "big")).to_pem())
    keys.append(f'"{file}"')

def said(name, *words):
    values = {"data_dir": disk / name, "lease_dir": disk / "leases", "key_files": f"[{','.join(keys)}]"}
    pairs = [item for name, value in values.items() for item in ("--set", f"{name}={value}")]
    done = CliRunner().invoke(main, ["relayer", *map(str, words), *pairs])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return [done.exit_code, done.output]

def each(number):
    return {
        "backup": said("data", "backup", disk / f"copy{number}"),
        "restore": said(f"r{number}", "restore", disk / "backup"),
        "move": said("data", "move", disk / f"moved{number}"),
        "init": said(f"new{number}", "init"),
        "recover": said("restored", "recover", "--yes", "--wait", "0"),
        "import-claims": said("other", "import-claims", disk / "claims"),
        "export-claims": said("data", "export-claims", disk / f"claims{number}"),
        "archive": said("data", "archive", "--before", "2020-01-01", disk / f"archive{number}"),
    }

for words in (
    ("data", "init"), ("other", "init"), ("data", "export-open", disk / "open"), ("data", "backup", disk / "backup"),
    ("restored", "restore", disk / "backup"), ("data", "export-claims", disk / "claims"),
):
    assert said(*words)[0] == 0, said(*words)
with (disk / "filler").open("wb", buffering=0) as file:
    for size in (65536, 512):
        try:
            while True:
                file.write(bytes(size))
        except OSError:
            pass
full = each(1)
(disk / "filler").unlink()
subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
read_only = each(2)
subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
again = {name: said("data", name, disk / f"{name}3") for name in ("backup", "export-claims", "move")}
again["recover"] = said("restored", "recover", "--yes", "--wait", "0")
print(json.dumps({"full": full, "read only": read_only, "again": again}))
"""

FOREIGN = """
import asyncio, json, os, sys
from pathlib import Path
from millrace.relayer.journal import identity
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.writer import JournalError

async def main():
    said = {}
    for folder in sys.argv[2:]:
        try:
            journal = Journal(Path(folder) / "journal.sqlite")
            journal.open()
            await journal.close()
            said[folder] = ""
        except (JournalError, identity.IdentityError) as error:
            said[folder] = str(error)
    print(json.dumps(said))

user = int(sys.argv[1])
if user:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
asyncio.run(main())
"""


def on_a_small_disk(folder: Path, script: str) -> Any:
    """What a program prints that has a disk of 2 MB of its own: by root's right, or in a name space of its own."""
    command = 'mount -t tmpfs -o size=2m none "$1" && exec "$2" -c "$3" "$1"'
    alone = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    done = subprocess.run(
        [*alone, "sh", "-c", command, "sh", str(folder), sys.executable, script], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_row_48_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """What was acknowledged is there, and nothing else; a start without room is told to make some, and loses none."""
    said = on_a_small_disk(tmp_path, FULL)
    assert said["acknowledged"] and said["refused"]
    assert said["kept"] == said["acknowledged"]
    assert "Make room" in said["start"] and "where they are" in said["start"]


def test_row_48_a_disk_that_fills_up_at_each_page(tmp_path: Path) -> None:
    """Whichever write is the first without room: what was acknowledged is there, and what ended, once there is some."""
    rounds = on_a_small_disk(tmp_path, AT_EACH_PAGE)
    assert len({len(item["acknowledged"]) for item in rounds}) > 3
    for item in rounds:
        assert item["kept"] == item["acknowledged"], item
        assert item["lost"] == [0, 0], item


def test_row_48_commands_on_a_full_disk_and_on_one_that_can_only_be_read(tmp_path: Path) -> None:
    """Each says what to do, and once it is done the same commands succeed."""
    said = on_a_small_disk(tmp_path, COMMANDS)
    for name, (code, text) in said["full"].items():
        assert code == 1 and ("Make room" in text or "nothing as old" in text), (name, text)
    for name, (code, text) in said["read only"].items():
        assert code == 1 and ("mounted for writing" in text or "Let this user write" in text), (name, text)
    assert {code for code, _ in said["again"].values()} == {0}, said["again"]


@pytest.fixture
def others() -> Iterator[Path]:
    """A place that another user can reach, as pytest's own is not."""
    place = Path(tempfile.mkdtemp(prefix="millrace-foreign-"))
    place.chmod(0o755)
    yield place
    for path in [place, *place.rglob("*")]:
        path.chmod(0o700)
    shutil.rmtree(place)


async def test_row_53_files_that_its_user_may_not_read_or_write(tmp_path: Path, others: Path) -> None:
    """Refused with the advice to allow it, or what is allowed is enough; in either case nothing is lost or changed."""
    folders = await make(tmp_path)
    before = contents(folders.now)
    user = OTHER_USER if os.geteuid() == 0 else 0
    copies: list[Path] = []
    for name in ("journal.sqlite", "journal.sqlite-wal", "mark", "identity", "lock", "."):
        for mode in (0o000, 0o400) if name != "." else (0o000, 0o500):
            copy = others / f"{name if name != '.' else 'folder'}-{mode:o}"
            shutil.copytree(folders.now, copy)
            for path in (copy, *copy.iterdir()):
                if user:
                    os.chown(path, user, user)
            (copy / name).chmod(mode)
            copies.append(copy)
    command = [sys.executable, "-c", FOREIGN, str(user), *map(str, copies)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    for copy in copies:
        for path in (copy, *copy.iterdir()):
            path.chmod(0o700)
        text, is_enough = said[str(copy)], copy.name in ("identity-400", "folder-500")
        assert "et this user" in text or (is_enough and not text), (copy.name, text)
        assert contents(copy) == before, copy.name
