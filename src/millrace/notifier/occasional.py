"""Log lines that a peer can provoke at will, or a failing disk, at most one a second each."""

from __future__ import annotations

import logging
import time

_INTERVAL = 1.0  # seconds


class OccasionalLog:
    """Logs one message again and again, but not too often; `left_out` tells how many lines are missing."""

    def __init__(self, log: logging.Logger, level: int, message: str) -> None:
        self._log = log
        self._level = level
        self._message = message
        self._next = 0.0
        self._left_out = 0

    def __call__(self, **context: object) -> None:
        now = time.monotonic()
        if now < self._next:
            self._left_out += 1
            return
        self._next = now + _INTERVAL
        if self._left_out:
            context["left_out"] = self._left_out
            self._left_out = 0
        self._log.log(self._level, self._message, extra=context)
