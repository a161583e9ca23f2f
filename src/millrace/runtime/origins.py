"""Which pages of other sites may read the answers of a service in a browser.

The protocol is CORS: https://fetch.spec.whatwg.org/#http-cors-protocol. No service knows cookies or other credentials,
so that "every page" gives away nothing that its visitor could not have asked for without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

EVERY = "*"
_ORIGIN = re.compile(r"https?://[^/?#@\s]+|null", re.ASCII)
_READABLE = {"Access-Control-Expose-Headers": "*"}  # when to ask again, and how old an answer's snapshot is
_PREFLIGHT_SECONDS = 7200  # what browsers cut longer times to
_NONE: Mapping[str, str] = {}


class Origins:
    """A list of origins (`https://app.example`), or `*` for all. Raises `ValueError` for one that is none."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed = frozenset(allowed)
        for origin in self._allowed - {EVERY}:
            if not _ORIGIN.fullmatch(origin) or origin != origin.lower():
                raise ValueError(f"allowed_origins: {origin!r} is no origin; write https://host, or * for every page")
        # A cache must not show one page's answer to another.
        self._other = {"Vary": "Origin"} if self._allowed else _NONE

    def headers(self, origin: str | None) -> Mapping[str, str]:
        """What an answer says to a request with this `Origin`, or without one."""
        if EVERY in self._allowed:
            return _EVERYBODY
        if origin is None or origin not in self._allowed:
            return self._other
        return {"Access-Control-Allow-Origin": origin, **_READABLE, "Vary": "Origin"}

    def allow(self, origin: str | None) -> bool:
        """Whether pages of this origin may read."""
        return EVERY in self._allowed or origin in self._allowed


_EVERYBODY = {"Access-Control-Allow-Origin": EVERY, **_READABLE}


def preflight_headers(methods: str) -> dict[str, str]:
    """The answer to a browser that asks before it sends what a form could not send: JSON, for example."""
    return {
        "Access-Control-Allow-Methods": methods,
        "Access-Control-Allow-Headers": "Content-Type, Last-Event-ID, traceparent",
        "Access-Control-Max-Age": str(_PREFLIGHT_SECONDS),
    }
