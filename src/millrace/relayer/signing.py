"""The service's side of the signing process: start it, ask it, replace it when it dies or hangs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys

from millrace.relayer.signer_wire import (
    HEADER,
    MAX_FRAME,
    Answer,
    Failed,
    Ready,
    Report,
    Sign,
    Signatures,
    Start,
    frame,
    report_decoder,
)

log = logging.getLogger(__name__)

_RESTART_FIRST, _RESTART_MOST = 0.1, 5.0
START_SECONDS = 15.0


class SignerError(Exception):
    """The signing process cannot be started or does not answer."""


class SigningProcess:
    """One child that holds the keys. `start` it, then `sign`; it is replaced with back-off when lost."""

    def __init__(self, start: Start, timeout: float) -> None:
        self._start = start
        self._timeout = timeout
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: dict[int, asyncio.Future[list[Answer]]] = {}
        self._request = 0
        self._supervisor: asyncio.Task[None] | None = None
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
        """Start the process and wait for its keys. Raises `SignerError` with what is wrong with them."""
        reader = await self._spawn()
        self._supervisor = asyncio.create_task(self._supervise(reader), name="signer-supervisor")

    async def stop(self) -> None:
        """Let it answer what it was asked, then end the process."""
        with contextlib.suppress(SignerError, asyncio.CancelledError):
            await asyncio.gather(*self._waiting.values(), return_exceptions=True)
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        await self._end()

    async def sign(self, transactions: list[bytes]) -> list[Answer]:
        """For each transaction its signature, or the process's reason to refuse.

        Raises `SignerError` when no answer came: then it is not known whether anything was signed.
        """
        if not self.running or self._writer is None:
            raise SignerError("the signing process is down; it is being started again")
        self._request += 1
        request = self._request
        answer = self._waiting[request] = asyncio.get_running_loop().create_future()
        try:
            self._writer.write(frame(Sign(request, transactions)))
            return await asyncio.wait_for(answer, self._timeout)
        except TimeoutError:
            log.error("signing process hangs, killing it", extra={"pid": self.pid})
            self._kill()
            raise SignerError("the signing process did not answer in time") from None
        finally:
            self._waiting.pop(request, None)

    async def _spawn(self) -> asyncio.StreamReader:
        """A new process with its keys loaded. Raises `SignerError`."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "millrace.relayer.signer",
                str(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                env=_environment(self._start.key_env),
            )
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=MAX_FRAME)
        try:
            writer.write(frame(self._start))
            report = await asyncio.wait_for(_receive(reader), START_SECONDS)
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            writer.close()
            await self._end()
            raise SignerError("the signing process ended before it was ready") from error
        if not isinstance(report, Ready):
            writer.close()
            await self._end()
            raise SignerError(report.reason if isinstance(report, Failed) else "unexpected answer")
        if self.relayers and report.relayers != self.relayers:
            log.warning("the signing process came back with other keys")
        self.relayers = report.relayers
        self._writer = writer
        return reader

    async def _supervise(self, reader: asyncio.StreamReader) -> None:
        delay = _RESTART_FIRST
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while True:
                    self._take(await _receive(reader))
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

    def _take(self, report: Report) -> None:
        if isinstance(report, Signatures):
            answer = self._waiting.get(report.request)
            if answer is not None and not answer.done():
                answer.set_result(report.items)

    def _fail_waiting(self) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(SignerError("the signing process went down before it answered"))

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

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


async def _receive(reader: asyncio.StreamReader) -> Report:
    (size,) = HEADER.unpack(await reader.readexactly(HEADER.size))
    if size > MAX_FRAME:
        raise OSError("the signing process sent an impossible frame")
    return report_decoder.decode(await reader.readexactly(size))


def _environment(secrets: tuple[str, ...]) -> dict[str, str]:
    """What the child needs to run, and the variables that hold keys."""
    wanted = {"PATH", "HOME", "LANG", "PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE", *secrets}
    return {name: value for name, value in os.environ.items() if name in wanted}
