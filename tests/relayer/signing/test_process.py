"""The signing process: signs only what is journalled and within the caps, whatever it is asked."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relayer_support import NETWORK, RELAYERS, sign, transfer, wallet, with_identity, write_keys

from millrace.chain.keys import KeyPair, verify
from millrace.chain.transaction import client_hash, signing_message, to_proto
from millrace.relayer.journal import chain, identity, submissions
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.mark import NOTHING, Mark
from millrace.relayer.journal.memory import MemoryLost
from millrace.relayer.journal.reading import read_only
from millrace.relayer.journal.submissions import Record
from millrace.relayer.rules.policy_file import PolicyFile, seal
from millrace.relayer.rules.slices import PART
from millrace.relayer.signing import handle
from millrace.relayer.signing.handle import SignerError, SigningProcess
from millrace.relayer.signing.process import Vault
from millrace.relayer.signing.wire import Answer, Done, Ready, Start, Work, frame

ALICE = wallet(1)


def record(tx: Any, **changes: Any) -> Record:
    """A journalled row for a transaction."""
    row = Record(
        sender=tx.sender,
        nonce=tx.nonce,
        client_hash=client_hash(tx),
        chain_hash=None,
        tx=to_proto(tx),
        kind="relay",
        relayer=tx.relayer,
        fee=1,
        cost=None,
        ip="",
        created_ms=1,
        state="journalled",
        broadcast=True,
    )
    return msgspec.structs.replace(row, **changes)


class Desk:
    """A journal and a signing process over it."""

    def __init__(self, folder: Path) -> None:
        owner = identity.read(with_identity(folder / "data")).id
        self.journal = Journal(folder / "data" / "journal.sqlite")
        self.mark = Mark(folder / "data" / "mark", owner)
        self.policy = folder / "policy.toml"
        self.policy.write_text("")
        files = write_keys(folder / "keys")
        places = str(self.journal.path), str(self.mark.path), owner, str(self.policy)
        self.start = Start(files, (), {}, "", *places, NETWORK)
        self.process = SigningProcess(self.start, timeout=5.0)

    async def ask(self, tx: Any, *, write: bool = True) -> bytes | str:
        """Journal a transaction and ask for its signature."""
        if write:
            await self.journal.append([record(tx)])
        (answer,) = await self.process.sign([to_proto(tx)])
        return answer.signature or answer.refusal


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    made = Desk(tmp_path)
    made.journal.open()
    await made.process.start()
    try:
        yield made
    finally:
        await made.process.stop()
        await made.journal.close()


async def test_row_38_no_secret_of_ours_in_its_environment(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signing process is given what a Python process needs to run, and none of the service's other variables."""
    given: list[dict[str, str]] = []
    real = asyncio.create_subprocess_exec

    async def launch(*command: Any, **options: Any) -> Any:
        given.append(options["env"])
        return await real(*command, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", launch)
    monkeypatch.setenv("PGPASSWORD", "secret")
    other = SigningProcess(desk.start, timeout=5.0)
    await other.start()
    await other.stop()
    assert len(given) == 1 and "PATH" in given[0] and "PGPASSWORD" not in given[0]


async def test_signs_what_is_journalled(desk: Desk) -> None:
    """A journalled transaction gets its shard's signature; the same one again gets the same."""
    tx = transfer(ALICE)
    signature = await desk.ask(tx)
    assert isinstance(signature, bytes) and verify(RELAYERS[1].public, signing_message(tx), signature)
    assert await desk.ask(tx, write=False) == signature
    assert desk.process.relayers == {shard: pair.public for shard, pair in RELAYERS.items()}


async def test_row_10_nothing_outside_the_journal(desk: Desk) -> None:
    """What is not journalled, or another payload of a journalled nonce, is never signed."""
    tx = transfer(ALICE)
    assert await desk.ask(tx, write=False) == "not in the journal"
    await desk.ask(tx)
    assert await desk.ask(transfer(ALICE, gas_limit=200_000), write=False) == "not in the journal"


@pytest.mark.parametrize(
    "changes",
    [
        {"client_hash": bytes(32)},
        {"nonce": 1},
        {"sender": wallet(1, 1).public},
        {"relayer": RELAYERS[2].public},
        {"relayer": None, "kind": "broadcast"},
    ],
)
async def test_row_10_nothing_but_what_the_row_says(desk: Desk, changes: dict[str, Any]) -> None:
    """A row of another payload, nonce, sender or relayer, or of what is not ours to sign, is no leave."""
    tx = transfer(ALICE)
    await desk.journal.append([record(tx, **changes)])
    assert await desk.ask(tx, write=False) == "not in the journal"


async def test_row_10_nothing_that_is_signed_already(desk: Desk) -> None:
    """What comes with a relayer's signature is none of the service's requests, and gets no other."""
    tx = transfer(ALICE)
    await desk.ask(tx)
    again = await desk.ask(msgspec.structs.replace(tx, relayer_signature=b"\7" * 64), write=False)
    assert isinstance(again, str)


async def test_row_2_a_check_vouches_for_the_very_bytes(desk: Desk) -> None:
    """That one transaction was verified says nothing of the same one with another signature of its sender."""
    tx = transfer(ALICE)
    assert await desk.process.check([to_proto(tx)]) == [""]
    assert await desk.ask(msgspec.structs.replace(tx, signature=b"\1" * 64)) == "invalid signature"


@pytest.mark.parametrize("state", ["finished", "superseded", "dropped"])
async def test_row_10_nothing_that_is_over(desk: Desk, state: str) -> None:
    """What has ended has given its reservation back, or used it: it is not signed any more."""
    tx = transfer(ALICE)
    await desk.ask(tx)
    desk.journal.change(lambda connection: connection.execute("UPDATE submissions SET state = ?", (state,)))
    await desk.journal.flush()
    assert await desk.ask(tx, write=False) == "not in the journal"


async def test_row_1_self_relay_oracle(desk: Desk) -> None:
    """A relayer key as sender, guardian or receiver is refused in the signing process too, in every shard."""
    for pair in RELAYERS.values():
        assert "not allowed" in str(await desk.ask(transfer(pair), write=True))
    assert "not allowed" in str(await desk.ask(transfer(ALICE, receiver=RELAYERS[0].public)))
    own = RELAYERS[1]
    tx = sign(transfer(ALICE, 1), ALICE, guardian=own.public, options=2, gas_limit=200_000)
    tx = msgspec.structs.replace(tx, guardian_signature=own.sign(signing_message(tx)))
    assert "not allowed" in str(await desk.ask(tx))


async def test_row_2_sign_before_verify(desk: Desk) -> None:
    """A wrong user signature gets no co-signature, journalled or not."""
    tx = msgspec.structs.replace(transfer(ALICE), signature=b"\1" * 64)
    assert await desk.ask(tx) == "invalid signature"


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("[caps]\ngas_price = 999999999", "gas price too high"),
        ("[caps]\ngas_limit = 99999", "gas limit too high"),
        ("[caps]\nfee = 1", "fee too high"),
        ("paused_shards = [1]", "shard paused"),
        ('[lists]\nallow_functions = ["buy"]', "function not allowed"),
    ],
)
async def test_caps_are_checked_again(desk: Desk, policy: str, reason: str) -> None:
    """The signing process reads the policy file itself and holds to its caps and lists."""
    desk.policy.write_text(policy)
    os.utime(desk.policy, ns=(1, 1))
    assert await desk.ask(transfer(ALICE)) == reason


