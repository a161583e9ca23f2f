"""Each verb in a terminal of 80 columns: help and example as a newcomer uses them, recorded under build/terminal."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import shutil
import signal
import struct
import sys
import tempfile
import termios
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from aiohttp import web
from rich.cells import cell_len
from tests.cli.test_trade import QUOTE, Services, _env, _told, services

from millrace.cli import main
from millrace_client import Wallet

__all__ = ["services"]  # the fixture
COLUMNS = 80
RECORDINGS = Path(__file__).parents[2] / "build" / "terminal"
ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[=>()][0-9A-B]?)")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
KEY = {"shard": 0, "address": "erd1" + "q" * 58, "state": "short of funds", "left": "1", "spendable": None}
POOLS = ("Minute", "Hour", "Day")
BUDGET = {f"{part}{pool}": "1" + "0" * 20 for pool in POOLS for part in ("spent", "per")}
BUDGET |= {
    f"{part}{pool}": "5" + "0" * 18 for pool in ("AtRisk", "AtRiskSignOnly", "LostHour") for part in ("most", "")
}
BUDGET |= {name[0].lower() + name[1:]: value for name, value in BUDGET.items()}
LEDGER = {
    "keys": [KEY | BUDGET],
    "people": [{"name": "an exchange with a long name"} | BUDGET],
    "programmes": [
        {"name": "first mints", "until": "2027-01-31T00:00:00+00:00", "isOver": True, "budget": "4" + "0" * 19}
        | {"spent": "3" + "0" * 19, "left": "1" + "0" * 19, "users": 12345, "perUser": 3}
    ],
    "users": [
        {"address": KEY["address"], "atRisk": "1" + "0" * 14, "transactions": 12, "oldestSeconds": 3600}
        | {"spentHour": "1" + "0" * 17, "perHour": "1" + "0" * 18}
    ],
    "usersKnown": 100000,
}
GROUPS: dict[str, Any] = {name: {} for name in ("network", "blocks", "mempool", "validators", "health")}
POINT = {"shard": 0, "gasPrice": {"percentiles": {"p50": 10**9, "p75": 2 * 10**9, "p90": 3 * 10**9}}}


class Case(NamedTuple):
    """A command line, how it ends, and what it says."""

    line: str
    code: int = 0
    said: str = ""
    typed: str = ""
    """What somebody types as soon as it asks."""
    state: str = "success"


CASES = (
    Case("quote A-1 B-2 1.5", said="1.5 A-1 → 30 B-2"),
    Case("quote A-1 C-3 1", 1, "unknown tokenOut"),
    Case("swap A-1 B-2 1.5 --key w.pem", said="swapped for at least 2970"),
    Case("swap A-1 B-2 1.5 --key w.pem", 1, "nothing was swapped", state="fail"),
    Case("swap A-1 B-2 1.5 --key w.pem --timeout 1", 4, "last known as pending", state="pending"),
    Case("swap A-1 B-2 1500 --units --key w.pem --send", 0, "Sign it, for 2970 smallest units", "y\n", "elsewhere"),
    Case("swap A-1 B-2 1500 --units --key w.pem --send", 1, "nothing was signed", "n\n", "elsewhere"),
    Case("swap A-1 B-2 1.5 --key w.pem --send", 1, "only the aggregator says", state="elsewhere"),
    Case(f"watch tx {32 * 'aa'}", said="success"),
    Case(f"watch tx {32 * 'bb'}", 1, "ended as fail", state="fail"),
    Case(f"watch tx {32 * 'dd'} --timeout 0", 1, "nobody knows dd", state=""),
    Case("watch tx zz", 2, "no hash of a transaction"),
    Case("watch address erd1xx", 2, "not an address"),
    Case("quote A-1 B-2 NaN", 2, "no amount"),
    Case("watch gas", said="1,000,000,000"),
    Case("watch network", said="tps"),
    Case(f"watch address {Wallet(bytes(range(32))).address}", said="waiting for"),
    Case("tokens alp", said="Alpha"),
    Case("pools list", said="A-1 / B-2"),
    Case("keys new new.pem --form pem", said="erd1"),
    Case("keys show w.pem", said="public key"),
    Case("keys check w.pem", said="whole, signs, and is yours alone"),
    Case("keys check none.pem", 1, "cannot be read"),
    Case("config relayer --changed", said="[relayer]"),
    Case("config", said="[localnet]"),
    Case("config nothing", 2, "nothing is no service"),
    Case("doctor --notifier http://127.0.0.1:9", 1, "→ start it"),
    Case("doctor --here", 1, "relayer init"),
    Case("ledger", said="an exchange"),
    Case("ledger users --operators http://127.0.0.1:9", 3, "cannot be reached"),
    Case("policy new-key", said="Authorization: Bearer"),
    Case("policy explain tx.json", 1, "NO"),
    Case("policy apply policy.toml", 1, "no policy_file is set"),
    Case("policy at-risk", 1, "start the relayer with this data_dir once"),
    Case("policy write-off", 2, "name one client hash"),
    Case("completion bash", said="_millrace_completion"),
    *(Case(f"{name} --show-settings", said="port = ") for name in ("aggregator", "notifier", "localnet", "console")),
    Case("relayer --show-settings", said="chain_api_url"),
    Case("pools --show-settings", said="gateway"),
    Case("console --show-settings", said="allowed_hosts"),
    Case("relayer init --set data_dir=d", said="d is made. Keep it"),
    Case("relayer backup b", 1, "Error"),
    Case("relayer restore .", 1, "Error"),
    Case("relayer move m", 1, "Error"),
    Case("relayer recover", 1, "Error"),
    Case("relayer export-claims c", 1, "Error"),
    Case("relayer export-open o", 1, "Error"),
    Case("relayer import-claims tx.json", 1, "Error"),
    Case("relayer archive a --before 2026-01-01", 1, "Error"),
    Case("relayer verify-archive tx.json", 1, "Error"),
    Case("watch events --after -1", 2, "not in the range"),
    Case("qoute", 2, "Did you mean 'quote'?"),
)
UNENDING = ("demo", "up")  # the whole system: tests of their own run it


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every verb that does something."""
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, (*path, name))


def test_every_verb_is_used() -> None:
    """No verb is left out below."""
    used = {case.line for case in CASES}
    missing = [verb for verb in leaves(main) if not any(line.startswith(verb) for line in used)]
    assert missing == list(UNENDING)


class Screen(NamedTuple):
    """What came on a terminal, and how the command ended."""

    code: int
    raw: str

    @property
    def lines(self) -> list[str]:
        """Without colours and movements; what a carriage return writes over is a line of its own."""
        return [line.rstrip() for line in re.split(r"[\r\n]+", ESCAPE.sub("", self.raw))]


async def on_a_terminal(
    line: str, folder: Path, env: dict[str, str], typed: str = "", until: str = "", columns: int = COLUMNS
) -> Screen:
    """Run a command on a terminal of its own; one that has no end by itself gets Ctrl-C once `until` is seen."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    script = "from millrace.cli import main; main(prog_name='millrace')"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script, *line.split()), stdin=slave, stdout=slave, stderr=slave, cwd=folder,
        env={"TERM": "xterm-256color", "HOME": str(folder), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"} | env,
        start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    out, interrupted = bytearray(), False
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(60):
            with contextlib.suppress(OSError):  # the terminal is gone with its last user
                while chunk := await loop.run_in_executor(None, os.read, master, 65_536):
                    out += chunk
                    if typed and b"[y/N]" in out:
                        os.write(master, typed.encode())
                        typed = ""
                    if until and until in ESCAPE.sub("", out.decode(errors="ignore")) and not interrupted:
                        interrupted = True
                        process.send_signal(signal.SIGINT)
            code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(master)
    return Screen(code, out.decode())


class Desk(Services):
    """The same services with a ledger, and every address a newcomer may ask."""

    async def ask(self, request: web.Request) -> web.Response:
        if request.path == "/ledger":
            return web.json_response(LEDGER)
        return await super().ask(request)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[tuple[Desk, Path, dict[str, str]]]:
    """Services, a folder of somebody's own, and where the services are."""
    from aiohttp.test_utils import TestServer

    fake = Desk()
    await fake.start()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", fake.ask)
    folder = Path(tempfile.mkdtemp(prefix="m"))  # a short name, as it is shown
    wallet = folder / "w.pem"
    wallet.touch(mode=0o600)
    wallet.write_text(Wallet(bytes(range(32))).to_pem())
    (folder / "tx.json").write_text("{}")
    (folder / "policy.toml").write_text("")
    async with TestServer(app) as server:
        fake.aggregator = str(server.make_url("")).rstrip("/")
        env = _env(fake) | {"MILLRACE_RELAYER_OPERATORS_URL": fake.aggregator}
        yield fake, folder, env
    await fake.stop()
    shutil.rmtree(folder)


