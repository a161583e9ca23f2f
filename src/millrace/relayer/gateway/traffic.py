"""What clients half send and what they are sent: bytes of each client, over all its connections."""

from __future__ import annotations

from collections import Counter


class HeldBytes:
    """Bytes of messages that have not wholly come, of each client and together: what is refused has to be let go."""

    def __init__(self, most_of_one: int, most: int) -> None:
        self._most_of_one = most_of_one
        self._most = most
        self._held: Counter[str] = Counter()
        self.total = 0
        self.refused = 0
        """Messages thrown away for want of room since the start."""

    def take(self, client: str, size: int) -> bool:
        """Hold `size` bytes more of a client, or False and none of them."""
        if self.total + size > self._most or self._held[client] + size > self._most_of_one:
            self.refused += 1
            self.give(client, 0)
            return False
        self._held[client] += size
        self.total += size
        return True

    def give(self, client: str, size: int) -> None:
        """Let go of bytes that were taken; nothing is kept of a client who holds none."""
        self._held[client] -= size
        self.total -= size
        if not self._held[client]:
            del self._held[client]


class Meter:
    """What the connections of one client were sent and has not been drained yet."""

    __slots__ = ("connections", "is_over", "spent")

    def __init__(self) -> None:
        self.connections = 0
        self.spent = 0.0
        self.is_over = False


class Egress:
    """A leaky bucket of sent bytes for each client: `burst` at once, drained at `rate` a second by calls of `drain`.

    Sending only adds to a number. A client is over until a `drain` finds it below the burst again.
    """

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._drained = now
        self._meters: dict[str, Meter] = {}
        self.skipped = 0
        """Times that something was not sent, or not read, because its client was over."""

    def __len__(self) -> int:
        return len(self._meters)

    def enter(self, client: str) -> Meter:
        """The meter of a client for one more connection."""
        meter = self._meters.get(client)
        if meter is None:
            meter = self._meters[client] = Meter()
        meter.connections += 1
        return meter

    def drain(self, now: float) -> None:
        """Let `rate` bytes a second since the last call run out; forget who is gone and has nothing left."""
        out = (now - self._drained) * self._rate
        self._drained = now
        for client, meter in list(self._meters.items()):
            meter.spent = max(0.0, meter.spent - out)
            meter.is_over = meter.spent > self._burst
            if not meter.connections and not meter.spent:
                del self._meters[client]