async def test_half_written_policy_keeps_the_old_one(desk: Desk) -> None:
    """While the policy file cannot be read the last good one holds: neither open to all nor closed to all."""
    desk.policy.write_text("[caps]\ngas_limit = 100000")
    assert isinstance(await desk.ask(transfer(ALICE)), bytes)
    for nonce, spoil in ((1, lambda: desk.policy.write_text("[caps]\ngas_lim")), (2, desk.policy.unlink)):
        spoil()
        assert isinstance(await desk.ask(transfer(ALICE, nonce)), bytes)
        assert await desk.ask(transfer(ALICE, nonce + 100, gas_limit=100_001)) == "gas limit too high"
    desk.policy.write_text(seal("[caps]\ngas_limit = 100001"))
    assert isinstance(await desk.ask(transfer(ALICE, 200, gas_limit=100_001)), bytes)


async def test_half_written_policy_at_the_start(tmp_path: Path) -> None:
    """A signing process that never read a policy does not start: there is no old one to keep."""
    file = tmp_path / "policy.toml"
    file.write_text("[caps]\ngas_lim")
    keys = write_keys(tmp_path / "keys")
    start = Start(keys, (), {}, "", str(tmp_path / "j"), "", "", str(file), NETWORK)
    with pytest.raises(SignerError, match=r"policy\.toml"):
        await SigningProcess(start, 5.0).start()


