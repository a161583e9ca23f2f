"""A process ends when it is told to, and when its parent ends."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import weakref

import pytest

from millrace.runtime.process import loading, return_free_memory, wait_first

SERVICE = """
import asyncio, sys
from millrace.runtime.process import die_with_parent, run_service
async def main(stop):
    print("up", flush=True)
    await stop.wait()
    print("down", flush=True)
die_with_parent(int(sys.argv[1]))
run_service(main)
"""

PARENT = f"""
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {SERVICE!r}, str(os.getpid())], stdout=sys.stdout)
print(child.pid, flush=True)
child.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_stop_the_service_cleanly(number: signal.Signals) -> None:
    """SIGTERM and SIGINT let the service finish its own shutdown and exit with 0."""
    child = subprocess.Popen([sys.executable, "-c", SERVICE, str(os.getpid())], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    child.send_signal(number)
    assert child.stdout.read() == "down\n"
    assert child.wait(10) == 0
    child.stdout.close()


def test_no_orphan_after_kill_9() -> None:
    """When the parent is killed with SIGKILL, the child stops by itself."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    lines = {parent.stdout.readline().strip() for _ in range(2)}
    assert "up" in lines
    parent.kill()
    parent.wait(10)
    assert parent.stdout.read() == "down\n"
    parent.stdout.close()


async def test_one_failing_task_ends_the_service() -> None:
    """The first task that fails ends the wait with its error, and the other tasks are cancelled."""
    other = asyncio.ensure_future(asyncio.Event().wait())

    async def fails() -> None:
        raise RuntimeError("dead")

    with pytest.raises(RuntimeError, match="dead"):
        await wait_first(asyncio.Event(), fails(), other)
    assert other.cancelled()


async def test_stop_ends_all_tasks() -> None:
    """When the stop event is set, the endless tasks are cancelled and the wait returns."""
    stop = asyncio.Event()
    stop.set()
    endless = asyncio.ensure_future(asyncio.Event().wait())
    await wait_first(stop, endless)
    assert endless.cancelled()


def test_a_service_may_open_as_many_files_as_the_system_allows() -> None:
    """The limit a service starts with is raised as far as it may be: each connection takes a file."""
    code = """
import resource
from millrace.runtime.process import run_service
async def main(stop):
    print(*resource.getrlimit(resource.RLIMIT_NOFILE))
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 1000))
run_service(main)
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert answer.stdout.split() == ["1000", "1000"]


class _Ring:
    """An object that holds itself."""

    def __init__(self) -> None:
        self.self = self


def test_returning_memory_walks_nothing_and_leaves_nothing_frozen() -> None:
    """It looks for no garbage, which takes long where there are many objects; the collector finds it later as ever."""
    gc.collect()
    ring = weakref.ref(_Ring())
    return_free_memory()
    assert ring() is not None and gc.get_freeze_count() == 0
    gc.collect()
    assert ring() is None


def test_returning_memory_lets_go_of_what_python_keeps_for_its_next_use() -> None:
    """Freed tuples are kept by the interpreter, and given up here."""
    before = sys.getallocatedblocks()
    many = [(number, number, number, number) for number in range(3_000)]
    assert sys.getallocatedblocks() > before + 3_000
    many.clear()
    return_free_memory()
    kept = sys.getallocatedblocks() - before
    assert kept < 1_000


def test_loading_leaves_the_collector_as_it_was() -> None:
    """While modules are loaded nothing is collected; then the collector is as before, also when loading failed."""
    with pytest.raises(ImportError), loading():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()
    with loading(), loading():
        pass
    assert gc.isenabled()
