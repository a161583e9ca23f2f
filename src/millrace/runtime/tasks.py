"""The end of tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

log = logging.getLogger(__name__)

AGAIN_SECONDS = 5.0
"""Longer than any task of ours takes to put things in order when it is cancelled."""


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have ended, however they do; their errors are not raised.

    One that goes on is cancelled again every `AGAIN_SECONDS`: a library may lose a cancellation, as `asyncio.wait_for`
    does in Python 3.11 when what it waits for is done in the same turn of the loop, or make another error of it.
    """
    ending = set(tasks)
    while ending:
        for task in ending:
            task.cancel()
        ended, ending = await asyncio.wait(ending, timeout=AGAIN_SECONDS)
        for task in ended:
            if not task.cancelled():
                task.exception()  # or asyncio would call it never retrieved
        for task in ending:
            log.warning("a cancelled task goes on, cancelling it again", extra={"task_name": task.get_name()})
