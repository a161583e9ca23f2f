"""One life of the peer process, seen from asyncio: its start, its socket, its log lines, its end."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from millrace.gossip.wire import Command, Report, Unframer, frame
from millrace.runtime import environment, extras

log = logging.getLogger(__name__)

_Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_READ_PIECE = 64 * 1024
_LINE_BYTES = 64 * 1024
_END_SECONDS = 1.4
GO_PROGRAM = Path(__file__).parents[3] / "engines" / "gossip-go" / "bin" / "millrace-gossip"
"""Where `engines/gossip-go/build.sh` puts it, in a checkout."""


class GossipError(Exception):
    """The peer process cannot do what was asked; the text says why."""


class Child:
    """A peer process that has connected to its socket. Make one with `spawn`, finish it with `end`."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
        logs: LogLines,
    ) -> None:  # fmt: skip
        self._process = process
        self._reader = reader
        self._writer = writer
        self._logs = logs

    @classmethod
    async def spawn(cls, log_level: str, timeout: float, engine: str = "python") -> Child:
        """Start a process and wait until it connects. Raises `GossipError`, leaving nothing behind."""
        try:
            return await cls._spawn(log_level, timeout, command_of(engine))
        except OSError as error:  # no room for the socket, no process to be had
            raise GossipError(f"cannot start the gossip process: {error}") from error

    @classmethod
    async def _spawn(cls, log_level: str, timeout: float, command: tuple[str, ...]) -> Child:
        directory = Path(tempfile.mkdtemp(prefix="millrace-gossip-"))  # mode 0700
        accepted: asyncio.Queue[_Pair] = asyncio.Queue()
        try:
            path = directory / "peer.sock"
            server = await asyncio.start_unix_server(lambda *pair: accepted.put_nowait(pair), path, start_serving=False)
            try:  # not `async with`: from Python 3.12 on that waits for the connection to end
                await server.start_serving()
                process = await _execute(command, path, log_level)
                logs = LogLines(process)
                try:
                    reader, writer = await _first(accepted, process, timeout)
                except BaseException as error:
                    await _terminate(process)
                    await logs.close()
                    if isinstance(error, GossipError):
                        raise GossipError(f"{error}: {logs.last or 'it wrote nothing'}") from None
                    raise
            finally:
                server.close()
            return cls(process, reader, writer, logs)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def last_words(self) -> str:
        """How it ended and what it logged last."""
        said = self._logs.last or "it wrote nothing"
        return f"the gossip process ended with status {self._process.returncode}: {said}"

    def send(self, command: Command) -> None:
        """Queue a command; the caller bounds what is under way. One that has just ended gets nothing more.

        Its end, which `reports` is about to tell, answers whatever waits. uvloop refuses to write until then.
        """
        if not self._writer.is_closing():
            self._writer.write(frame(command))

    async def reports(self) -> AsyncIterator[Report]:
        """What the process reports, until it ends or breaks the format."""
        decoder = msgspec.msgpack.Decoder(Report)
        unframer = Unframer()
        try:
            while piece := await self._reader.read(_READ_PIECE):
                for body in unframer.feed(piece):
                    yield decoder.decode(body)
        except (OSError, ValueError) as error:
            log.error("gossip socket failed", extra={"reason": repr(error)})

    def kill(self) -> None:
        """End it at once, as after a hang."""
        if self._process.returncode is None:
            self._process.kill()

    async def end(self) -> None:
        """Close the socket, which asks it to leave; kill it if it has not gone within 1.4 s."""
        self._writer.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._process.wait()
        except TimeoutError:
            log.warning("killing a gossip process that did not leave", extra={"pid": self.pid})
        finally:
            await _terminate(self._process)
            await self._logs.close()


class LogLines:
    """Hands the JSON lines on the process's stderr to the logger each names; other lines are warnings."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        self.last = ""
        self._task = asyncio.create_task(self._forward(process.stderr), name="gossip-logs")

    async def close(self) -> None:
        """Take what is still in the pipe, but do not wait for a grandchild that holds it open."""
        await asyncio.wait([self._task], timeout=0.2)
        self._task.cancel()

    async def _forward(self, stderr: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await stderr.readline()
            except ValueError:  # longer than _LINE_BYTES: the reader has thrown it away
                continue
            if not line:
                return
            self._log(line.decode(errors="replace").rstrip())

    def _log(self, line: str) -> None:
        try:
            record = msgspec.json.decode(line, type=dict[str, object])
            level = logging.getLevelNamesMapping()[str(record.pop("level")).upper()]
            name, event = str(record.pop("logger")), str(record.pop("event"))
        except (msgspec.DecodeError, KeyError):
            self.last = line or self.last
            log.warning("gossip process: %s", line)
            return
        self.last = event
        context = {f"gossip_{key}" if key in _TAKEN else key: value for key, value in record.items()}
        logging.getLogger(name).log(level, "%s", event, extra=context)


# What `logging` does not let `extra` overwrite, and what the formatter of this process writes itself.
_TAKEN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "ts", "service", "error"}


def is_there(engine: str) -> bool:
    """Whether what an engine of the settings needs of Python's packages is installed; programs need none."""
    return engine != "python" or extras.is_installed("gossip")


def command_of(engine: str) -> tuple[str, ...]:
    """How to start an engine of the settings. Raises `GossipError` when it is not there."""
    if not is_there(engine):
        raise GossipError(f"the gossip engine is not installed: {extras.remedy('gossip')}")
    if engine == "python":
        return (sys.executable, "-m", "millrace.gossip")
    program = GO_PROGRAM if engine == "go" else Path(engine)
    if not os.access(program, os.X_OK) or not program.is_file():
        hint = "; build it with engines/gossip-go/build.sh" if engine == "go" else ""
        raise GossipError(f"the gossip engine {program} is no program{hint}")
    return (str(program),)


async def _execute(command: tuple[str, ...], path: Path, log_level: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command,
        "--socket", str(path), "--parent", str(os.getpid()), "--log-level", log_level,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        limit=_LINE_BYTES,
        env=environment.for_child(),
    )  # fmt: skip


async def _first(accepted: asyncio.Queue[_Pair], process: asyncio.subprocess.Process, timeout: float) -> _Pair:
    """The first connection; `GossipError` when the process ends before, or takes longer than `timeout`."""
    connection = asyncio.create_task(accepted.get())
    exit_ = asyncio.create_task(process.wait())
    try:
        await asyncio.wait([connection, exit_], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if connection.done():
            return connection.result()
        if exit_.done():
            raise GossipError(f"the gossip process ended with status {exit_.result()}")
        raise GossipError(f"the gossip process did not connect within {timeout:g} s")
    finally:
        connection.cancel()
        exit_.cancel()


async def _terminate(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()
