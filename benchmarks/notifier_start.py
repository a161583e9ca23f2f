"""How soon a notifier that was killed acknowledges its node's next block, from the start of its process.

Bar: 300 ms in the median, with the byte code of all modules present, as an installed package has it. The journal holds
what earlier rounds told; blocks are made beforehand, so what passes is the notifier's time alone. Its CPU time, of all
threads, depends less on what else the machine does.
Usage: `python benchmarks/notifier_start.py [--quick]`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from _node_blocks import blocks
from _report import Report
from millrace.runtime import websocket
from notifier import Node, Service

_BETWEEN = 20  # blocks told before each kill


async def start(directory: Path, payloads: list[bytes]) -> tuple[float, float, float]:
    """Milliseconds to the port and to the first acknowledgement, and of CPU; then tell the other blocks and kill."""
    began = time.perf_counter()
    service = Service(directory)
    try:
        while True:
            node = Node()
            try:
                await websocket.connect(f"ws://127.0.0.1:{service.port}/save", node)
                break
            except websocket.CONNECT_ERRORS:
                await asyncio.sleep(0.005)
        connected = time.perf_counter()
        await node.tell(payloads[0])
        answered, cpu = time.perf_counter(), cpu_of(service.process.pid)
        for payload in payloads[1:]:
            await node.tell(payload)
        node.close()
    finally:
        service.process.kill()
        service.process.wait()
    return (connected - began) * 1000, (answered - began) * 1000, cpu * 1000


def cpu_of(process: int) -> float:
    """Seconds that the threads of a process have run."""
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{process}/task").glob("*/schedstat")) / 1e9


async def main(quick: bool) -> int:
    report = Report("notifier_start")
    rounds = 5 if quick else 15
    payloads = list(blocks((rounds + 1) * (_BETWEEN + 1), 1))
    with tempfile.TemporaryDirectory() as code, tempfile.TemporaryDirectory() as data:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = code
        told = [payloads[first : first + _BETWEEN + 1] for first in range(0, len(payloads), _BETWEEN + 1)]
        await start(Path(data), told[0])  # writes the byte code, and is not counted
        times = [await start(Path(data), some) for some in told[1:]]
    report.add("start to a node's connection, median", statistics.median(first for first, _, _ in times), "ms")
    answers = [answered for _, answered, _ in times]
    report.add("start to the first acknowledgement, median", statistics.median(answers), "ms", ("<=", 300.0))
    report.add("start to the first acknowledgement, longest", max(answers), "ms")
    report.add("CPU until then, median", statistics.median(cpu for _, _, cpu in times), "ms")
    return report.finish()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a third of the work")
    sys.exit(asyncio.run(main(parser.parse_args().quick)))
