"""What the doctor finds: how it is, and what to do about it; and one question to a service, whatever it answers."""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple

Grade = Literal["ok", "warning", "fault"]
_SECONDS = 5.0
_MAX_BODY = 1024 * 1024
CLOCK_SECONDS = 5
"""Seconds that clocks may differ: `Date` is of whole seconds, and `until` and block times are read by the clock."""
BLOCK_SECONDS = 30
"""Seconds without a block of a shard: fifty rounds of 600 ms."""


class Finding(NamedTuple):
    """What was looked at, how it is, and what to do about it."""

    grade: Grade
    subject: str
    text: str
    remedy: str = ""


class Answer(NamedTuple):
    """Status, JSON object (empty where there is none) and the `Date` of an answer."""

    status: int
    body: dict[str, Any]
    date: str | None


def asked(base_url: str, path: str) -> Answer | str:
    """The answer, whatever its status; a text why there is none."""
    import http.client
    import urllib.error
    import urllib.request

    if not base_url.startswith(("http://", "https://")):
        return "an address begins with http:// or https://"
    try:
        with urllib.request.urlopen(base_url.rstrip("/") + path, timeout=_SECONDS) as response:
            status, content, date = response.status, response.read(_MAX_BODY), response.headers.get("Date")
    except urllib.error.HTTPError as error:
        status, content, date = error.code, error.read(_MAX_BODY), error.headers.get("Date")
    except (OSError, ValueError, http.client.HTTPException) as error:
        return str(getattr(error, "reason", None) or error)
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        body = {}
    return Answer(status, body if isinstance(body, dict) else {}, date)
