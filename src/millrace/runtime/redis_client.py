"""A client of Redis for those who do not wait for it. What it loads takes 0.1 s: import this where Redis is wanted."""

from __future__ import annotations

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from millrace.runtime.settings import Secret


def quick_client(url: Secret, call_seconds: float) -> Redis:
    """A client that gives up after so many seconds. Raises `OSError` with a text for the operator."""
    try:
        return Redis.from_url(
            url.reveal(),
            socket_timeout=call_seconds,
            socket_connect_timeout=call_seconds,
            retry=Retry(NoBackoff(), 1),
        )
    except ValueError:  # its text may show the URL
        raise OSError("redis_url cannot be used: write it as redis://:password@host:6379/0") from None
