"""Completion of what services know: from a bounded file or an aggregator that answers soon, and never an error."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from millrace.cli import complete

TOKENS = [{"identifier": "USDC-c76f1f", "name": "WrappedUSDC"}, {"identifier": "UTK-2f80e9", "name": "Utrust"}]


class Market:
    """An aggregator that counts how often it is asked."""

    def __init__(self) -> None:
        self.url, self.asked = "", 0
        self.tokens: Any = TOKENS

    async def answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        if request.path == "/api/v1/config":
            return web.json_response({"exchanges": ["xExchange", "OneDex", "AshSwap", "JEX"]})
        return web.json_response({"tokens": self.tokens})


@pytest.fixture
async def market(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Market]:
    """It runs, and this test has a cache folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = Market()
    app = web.Application()
    app.router.add_get("/{tail:.*}", made.answer)
    async with TestServer(app) as server:
        made.url = str(server.make_url("")).rstrip("/")
        yield made


async def offered(words: str, url: str) -> list[str]:
    """What bash is offered for the last word, by the command itself."""
    env = os.environ | {"_MILLRACE_COMPLETE": "bash_complete", "COMP_WORDS": f"millrace {words}"}
    env |= {"COMP_CWORD": str(len(words.split(" "))), "MILLRACE_AGGREGATOR_URL": url}
    run = "from millrace.cli import main; main(prog_name='millrace')"
    ran = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", run), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=env
    )
    async with asyncio.timeout(20):
        output, errors = await ran.communicate()
    assert errors == b""
    return [line.split(",", 1)[1] for line in output.decode().splitlines() if line]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("quote U", ["USDC-c76f1f", "UTK-2f80e9"]),
        ("quote USDC-c76f1f ut", ["UTK-2f80e9"]),
        ("swap eg", ["EGLD"]),
        ("tokens usd", ["USDC-c76f1f"]),
        ("pools list --token UTK", ["UTK-2f80e9"]),
        ("pools list --exchange JEX,x", ["JEX,xExchange"]),
        ("watch events --identifier ESDTL", ["ESDTLocalMint", "ESDTLocalBurn"]),
        ("watch ga", ["gas"]),
        ("quote NONE", []),
    ],
)
async def test_what_a_shell_offers(market: Market, words: str, found: list[str]) -> None:
    """Tokens, exchanges and identifiers that begin so, whatever the case."""
    assert await offered(words, market.url) == found


async def test_the_file_is_asked_first(market: Market) -> None:
    """A second question asks nobody; with the aggregator gone what is known is offered on, also when it is old."""
    assert await offered("quote UT", market.url) == ["UTK-2f80e9"]
    asked = market.asked
    assert await offered("quote US", market.url) == ["USDC-c76f1f"]
    assert market.asked == asked
    file = complete._file()
    kept = json.loads(file.read_text())
    gone = "http://127.0.0.1:9"
    file.write_text(json.dumps({gone: kept[market.url] | {"at": 0}}))
    assert await offered("quote UT", gone) == ["UTK-2f80e9"]


async def test_nothing_and_no_error_where_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused connection, one that is never answered, an address that is none: nothing is offered or said."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not" / "there"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for url in ("http://127.0.0.1:9", f"http://127.0.0.1:{silent.getsockname()[1]}", "file:///etc/passwd", "x"):
            assert await offered("quote U", url) == []


async def test_the_wait_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks is given up on after a moment, however long the answer takes: the asking thread is left behind."""
    import threading

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    never, limits = threading.Event(), []
    monkeypatch.setattr(complete, "_ask", lambda _: never.wait())
    join = threading.Thread.join
    monkeypatch.setattr(threading.Thread, "join", lambda self, limit=None: (limits.append(limit), join(self, 0.01))[1])
    try:
        assert complete._asked_soon("http://nowhere", {}) is None
        assert limits == [complete._SECONDS]
    finally:
        never.set()


@pytest.mark.parametrize(
    "body", ["", "{", "[]", "7", '{"http://a": 3}', '{"http://a": {"at": "x"}}', "[" * 100_000, "\x00"]
)
def test_a_file_that_is_none_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Damaged, foreign or half-written: it counts as empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    complete._file().parent.mkdir(parents=True)
    complete._file().write_text(body)
    assert complete._read() == {}


async def test_what_is_kept_is_bounded_and_clean(market: Market) -> None:
    """A service chooses neither what a prompt runs nor how much is kept; four aggregators at most are remembered."""
    market.tokens = [
        {"identifier": name, "name": "\x1b[2J"} for name in ("$(rm)", "a b", "A-1\n", "é-1", "OK-1", 5, "")
    ]
    market.tokens += [{"identifier": f"T{number}-1", "name": "x" * 99} for number in range(5_000)]
    told = await asyncio.to_thread(complete._ask, market.url)
    assert len(told["tokens"]) == 1_000 and told["tokens"][:3] == [
        ("EGLD", "the chains own"),
        ("OK-1", "2J"),
        ("T0-1", "x" * 64),
    ]
    for number in range(9):
        complete._write({f"http://{number}": told | {"at": time.time()}, **complete._read()})
    assert list(complete._read()) == ["http://8", "http://7", "http://6", "http://5"]
    assert complete._file().stat().st_size < complete._MAX_FILE