async def test_row_16_other_chain(desk: Desk) -> None:
    """A transaction of another chain is refused."""
    assert await desk.ask(transfer(ALICE, chain_id="1")) == "invalid chain id"


async def test_killed_process_comes_back(desk: Desk) -> None:
    """After kill -9 requests fail at once or are answered by a new process, which has the same keys."""
    assert desk.process.pid is not None
    os.kill(desk.process.pid, signal.SIGKILL)
    tx = transfer(ALICE)
    await desk.journal.append([record(tx)])
    async with asyncio.timeout(20):
        while True:
            try:
                (answer,) = await desk.process.sign([to_proto(tx)])
                break
            except SignerError:
                await asyncio.sleep(0.02)
    assert verify(RELAYERS[1].public, signing_message(tx), answer.signature)
    assert desk.process.restarts == 1


async def test_a_process_that_hangs_is_killed(desk: Desk) -> None:
    """Who waits for a process that says nothing in time is told so, and another process answers later questions."""
    desk.process._timeout = 0.05
    assert desk.process.pid is not None
    os.kill(desk.process.pid, signal.SIGSTOP)
    tx = transfer(ALICE)
    await desk.journal.append([record(tx)])
    async with asyncio.timeout(20):
        with pytest.raises(SignerError, match="went down"):
            await desk.process.check([to_proto(tx)])
        desk.process._timeout = 5.0
        while not desk.process.running:
            await asyncio.sleep(0.02)
        (answer,) = await desk.process.sign([to_proto(tx)])
    assert verify(RELAYERS[1].public, signing_message(tx), answer.signature)


async def test_a_process_that_stands_still_verifies_no_more(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for its word on signatures is told so, and who asks later, too, until it answers; signing waits."""
    monkeypatch.setattr(handle, "SILENT_SECONDS", 0.05)
    assert desk.process.pid is not None
    tx, pid = transfer(ALICE), desk.process.pid
    await desk.journal.append([record(tx)])
    os.kill(pid, signal.SIGSTOP)
    async with asyncio.timeout(20):
        signing = asyncio.create_task(desk.process.sign([to_proto(tx)]))
        for _ in range(2):
            with pytest.raises(SignerError, match="does not answer"):
                await desk.process.check([to_proto(tx)])
        os.kill(pid, signal.SIGCONT)
        (answer,) = await signing
        assert verify(RELAYERS[1].public, signing_message(tx), answer.signature)
        assert await desk.process.check([to_proto(tx)]) == [""]
    assert desk.process.pid == pid


START = Start((), (), {}, "", "", "", "", "", NETWORK)


class Hours:
    """An event loop's clock and timers, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.create_future = asyncio.get_running_loop().create_future
        self.call_soon = asyncio.get_running_loop().call_soon

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, call: Callable[[], None]) -> Any:
        self.due.append((self.now + delay, call))
        return self

    def move(self, now: float) -> None:
        """Go there, and make the calls that are due by then."""
        self.now = now
        calls, self.due = self.due, []
        for at, call in calls:
            call() if at <= now else self.due.append((at, call))


async def _a_moment() -> None:
    """Let the tasks that are ready run, and what they put off to the end of their turn."""
    for _ in range(3):
        await asyncio.sleep(0)


def _listening() -> tuple[SigningProcess, list[Work]]:
    """A signing process that takes every frame and answers none, and the frames it got."""
    process, frames = SigningProcess(START, timeout=5.0), list[Work]()
    process._link = SimpleNamespace(send=frames.append)  # type: ignore[assignment]
    return process, frames


async def test_what_is_asked_in_one_moment_shares_a_frame() -> None:
    """An idle process gets all that is asked in one turn of the event loop at once, up to a full frame of each kind."""
    process, frames = _listening()
    one = [process.sign([b"a"]), process.check([b"b", b"c"]), process.sign([b"d"])]
    questions = [asyncio.create_task(question) for question in one]
    await _a_moment()
    assert frames == [Work([b"a", b"d"], [b"b", b"c"])]
    process._take_done(Done([Answer(refusal="1"), Answer(refusal="2")], ["3", "4"]))
    answers = await asyncio.gather(*questions)
    assert answers == [[Answer(refusal="1")], ["3", "4"], [Answer(refusal="2")]]


