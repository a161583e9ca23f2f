"""The service's side of the signing process: start it, ask it, replace it when it dies or hangs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from millrace.relayer.settings import RelayerSettings
from millrace.relayer.signer_wire import (
    HEADER,
    MAX_FRAME,
    Answer,
    Done,
    Failed,
    Ready,
    Report,
    Start,
    Work,
    frame,
    report_decoder,
)
from millrace.runtime import environment

log = logging.getLogger(__name__)

_RESTART_FIRST, _RESTART_MOST = 0.1, 5.0
START_SECONDS = 15.0
START_ATTEMPTS = 5
"""So many processes may be lost at the start of the service before it gives up."""
MAX_GROUP = 128
"""Transactions asked for at once: some 10 ms of its time, so that a hang is told from a queue."""
CHUNK = 16
"""Transactions of one question in a row: a long one lets short ones pass, as most others' are."""
MAX_UNDER_WAY = 2
"""Frames it may have at once: it works on one while the other waits in the socket."""


class SignerError(Exception):
    """The signing process cannot be started or does not answer."""


class SignerLost(SignerError):
    """The process went away, or could not be started: another one may do better."""


class _Asked:
    """One question: transactions, how many of them were sent, and who waits for one answer to each."""

    __slots__ = ("answer", "answers", "items", "sent")

    def __init__(self, items: list[bytes], answer: asyncio.Future[list[Any]]) -> None:
        self.items = items
        self.answer = answer
        self.answers: list[Any] = []
        self.sent = 0


class _Chunk(NamedTuple):
    """A part of a question: so many of its transactions."""

    asked: _Asked
    size: int


class _Questions:
    """Questions of one kind, each a chunk at a time: short ones pass long ones, and long ones grow old.

    Each take begins with a chunk of the question begun first, then come those not begun yet, then the others begun,
    in turns. So one of `n` chunks is through `n` takes after those begun before it, however many short ones come.
    """

    def __init__(self) -> None:
        self._new: deque[_Asked] = deque()
        self._begun: dict[_Asked, None] = {}
        """In the order in which they were begun."""
        self._turns: deque[_Asked] = deque()
        """The same in the order of their turns, and some that are through."""

    def __bool__(self) -> bool:
        return bool(self._new or self._begun)

    def __iter__(self) -> Iterator[_Asked]:
        yield from self._new
        yield from self._begun

    def add(self, asked: _Asked) -> None:
        self._new.append(asked)

    def take(self, room: int, into: list[bytes]) -> list[_Chunk]:
        """Chunks of at most `room` transactions together, which are appended to `into`."""
        chunks = []
        asked = next(iter(self._begun), None)
        while room > 0 and (asked := asked or self._next()) is not None:
            part = asked.items[asked.sent : asked.sent + min(CHUNK, room)]
            asked.sent += len(part)
            room -= len(part)
            into += part
            chunks.append(_Chunk(asked, len(part)))
            if asked.sent == len(asked.items):
                self._begun.pop(asked, None)
            elif asked not in self._begun:
                self._begun[asked] = None
                self._turns.append(asked)
            asked = None
        return chunks

    def _next(self) -> _Asked | None:
        if self._new:
            return self._new.popleft()
        while self._turns:
            asked = self._turns.popleft()
            if asked in self._begun:
                self._turns.append(asked)
                return asked
        return None

    def clear(self) -> None:
        self._new.clear()
        self._begun.clear()
        self._turns.clear()


class _Group(NamedTuple):
    """What one frame asks."""

    sign: list[_Chunk]
    check: list[_Chunk]


