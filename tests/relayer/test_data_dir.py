"""Every file that a data directory really holds, damaged in each way: never a second payload, nothing untrue, and what
nothing hangs on stops nobody. The list of files is the folder's own.

`MILLRACE_DAMAGE` says how many bits of each file are turned over, one at a time (2); `MILLRACE_DAMAGE_SEED` which.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from relayer_damage import Damage, flips, in_each_way
from relayer_support import killed_now, submit, transfer, wallet

from millrace.chain.transaction import client_hash, to_proto
from relayer.test_drills import command

ALICE = wallet(1)
OTHER_USER = 65534
PROGRAM = Path(__file__).with_name("starting.py")
FLIPS = int(os.environ.get("MILLRACE_DAMAGE", "2"))
SEED = int(os.environ.get("MILLRACE_DAMAGE_SEED", str(random.randrange(10**6))))

REMEMBERED = {"journal.sqlite", "journal.sqlite-wal", "mark", "identity", "recovery", "last-good-policy.toml"}
"""Lost or changed they are refused, with what to do; or nothing of them was lost."""
SMALL = {"recovery", "last-good-policy.toml"}
"""Lost as a whole these are refused in any case; with a bit turned over in a line's end they may say what they did."""
REPLACEABLE = {"fates.sqlite", "history.sqlite", "gossip.key", "lock", "journal.sqlite-shm"} | {
    f"{name}.sqlite{ending}" for name in ("fates", "history") for ending in ("-wal", "-shm")
}
"""No damage of them is a reason not to start."""
NEEDED = {f"{name} {how}" for name in ("lock", "journal.sqlite-shm") for how in ("a folder", "not to be read")}
"""But these are used."""


class Made(NamedTuple):
    """A folder after everything, as it was when its relayer was killed, and what is known of it."""

    now: Path
    older: Path
    policy: Path
    """The policy file: by hand, and looser than what is in force."""
    ended: str
    second: bytes
    points: dict[str, float]

    def case(self, folder: Path) -> dict[str, Any]:
        """What to ask of a copy."""
        times = [int(ts) for ts in self.points]
        return {
            "folder": str(folder), "policy": str(self.policy), "ended": self.ended, "second": self.second,
            "start_ms": min(times), "end_ms": max(times),
        }  # fmt: skip


async def make(world: Any, place: Path) -> Made:
    """A folder with all that a relayer keeps: transactions, two safe starts, policies, a gossip peer, statistics."""
    folder, policy = world.folder / "relayer", place / "policy.toml"
    safe_start = "recover", "--yes", "--wait", "0", "--forget-spending", "--ahead"
    policy.write_text("[caps]\nfee = 900000000000000000")
    service = await world.start(policy_file=str(policy), gossip=True)
    assert await submit(world, transfer(ALICE, 0), transfer(ALICE, 1)) == ["ok", "ok"]
    (entry, _) = service.lifecycle.inflight.entries()
    service.lifecycle.included(entry.chain_hash, 5)
    await world.stop()
    await asyncio.to_thread(command, world, *safe_start, "3")
    await world.start(policy_file=str(policy))
    older = (await killed_now(world, folder)).rename(place / "older") / folder.name
    await world.stop()

    policy.write_text("[caps]\nfee = 700000000000000000")
    await asyncio.to_thread(command, world, *safe_start, "5")
    service = await world.start(policy_file=str(policy))
    assert await submit(world, transfer(wallet(2), 0, relayed=False), kind="broadcast") == ["ok"]
    first = time.time_ns() // 1_000_000_000 - 100
    points = {str(second * 1000): float(second % 7) for second in range(first, first + 60)}
    for ts, number in points.items():
        await service.history.add(int(ts), {"probe": number})
    now = (await killed_now(world, folder)).rename(place / "now") / folder.name
    await world.stop()
    policy.write_text("[caps]\nfee = 800000000000000000")
    second = to_proto(transfer(ALICE, 0, gas_limit=123_456))
    return Made(now, older, policy, client_hash(transfer(ALICE, 0)).hex(), second, points)


@pytest.fixture
def place() -> Iterator[Path]:
    """Where another user can look, too."""
    made = Path(tempfile.mkdtemp(prefix="millrace-data-"))
    made.chmod(0o755)
    yield made
    subprocess.run(["chmod", "-R", "u+rwX", made], check=True)
    shutil.rmtree(made)


def start_each(made: Made, damages: list[Damage], place: Path) -> dict[str, dict[str, Any]]:
    """What a start finds on a copy with each damage."""
    cases = []
    user = OTHER_USER if os.geteuid() == 0 else 0
    for number, damage in enumerate(damages):
        copy = place / str(number)
        shutil.copytree(made.now, copy)
        damage.do(copy)
        if user:
            subprocess.run(["chown", "-R", f"{user}:{user}", copy], check=True)
            place.chmod(0o777)  # for leases
        cases.append(made.case(copy))
    done = subprocess.run(
        [sys.executable, PROGRAM, str(user)], input=msgspec.json.encode(cases), capture_output=True, cwd=place
    )
    assert done.returncode == 0, done.stderr.decode()
    return dict(zip((damage.name for damage in damages), json.loads(done.stdout), strict=True))


def wrong_with(name: str, seen: dict[str, Any], made: Made) -> str:
    """What is wrong with what came of a damage; empty if nothing is."""
    file = name.split()[0]
    if "refused" in seen:
        if file in REPLACEABLE and name not in NEEDED:
            return "refused, and nothing hangs on it"
        advised = "`millrace " in seen["refused"] or "et this user" in seen["refused"]
        return "" if advised else "refused without what to do"
    if seen["promise"] != "kept":
        return "a second payload"
    if seen["ahead"] != 5:
        return "the safe start is forgotten"
    if seen["fee"] > 7 * 10**17:
        return "the policy is looser"
    if file in SMALL and " bit " not in name:
        return "not refused"
    if seen["fate"] not in (["included", "5", 0], None, "not now"):
        return "an untrue fate"
    if seen["points"] != "not now" and not seen["points"].items() <= made.points.items():
        return "an untrue history"
    if file not in ("fates.sqlite", "fates.sqlite-wal", "fates.sqlite-shm") and seen["fate"] != ["included", "5", 0]:
        return "the fate is lost"
    return ""


async def test_row_53_every_file_of_a_folder(world: Any, place: Path) -> None:
    """Whatever is damaged: refused with what to do where something hangs on it, else a start that tells no untruth."""
    print(f"MILLRACE_DAMAGE_SEED={SEED}")
    made = await make(world, place)
    files = {path.name for path in made.now.iterdir()}
    assert files == REMEMBERED | REPLACEABLE, "each file of a data directory is one of both"
    dice = random.Random(SEED)
    damages = [
        Damage("nothing at all", lambda folder: None),
        *in_each_way(made.now, made.older),
        *(damage for name in sorted(files) for damage in flips(made.now, FLIPS, dice.random(), name)),
    ]
    assert len(damages) > 6 * len(files)
    results = await asyncio.to_thread(start_each, made, damages, place)
    whole = results["nothing at all"]
    assert whole["fate"] == ["included", "5", 0] and whole["points"] == made.points, whole
    assert (whole["aside"], whole["damaged"]) == (0, 0)
    found = {name: (text, results[name]) for name in results if (text := wrong_with(name, results[name], made))}
    assert found == {}
    for name in ("fates.sqlite", "history.sqlite", "gossip.key"):
        assert results[f"{name} a folder"]["aside"] == 1
    assert results["gossip.key not to be read"]["aside"] == 1