async def test_beside_a_frame_under_way_only_full_ones_are_sent() -> None:
    """A short question waits while the process works; a frame's worth of them, of either kind, goes to its socket."""
    process, frames = _listening()
    ask = [process.check, process.sign]
    questions = [asyncio.create_task(process.check([b"first"]))]
    await _a_moment()
    for number in range(PART - 1):
        questions += [asyncio.create_task(kind([bytes([number])])) for kind in ask]
        await _a_moment()
        assert len(frames) == 1
    questions.append(asyncio.create_task(process.sign([b"last"])))
    await _a_moment()
    assert len(frames) == 2 and len(frames[1].sign) == PART and len(frames[1].check) == PART - 1
    questions.append(asyncio.create_task(process.check([b"x"] * PART)))
    await _a_moment()
    assert len(frames) == handle.MAX_UNDER_WAY
    process._take_done(Done([], [""]))
    assert frames[2] == Work([], [b"x"] * PART)
    process._fail_waiting()
    await asyncio.gather(*questions, return_exceptions=True)


async def test_each_question_has_the_whole_time(tmp_path: Path) -> None:
    """The time of a question begins when nothing older waits for an answer; when it is over the process is killed."""
    process = SigningProcess(START, timeout=5.0)
    hours, killed = Hours(), []
    process._loop = hours  # type: ignore[assignment]
    process._link = SimpleNamespace(send=lambda work: None)  # type: ignore[assignment]
    process._process = SimpleNamespace(pid=1, returncode=None, kill=lambda: killed.append(hours.now))  # type: ignore[assignment]
    questions = []
    for data in (b"first", b"second"):
        questions.append(asyncio.create_task(process.sign([data])))
        await _a_moment()
    hours.move(4.0)
    process._take_done(Done([Answer(refusal="no")], []))
    hours.move(8.0)
    assert await questions[0] == [Answer(refusal="no")] and killed == []
    hours.move(9.0)
    assert killed == [9.0]
    process._fail_waiting()
    with pytest.raises(SignerError):
        await questions[1]


async def test_a_process_that_cannot_be_started_is_tried_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a file descriptor to spare for a moment the lost process is replaced all the same."""
    really, failed = asyncio.create_subprocess_exec, asyncio.Event()

    async def once(*arguments: Any, **options: Any) -> Any:
        if not failed.is_set():
            failed.set()
            raise OSError(errno.EMFILE, "Too many open files")
        return await really(*arguments, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", once)
    back = asyncio.Event()
    desk.process.on_return = back.set
    assert desk.process.pid is not None
    os.kill(desk.process.pid, signal.SIGKILL)
    await asyncio.wait_for(back.wait(), 10)
    assert failed.is_set() and desk.process.running


async def test_row_36_no_core_dumps_no_debugger_no_swap(desk: Desk) -> None:
    """The process cannot dump core and its memory is closed to others of the same user."""
    assert desk.process.pid is not None
    status = Path(f"/proc/{desk.process.pid}")
    locked = re.search(r"VmLck:\s+(\d+) kB", (status / "status").read_text())
    assert locked is not None and int(locked[1]) > 0, "keys are kept out of swap, as far as `ulimit -l` allows"
    if os.geteuid() == 0:
        assert resource.prlimit(desk.process.pid, resource.RLIMIT_CORE) == (0, 0)
    else:
        with pytest.raises(PermissionError):
            (status / "mem").open("rb").close()
    arguments = (status / "cmdline").read_bytes()
    assert all(bytes(pair._signing).hex().encode() not in arguments for pair in RELAYERS.values())


async def test_keys_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    """A key of the wrong kind stops the start with a text that names the file and nothing secret."""
    files = write_keys(tmp_path / "keys")
    start = Start(files[:2], (), {}, "", str(tmp_path / "j"), "", "", "", NETWORK)
    with pytest.raises(SignerError, match="no key for shard 2"):
        await SigningProcess(start, 5.0).start()


class Flaky:
    """A connection to the journal whose disk fails so many times, at reads."""

    def __init__(self, path: Path, failures: int) -> None:
        self._really = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
        self._failures = failures

    def execute(self, sql: str, parameters: tuple[Any, ...] = ()) -> Any:
        if sql.startswith("SELECT") and self._failures:
            self._failures -= 1
            raise sqlite3.OperationalError("disk I/O error")
        return self._really.execute(sql, parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._really, name)


ROWS: dict[str, dict[str, Any]] = {
    "right": {},
    "other payload": {"client_hash": bytes(32)},
    "other key": {"relayer": RELAYERS[2].public},
    "not ours": {"relayer": None, "kind": "broadcast"},
    "over": {"state": "superseded"},
}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([*ROWS, "the next one's", "none"]), max_size=9),
    st.lists(st.tuples(st.sampled_from([ALICE, wallet(1, 1)]), st.integers(0, 9)), min_size=1, max_size=80),
    st.sampled_from([0, 2**63 - 4]),
)
def test_row_10_each_of_a_batch_by_its_own_row(rows: list[str], asked: list[tuple[KeyPair, int]], first: int) -> None:
    """However the nonces of a batch follow each other, each transaction is signed only where its own row says so."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.sqlite"
        mark = Mark(Path(folder) / "mark", "ab" * 16)
        mark.make(NOTHING)
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.executescript(submissions.SCHEMA + chain.SCHEMA)
            chain.begin(connection, submissions.KINDS, mark.writer)
            for place, row in enumerate(rows):
                changes = ROWS.get(row, {"client_hash": client_hash(transfer(ALICE, first + place + 1))})
                if row != "none" and first + place < 2**63:
                    submissions.insert(connection, [record(transfer(ALICE, first + place), **changes)])
        vault = Vault(RELAYERS, NETWORK, path, mark, PolicyFile(""))
        answers = vault.sign_all([to_proto(transfer(sender, first + place)) for sender, place in asked])
    for (sender, place), answer in zip(asked, answers, strict=True):
        right = sender is ALICE and first + place < 2**63 and rows[place : place + 1] == ["right"]
        assert (len(answer.signature), answer.refusal) == ((64, "") if right else (0, "not in the journal"))


