"""What a person and an operator wait for at the console: its weight, its first paint, what its tabs cost, its proxy.

Starts the real processes on loopback and Debian's Chromium in front of them. Goals: first paint within 300 ms without a
cache, 250 KB of compressed files, a tab with live streams at 15 % of a core at most (all of Chromium's processes), and
at most 1 ms between an answer from a service and the same one through the console.
Usage: `./run bench console [repeats]`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from _report import Report
from millrace.console.page import Page as Files
from servers.chromium import Page, opened
from servers.typescript_client import System, running

TABS = ("swap", "market", "network", "relayer", "events", "api")
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
SETTLED, WATCHED = 5.0, 10.0
"""Seconds after a tab was opened that count for its start, and that are then measured."""
REQUESTS = 2_000
PATH = "/v1/relayers"
HEAD = "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\nAccept-Encoding: gzip\r\nUser-Agent: x\r\n\r\n"


async def paints(system: System, folder: Path, repeats: int) -> dict[str, list[float]]:
    """First contentful paints of each tab, each with an empty cache, in a browser that is warm."""
    found: dict[str, list[float]] = {tab: [] for tab in TABS}
    async with opened("about:blank", folder) as page:
        await page.look(1280)
        await page.ask("Network.setCacheDisabled", cacheDisabled=True)
        for number in range(repeats + 1):
            for tab in TABS:
                await page.ask("Page.navigate", url="about:blank")
                await page.ask("Page.navigate", url=f"{system.plan.console_url}/?{number}#/{tab}")
                paint = float(await page.until(PAINT))
                if number:  # the first round warms the browser's own caches of compiled code
                    found[tab].append(paint)
    return found


async def tab_share(system: System, tab: str, folder: Path) -> float:
    """Which share of a core all of Chromium takes while a tab is looked at."""
    async with opened(f"{system.plan.console_url}/#/{tab}", folder) as page:
        await page.look(1280)
        for domain in ("Network", "Page", "Log", "Runtime"):  # nobody who looks at a page is told of its messages
            await page.ask(f"{domain}.disable")
        await asyncio.sleep(SETTLED)
        before, since = _browser_seconds(folder), time.perf_counter()
        await asyncio.sleep(WATCHED)
        share = (_browser_seconds(folder) - before) / (time.perf_counter() - since)
        await _assert_alive(page)
    return share


async def _assert_alive(page: Page) -> None:
    text = str(await page.value("document.body.textContent"))
    assert "reconnecting" not in text and "no data" not in text, text[:500]


def _browser_seconds(folder: Path) -> float:
    """CPU seconds of every process of the browser with this profile."""
    processes = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                words = (entry / "cmdline").read_bytes()
            except OSError:  # it has ended
                continue
            processes[int(entry.name)] = (
                int(fields[1]),
                (int(fields[11]) + int(fields[12])),
                str(folder).encode() in words,
            )
    ours = {pid for pid, (_, _, named) in processes.items() if named}
    while more := {pid for pid, (parent, _, _) in processes.items() if parent in ours} - ours:
        ours |= more
    return sum(processes[pid][1] for pid in ours) / os.sysconf("SC_CLK_TCK")


class _Client:
    """One connection that is kept, and nothing that takes time."""

    def __init__(self, port: int, path: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._question = HEAD.format(path=path).encode()

    def ask(self) -> float:
        """Milliseconds until the whole answer was there."""
        since = time.perf_counter()
        self._socket.sendall(self._question)
        answer = b""
        while True:
            answer += self._socket.recv(1 << 16)
            head, found, body = answer.partition(b"\r\n\r\n")
            if found:
                assert head.startswith(b"HTTP/1.1 200"), head
                (length,) = (
                    int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length:" in line
                )
                if len(body) >= length:
                    return (time.perf_counter() - since) * 1000


def proxy(system: System, pid: int) -> tuple[list[float], list[float], float]:
    """Milliseconds of answers that come directly and through the console, by turns, and CPU of the console for each."""
    direct = _Client(system.plan.ports.relayer_http, PATH)
    through = _Client(system.plan.ports.console, f"/relayer{PATH}")
    for client in (direct, through):
        for _ in range(100):
            client.ask()
    before = _seconds(pid)
    pairs = [(direct.ask(), through.ask()) for _ in range(REQUESTS)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs], (_seconds(pid) - before) / REQUESTS * 1000


def _seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(repeats: int) -> Report:
    """All of it, one after the other."""
    report = Report("console")
    report.add("compressed files", Files().compressed_size / 1024, "KB", ("<=", 250.0))
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        folder = Path(name)
        async with running(folder / "system") as system:
            direct, through, cpu = await asyncio.to_thread(proxy, system, system.processes.pid("console"))
            report.add("proxy adds, p50", statistics.median(through) - statistics.median(direct), "ms", ("<=", 1.0))
            report.add("proxy adds, p99", _p99(through) - _p99(direct), "ms")
            report.add("CPU of the console for a request", cpu, "ms")
            for tab, found in (await paints(system, folder / "paint", repeats)).items():
                report.add(f"first paint of {tab}, median", statistics.median(found), "ms", ("<=", 300.0))
            for tab in TABS:
                share = await tab_share(system, tab, folder / f"tab-{tab}")
                report.add(f"Chromium with {tab}", 100 * share, "% of a core", ("<=", 15.0))
    return report


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[-1]


if __name__ == "__main__":
    sys.exit(asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 5)).finish())