def record(name: str, number: int, screens: list[tuple[str, Screen]]) -> None:
    """Keep what was seen."""
    RECORDINGS.mkdir(parents=True, exist_ok=True)
    file = RECORDINGS / f"{number:02d}-{re.sub('[^a-z0-9-]+', '-', name.lower())[:40].strip('-')}.txt"
    parts = [
        f"$ millrace {line}\n" + "\n".join(screen.lines).strip() + f"\n[exit {screen.code}]" for line, screen in screens
    ]
    file.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.line.replace(" ", "-")[:40] for case in CASES])
async def test_a_verb_from_its_help(desk: tuple[Desk, Path, dict[str, str]], number: int) -> None:
    """Help and example fit 80 columns, the exit code is the documented one, and the words are there."""
    fake, folder, env = desk
    case = CASES[number]
    _prepare(fake, case)
    words = case.line.split()
    verb = next((name for name in (" ".join(words[:2]), words[0]) if name in set(leaves(main))), "")
    help_line = f"{verb} --help".strip()
    live = not case.code and case.line.startswith(("watch gas", "watch network", "watch address"))
    pushing = asyncio.create_task(_push(fake)) if live else None
    try:
        helped = await on_a_terminal(help_line, folder, env)
        used = await on_a_terminal(case.line, folder, env, case.typed, case.said if live else "")
    finally:
        if pushing is not None:
            pushing.cancel()
    record(case.line, number, [(help_line, helped), (case.line, used)])
    assert (helped.code, used.code) == (0, case.code), used.lines
    assert case.said in " ".join(used.lines), used.lines
    if words[0] == "completion":
        return  # a script for a shell
    wide = [line for screen in (helped, used) for line in screen.lines if cell_len(line) > COLUMNS]
    assert wide == []


def _prepare(fake: Desk, case: Case) -> None:
    elsewhere = case.state == "elsewhere"
    if case.state:
        _told(fake, "success" if elsewhere else case.state)
    fake.chain_of_transactions = "1" if elsewhere else "local"


async def _push(fake: Desk) -> None:
    """Statistics and an account, again and again until the test has seen them."""
    stats: dict[str, Any] = {"type": "networkStats", "schemaVersion": "1.1.0", "sequence": 0, "ts": 1, "data": GROUPS}
    while True:
        await fake.push({"type": "gasStats", "data": POINT})
        stats["sequence"] += 1
        for socket in list(fake.stats):
            with contextlib.suppress(ConnectionError):
                await socket.send_json(stats)
        await asyncio.sleep(0.05)


async def test_colours_only_where_they_are_wanted(desk: tuple[Desk, Path, dict[str, str]]) -> None:
    """A terminal has colours, one with NO_COLOR and a pipe have none; a pipe's lines are not wrapped."""
    _, folder, env = desk
    coloured = await on_a_terminal("quote A-1 B-2 1.5", folder, env)
    plain = await on_a_terminal("quote A-1 B-2 1.5", folder, env | {"NO_COLOR": "1"})
    assert coloured.code == plain.code == 0
    assert COLOUR.search(coloured.raw) is not None
    assert not re.search(r"\x1b\[(?:3[0-7]|9[0-7]|38;)", plain.raw)
    assert QUOTE["from"] in plain.raw