@pytest.mark.parametrize("failures", [1, 2])
async def test_a_journal_that_fails_for_a_moment(desk: Desk, failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One failing read is tried again on a new connection; nothing is refused, or said to be missing, for it."""
    txs = [transfer(ALICE, nonce) for nonce in range(3)]
    await desk.journal.append([record(tx) for tx in txs])
    vault = Vault(RELAYERS, NETWORK, desk.journal.path, desk.mark, PolicyFile(""))
    vault._journal = Flaky(desk.journal.path, failures)  # type: ignore[assignment]
    answers = vault.sign_all([to_proto(tx) for tx in txs])
    assert [answer.refusal for answer in answers] == [""] * 3


async def test_a_journal_that_cannot_be_read(desk: Desk, tmp_path: Path) -> None:
    """A process that cannot read the journal ends unanswered instead of refusing; a later one signs."""
    tx = transfer(ALICE)
    await desk.journal.append([record(tx)])
    good, path = desk.journal.path, tmp_path / "other.sqlite"
    process = SigningProcess(msgspec.structs.replace(desk.start, journal=str(path)), timeout=5.0)
    back = asyncio.Event()
    process.on_return = back.set
    await process.start()
    try:
        for spoil in (path.touch, lambda: path.write_bytes(b"no database" * 1000), path.unlink):
            spoil()
            with pytest.raises(SignerError):
                await process.sign([to_proto(tx)])
            await asyncio.wait_for(back.wait(), 20)
            back.clear()
        path.symlink_to(good)
        (answer,) = await process.sign([to_proto(tx)])
        assert verify(RELAYERS[1].public, signing_message(tx), answer.signature)
    finally:
        await process.stop()


def killed_at_birth(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """The next `times` processes are killed before they can read anything; the list has the ids of all."""
    really, born = asyncio.create_subprocess_exec, []

    async def kill(*arguments: Any, **options: Any) -> Any:
        process = await really(*arguments, **options)
        born.append(process.pid)
        if len(born) <= times:
            process.kill()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", kill)
    return born


async def test_killed_while_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed before it is ready is replaced, also the very first one."""
    born = killed_at_birth(monkeypatch, 2)
    keys = write_keys(tmp_path / "keys")
    process = SigningProcess(Start(keys, (), {}, "", str(tmp_path / "j"), "", "", "", NETWORK), 5.0)
    await process.start()
    assert process.running and len(born) == 3 and process.pid == born[2]
    await process.stop()


async def test_killed_whenever_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a bounded number of attempts the start fails with how it ended and what to look for; nothing is left."""
    monkeypatch.setattr(handle, "_RESTART_FIRST", 0.001)
    born = killed_at_birth(monkeypatch, 10**6)
    keys = write_keys(tmp_path / "keys")
    process = SigningProcess(Start(keys, (), {}, "", str(tmp_path / "j"), "", "", "", NETWORK), 5.0)
    with pytest.raises(SignerError, match=r"killed by SIGKILL.*memory"):
        await process.start()
    assert len(born) == handle.START_ATTEMPTS and not process.running
    for pid in born:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("size", [1, 3, 7, 1_000])
async def test_reports_that_come_in_pieces(size: int) -> None:
    """However the socket cuts the reports of the signing process, each is read whole and in order; nonsense ends it."""
    done: list[Done] = []
    link = handle._Link(done.append)
    reports = [Ready({1: b"key"}, True), Done([Answer(b"s" * 64)], []), Done([], ["no", ""])]
    stream = b"".join(frame(report) for report in reports)
    for start in range(0, len(stream), size):
        link.data_received(stream[start : start + size])
    assert await link.first == reports[0]
    assert done == reports[1:] and link.answered
    with pytest.raises(OSError, match="impossible frame"):
        link.data_received(b"\xff" * 4)
    link.connection_lost(None)
    await link.lost


class Closed:
    """uvloop's transport between the end of its process and the moment this is told."""

    def is_closing(self) -> bool:
        return True

    def write(self, data: bytes) -> None:
        raise RuntimeError("unable to perform operation; the handler is closed")


async def test_a_question_to_a_process_that_has_just_ended() -> None:
    """What is asked between its end and the news of it is no error of the caller's: it is answered by that news."""
    link = handle._Link(lambda done: None)
    link.connection_made(Closed())  # type: ignore[arg-type]
    link.send(Work([], []))
    link.connection_lost(None)
    assert link.lost.done() and await link.first is None


def test_row_36_no_dumps_and_no_debugger() -> None:
    """A hardened process leaves no core, and the kernel lets nobody of its own user look into it."""
    code = """
import ctypes, resource
from millrace.relayer.signing.process import harden
harden()
PR_GET_DUMPABLE = 3
print(*resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0))
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert answer.stdout.split() == ["0", "0", "0"]


async def test_row_53_a_journal_that_went_back(desk: Desk, tmp_path: Path) -> None:
    """Nothing is signed from a journal that ends before what was acknowledged, or before what was read in it."""
    first, second = transfer(ALICE, 0), transfer(ALICE, 1)
    await desk.journal.append([record(first)])
    older = tmp_path / "older.sqlite"
    with (
        contextlib.closing(sqlite3.connect(desk.journal.path)) as source,
        contextlib.closing(sqlite3.connect(older)) as copy,
    ):
        source.backup(copy)
    assert len(_signed(Vault(RELAYERS, NETWORK, older, desk.mark, PolicyFile("")), first)) == 64
    vault = Vault(RELAYERS, NETWORK, desk.journal.path, desk.mark, PolicyFile(""))
    await desk.journal.append([record(second)])
    assert len(_signed(vault, second)) == 64
    with pytest.raises(MemoryLost, match=r"ends at commit \d+, and commit \d+ was acknowledged"):
        _signed(Vault(RELAYERS, NETWORK, older, desk.mark, PolicyFile("")), first)
    vault._journal = read_only(older)
    with pytest.raises(MemoryLost, match="went back"):
        _signed(vault, first)


async def test_row_53_without_a_mark(desk: Desk) -> None:
    """Nothing is signed where it is not known what was acknowledged, or of whom the journal is."""
    tx = transfer(ALICE)
    await desk.journal.append([record(tx)])
    for mark in (Mark(desk.mark.path.with_name("none"), desk.mark.writer), Mark(desk.mark.path, "ab" * 16)):
        with pytest.raises(MemoryLost, match="mark"):
            _signed(Vault(RELAYERS, NETWORK, desk.journal.path, mark, PolicyFile("")), tx)


def _signed(vault: Vault, tx: Any) -> bytes:
    (answer,) = vault.sign_all([to_proto(tx)])
    return answer.signature
