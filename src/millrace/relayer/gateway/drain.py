"""How clients are sent away: each is told where to go, and a moment of its own, so that not all come at once."""

from __future__ import annotations

import random
from collections.abc import Sequence

from msgspec import UNSET

from millrace.relayer.protocol import messages
from millrace.runtime.websocket import text_frame

LATE_SECONDS = 5.0
"""Who is still there so long after the last moment is closed: as long as a shutdown waits for answers."""


class Drain:
    """Made when it begins."""

    def __init__(
        self, move_to: Sequence[str], seconds: float, now: float, clients: int, rng: random.Random | None = None
    ) -> None:
        """Send so many `clients` away within so many seconds."""
        self._move_to, self._seconds = list(move_to), seconds
        self._clients = max(1, clients)
        self._told = 0
        self._rng = rng or random.Random()
        self.until = now + seconds + LATE_SECONDS
        """When whoever is left is closed."""

    def word(self) -> bytes:
        """The frame for the next client: its moment is in a slot of its own, its first address the next one in turn."""
        slot = self._seconds * 1000 / self._clients
        moment = (self._told % self._clients) * slot + self._rng.uniform(0, slot)
        first = self._told % len(self._move_to) if self._move_to else 0
        self._told += 1
        turned = self._move_to[first:] + self._move_to[:first]
        return text_frame(messages.encode(messages.ShutdownMessage(turned or UNSET, int(moment))))
