"""Work beside other work."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import Any


@contextlib.asynccontextmanager
async def background(*work: Awaitable[Any]) -> AsyncIterator[None]:
    """Work that goes on meanwhile and is ended after; a failure of it shows at the end."""
    tasks = [asyncio.ensure_future(item) for item in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended
