"""How clients are sent away: each is told where to go, and a moment of its own, so that not all come at once.

Balancers see only after some checks that nobody is to come here any more. Until then whoever is sent away may be sent
back, and least connections has whoever empties: so the first moment is behind that, and newcomers are let in till then.
"""

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
        self,
        move_to: Sequence[str],
        notice: float,
        seconds: float,
        now: float,
        clients: int,
        rng: random.Random | None = None,
    ) -> None:
        """Send so many `clients` away within so many `seconds`, which begin when balancers have had `notice`."""
        self._move_to, self._seconds = list(move_to), seconds
        self._clients = max(1, clients)
        self._told = 0
        self._rng = rng or random.Random()
        self._begins = now + notice
        self.until = self._begins + seconds + LATE_SECONDS
        """When whoever is left is closed."""

    def lets_in(self, now: float) -> bool:
        """Whether balancers may still send newcomers."""
        return now < self._begins

    def word(self, now: float) -> bytes:
        """The frame for the next client: its moment is in a slot of its own, its first address the next one in turn."""
        slot = self._seconds * 1000 / self._clients
        moment = (self._told % self._clients) * slot + self._rng.uniform(0, slot) + (self._begins - now) * 1000
        first = self._told % len(self._move_to) if self._move_to else 0
        self._told += 1
        turned = self._move_to[first:] + self._move_to[:first]
        return text_frame(messages.encode(messages.ShutdownMessage(turned or UNSET, int(moment))))