class SigningProcess:
    """One child that holds the keys. `start` it, then `check` and `sign`; it is replaced with back-off when lost.

    Questions that come together travel in one frame, signing before checking, long ones a chunk at a time.
    """

    def __init__(self, start: Start, timeout: float) -> None:
        self._start = start
        self._timeout = timeout
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._to_sign = _Questions()
        self._to_check = _Questions()
        self._under_way: deque[_Group] = deque()
        self._deadline: asyncio.TimerHandle | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self.on_return: Callable[[], None] = lambda: None
        """Called when a lost process has been replaced."""
        self.relayers: dict[int, bytes] = {}
        """Public keys by shard, as the process found them."""
        self.restarts = 0

    @property
    def running(self) -> bool:
        """Whether the process has its keys and takes requests."""
        return self._writer is not None

    @property
    def pid(self) -> int | None:
        """The id of the process, while there is one."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Start the process and wait for its keys. Raises `SignerError` with what is wrong with them.

        One that is lost before it is ready is replaced, as it is later on; after `START_ATTEMPTS` there is something
        wrong that its operator has to see.
        """
        reader = await self._spawn_patiently()
        self._supervisor = asyncio.create_task(self._supervise(reader), name="signer-supervisor")

    async def stop(self) -> None:
        """Let it answer what it was asked, then end the process."""
        waiting = [asked.answer for asked in self._asked()]
        if self.running:
            await asyncio.gather(*waiting, return_exceptions=True)
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        await self._end()
        self._fail_waiting()

    async def sign(self, transactions: list[bytes]) -> list[Answer]:
        """For each transaction its signature, or the process's reason to refuse.

        Raises `SignerError` when no answer came: then it is not known whether anything was signed.
        """
        return await self._ask(self._to_sign, transactions)

    async def check(self, transactions: list[bytes]) -> list[str]:
        """For each transaction an empty text if it is signed as it should be, or the reason why not.

        Raises `SignerError` when no answer came.
        """
        return await self._ask(self._to_check, transactions)

    # ---- questions

    async def _ask(self, questions: _Questions, items: list[bytes]) -> list[Any]:
        if not items:
            return []
        if not self.running:
            raise SignerError("the signing process is down; it is being started again")
        asked = _Asked(items, asyncio.get_running_loop().create_future())
        questions.add(asked)
        self._pump()
        return await asked.answer

    def _pump(self) -> None:
        """Send what waits, as far as the process may have it."""
        while self._writer is not None and len(self._under_way) < MAX_UNDER_WAY and (self._to_sign or self._to_check):
            work = Work([], [])
            sign = self._to_sign.take(MAX_GROUP, work.sign)
            check = self._to_check.take(MAX_GROUP - len(work.sign), work.check)
            self._under_way.append(_Group(sign, check))
            self._writer.write(frame(work))
            if self._deadline is None:
                self._watch()

    def _watch(self) -> None:
        """Kill the process if the oldest frame is not answered in time."""
        self._deadline = asyncio.get_running_loop().call_later(self._timeout, self._hangs) if self._under_way else None

    def _hangs(self) -> None:
        self._deadline = None
        if self._process is not None and self._process.returncode is None:
            log.error("signing process hangs, killing it", extra={"pid": self.pid})
            self._process.kill()

    def _take_done(self, done: Done) -> None:
        group = self._under_way.popleft()
        if self._deadline is not None:
            self._deadline.cancel()
        self._watch()
        for chunks, answers in ((group.sign, done.signed), (group.check, done.checked)):
            at = 0
            for asked, size in chunks:  # frames are answered in their order, and so are the chunks of a question
                asked.answers += answers[at : at + size]
                at += size
                if len(asked.answers) == len(asked.items) and not asked.answer.done():
                    asked.answer.set_result(asked.answers)
        self._pump()

    def _asked(self) -> list[_Asked]:
        """All questions without an answer; one of several chunks may be there more than once."""
        under_way = [chunk.asked for group in self._under_way for part in group for chunk in part]
        return [*under_way, *self._to_sign, *self._to_check]

    def _fail_waiting(self) -> None:
        for asked in self._asked():
            if not asked.answer.done():
                asked.answer.set_exception(SignerError("the signing process went down before it answered"))
        self._under_way.clear()
        self._to_sign.clear()
        self._to_check.clear()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # ---- life

    async def _spawn_patiently(self) -> asyncio.StreamReader:
        """`_spawn`, again with back-off while processes are lost. Raises `SignerError`."""
        delay = _RESTART_FIRST
        for attempt in range(1, START_ATTEMPTS):
            try:
                return await self._spawn()
            except SignerLost as error:
                log.warning("signing process lost at its start", extra={"reason": str(error), "attempt": attempt})
            await asyncio.sleep(delay)
            delay = min(delay * 2, _RESTART_MOST)
        try:
            return await self._spawn()
        except SignerLost as error:
            raise SignerError(
                f"{error}, {START_ATTEMPTS} times: see what it wrote, whether the machine has memory left (dmesg) and "
                "what limits there are (ulimit -a), then start the relayer again"
            ) from error

    async def _spawn(self) -> asyncio.StreamReader:
        """A new process with its keys loaded. Raises `SignerError`."""
        try:
            ours = await self._launch()
            reader, writer = await asyncio.open_unix_connection(sock=ours, limit=MAX_FRAME)
        except OSError as error:  # no file descriptor or memory left, maybe only for a moment
            await self._end()
            raise SignerLost(f"no signing process can be started: {error}") from error
        try:
            writer.write(frame(self._start))
            report = await asyncio.wait_for(_receive(reader), START_SECONDS)
        except TimeoutError as error:
            writer.close()
            await self._end()
            raise SignerLost(f"the signing process was not ready within {START_SECONDS:.0f} s") from error
        except (OSError, asyncio.IncompleteReadError) as error:
            writer.close()
            raise SignerLost(f"the signing process ended before it was ready, {await self._fate()}") from error
        if not isinstance(report, Ready):
            writer.close()
            await self._end()
            raise SignerError(report.reason if isinstance(report, Failed) else "unexpected answer")
        if self.relayers and report.relayers != self.relayers:
            log.warning("the signing process came back with other keys")
        if not report.locked:
            log.warning("keys may be swapped to disk: the signing process may not lock its memory (ulimit -l)")
        self.relayers = report.relayers
        self._writer = writer
        return reader

    async def _launch(self) -> socket.socket:
        """Start the process; our end of its socket pair. Raises `OSError`."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "millrace.relayer.signer",
                    str(theirs.fileno()),
                    pass_fds=(theirs.fileno(),),
                    stdin=asyncio.subprocess.DEVNULL,
                    env=environment.for_child(),
                )
            except OSError:
                ours.close()
                raise
        return ours

    async def _supervise(self, reader: asyncio.StreamReader) -> None:
        delay = _RESTART_FIRST
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while True:
                    report = await _receive(reader)
                    if isinstance(report, Done):
                        self._take_done(report)
                    delay = _RESTART_FIRST
            await self._end()
            self._fail_waiting()
            self.restarts += 1
            log.error("signing process lost, starting another")
            while True:
                await asyncio.sleep(delay)
                delay = min(delay * 2, _RESTART_MOST)
                try:
                    reader = await self._spawn()
                    break
                except SignerError as error:
                    log.error("signing process does not start", extra={"reason": str(error)})
            self.on_return()

    async def _fate(self) -> str:
        """How the process ended, which has closed its end; one that has not is killed."""
        process = self._process
        if process is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 1.0)
        await self._end()
        code = None if process is None else process.returncode
        if code is None or code >= 0:
            return f"with status {code}"
        return f"killed by {signal.Signals(-code).name}"

    async def _end(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await process.wait()


def where_keys_are(settings: RelayerSettings, journal: Path) -> Start:
    """What a signing process of this service starts with.

    Keys in the environment are taken out of it: no child inherits them, and each new signing process gets them
    through its socket.
    """
    seeds = {name: seed for name in settings.key_env if (seed := environment.take_secret(name)) is not None}
    return Start(
        settings.key_files,
        settings.key_env,
        seeds,
        settings.key_passphrase_file,
        str(journal),
        settings.policy_file,
        settings.profile,
        settings.network().chain_id,
    )


async def _receive(reader: asyncio.StreamReader) -> Report:
    (size,) = HEADER.unpack(await reader.readexactly(HEADER.size))
    if size > MAX_FRAME:
        raise OSError("the signing process sent an impossible frame")
    return report_decoder.decode(await reader.readexactly(size))
