"""Life and death of a process: one event loop, two signals, no orphan."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import resource
import signal
from collections.abc import Awaitable, Callable, Iterator

from millrace.runtime.tasks import end_tasks

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int | None = None) -> None:
    """Ask the kernel to send this process SIGTERM when its parent ends, however it ends (Linux only).

    `parent` is the process id that started us, where the caller knows it: if that one is gone already,
    the request came too late and this process ends at once.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) refused")
    if parent is not None and os.getppid() != parent:
        raise SystemExit("the parent process ended before this one could start")


def return_free_memory() -> None:
    """Give the system back what Python and the C library (glibc) keep of freed memory.

    Python keeps freed tuples, lists and the like for their next use, wherever they lie: a few of them in each of a
    crowd's megabytes hold them all. Only a full collection lets go of them. As everything is frozen meanwhile it walks
    nothing, where it would stop a service of many objects for a tenth of a second and more; what was frozen at the
    start is walked by later full collections, which are rare.
    """
    gc.freeze()
    gc.collect()
    gc.unfreeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """While modules are imported, without the garbage collector: what they make stays, and it would be walked again
    and again (a tenth of the time that a service takes to start)."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def run_service(main: Callable[[asyncio.Event], Awaitable[None]], *, uvloop: bool = False) -> None:
    """Run `main(stop)` to its end; SIGTERM and SIGINT set `stop`, a second signal ends the process at once.

    The garbage collector is frozen after imports, so that a full collection never walks the modules. As many files may
    be open as the system allows at most: each connection is one.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # a system may promise more than it gives
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    loop_factory = None
    if uvloop:
        import uvloop as fast_loop

        loop_factory = fast_loop.new_event_loop

    async def guarded() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_signal() -> None:
            if stop.is_set():
                os._exit(130)
            log.info("stopping")
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal)
        gc.freeze()
        await main(stop)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(guarded())


async def wait_first(stop: asyncio.Event, *work: Awaitable[object]) -> None:
    """Wait until `stop` is set or one of `work` ends; the rest is cancelled, an error is raised.

    For services made of several endless tasks: if one of them dies, the service must die with it
    rather than limp on.
    """
    tasks = [asyncio.ensure_future(item) for item in work]
    stopper = asyncio.ensure_future(stop.wait())
    try:
        done, _ = await asyncio.wait([stopper, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await end_tasks([stopper, *tasks])
