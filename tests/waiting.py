"""Waiting for what a test has begun: asked again and again, with an end."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable

PATIENCE = 30.0
"""Seconds: more than any test needs, so that one that would wait for ever says where."""


async def until(holds: Callable[[], object], seconds: float = PATIENCE, pause: float = 0.005) -> None:
    """Return once `holds`, a function or a coroutine function, says so. Raises `TimeoutError` after so many seconds."""
    async with asyncio.timeout(seconds):
        while not (await answer if inspect.isawaitable(answer := holds()) else answer):
            await asyncio.sleep(pause)
