"""Where the verbs are used: narrow terminals, locales without our letters, pipes whose reader leaves, own ports."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cli.test_terminal import Case as Used
from tests.cli.test_terminal import Desk, _prepare, _push, desk, on_a_terminal

from millrace.cli import main
from millrace.cli.system import _ports
from millrace.system.plan import Ports
from servers.fake_relayer import status_of

__all__ = ["desk"]  # the fixture
NARROW = 40
SCRIPT = "from millrace.cli import main; main(prog_name='millrace')"
At = tuple[Desk, Path, dict[str, str]]


@pytest.mark.parametrize(
    ("line", "whole"),
    [
        ("quote A-1 B-2 1.5", ["1.5 A-1 → 30 B-2", "20,000,000"]),
        ("tokens alp", ["A-1", "Alpha", "200"]),
        ("watch gas", ["1,000,000,000", "3,000,000,000"]),
        ("watch network", ["validators"]),
        ("ledger", ["100 %", "TRANSACTIONS", "12345", "an exchange with a long name"]),
        ("keys show w.pem", ["shard"]),
    ],
)
async def test_a_narrow_terminal(desk: At, line: str, whole: list[str]) -> None:
    """In 40 columns every number is there with all its digits; only addresses and keys are longer than a line."""
    fake, folder, env = desk
    _prepare(fake, Used(line))
    live = line.startswith("watch")
    pushing = asyncio.create_task(_push(fake)) if live else None
    try:
        seen = await on_a_terminal(line, folder, env, until=whole[-1] if live else "", columns=NARROW)
    finally:
        if pushing is not None:
            pushing.cancel()
    assert seen.code == 0, seen.lines
    text = re.sub(r"\s+", " ", " ".join(seen.lines))
    assert [part for part in whole if part not in text] == [], seen.lines
    assert [row for row in seen.lines if len(row) > NARROW and not re.search(r"erd1\w{58}|[0-9a-f]{64}", row)] == []


async def piped(at: At, line: str, *, leaves_after: bytes = b"", **more: str) -> tuple[int, bytes, str]:
    """Exit code, output and errors of a command in a pipe, whose reader leaves as soon as it has read something."""
    fake, folder, env = at
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SCRIPT, *line.split()), cwd=folder, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={"HOME": str(folder), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"} | env | more,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    out = b""
    async with asyncio.timeout(60):
        while chunk := await process.stdout.read(4096):
            out += chunk
            if leaves_after and leaves_after in out:
                process.stdout._transport.close()  # type: ignore[attr-defined]  # there is no public way to leave
                (asked,) = (topic for topic in fake.topics() if topic.startswith("tx-status/"))
                await fake.push(status_of(asked.removeprefix("tx-status/")))
                break
        errors = await process.stderr.read()
        return await process.wait(), out, errors.decode()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
@pytest.mark.parametrize(
    "line",
    ["quote A-1 B-2 1.5", "doctor --notifier http://127.0.0.1:9", "config relayer", "swap A-1 B-2 1.5 --key w.pem"],
)
async def test_a_locale_without_our_letters(desk: At, line: str, encoding: str) -> None:
    """What it has no letter for is written in others; the verb ends as it does elsewhere."""
    fake, _, _ = desk
    _prepare(fake, Used(line))
    usual, text, _ = await piped(desk, line)
    code, out, errors = await piped(desk, line, PYTHONIOENCODING=encoding)
    assert code == usual, errors
    assert "Traceback" not in errors
    plain = out.decode("utf-8" if encoding == "ascii" else encoding)  # click takes ascii for a forgotten setting
    assert len(plain.splitlines()) == len(text.decode().splitlines())
    if line.startswith("quote"):
        assert "1.5 A-1 -> 30 B-2" in plain


async def test_a_reader_who_leaves_after_a_swap_was_sent(desk: At) -> None:
    """`| head`: what was sent is not called refused; the exit code is 4 and the hash goes to standard error."""
    fake, _, _ = desk
    _prepare(fake, Used("swap", state="pending"))
    code, _, errors = await piped(desk, "swap A-1 B-2 1.5 --key w.pem", leaves_after=b"accepted as")
    (asked,) = (topic for topic in fake.topics() if topic.startswith("tx-status/"))
    assert code == 4, errors
    assert asked.removeprefix("tx-status/") in errors
    assert "Traceback" not in errors and "BrokenPipe" not in errors


@pytest.mark.parametrize("line", ["tokens", "config", "watch gas", "quote A-1 B-2 1.5", "ledger", "--help"])
async def test_a_reader_who_is_gone_at_once(desk: At, line: str) -> None:
    """Nobody reads: the verb ends, without a word of its inner parts."""
    fake, folder, env = desk
    reads, writes = os.pipe()
    os.close(reads)
    pushing = asyncio.create_task(_push(fake))
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", SCRIPT, *line.split()), cwd=folder, stdout=writes, stderr=asyncio.subprocess.PIPE,
            env={"HOME": str(folder), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"} | env,
        )  # fmt: skip
        async with asyncio.timeout(60):
            _, errors = await process.communicate()
    finally:
        pushing.cancel()
        os.close(writes)
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await pushing
    assert process.returncode == 1
    assert b"Traceback" not in errors and b"BrokenPipe" not in errors and b"Exception" not in errors


def test_ports_of_ones_own() -> None:
    """`up --port` moves one listener, by either spelling of its name; `--free-ports` moves those it does not name."""
    ports = _ports(("console=9080", "relayer-http=9201"), are_free=False)
    assert (ports.console, ports.relayer_http, ports.aggregator) == (9080, 9201, Ports().aggregator)
    free = _ports(("console=9080",), are_free=True)
    assert free.console == 9080 and free.aggregator != Ports().aggregator


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nothing=1", "the names are aggregator"),
        ("console=0", "a port is a number from 1 to 65535"),
        ("console", "a port is a number"),
        ("console=8100", "two listeners cannot share port 8100"),
    ],
)
def test_ports_that_are_none(given: str, said: str) -> None:
    """Wrong use is told before anything starts, and ends with 2."""
    told: Any = CliRunner().invoke(main, ["up", "--port", given])
    assert told.exit_code == 2
    assert said in told.output
