"""What programmes may still pay, of which several relayers have the keys: as the claims' server told it last.

The server counts (`common_programmes`), in the transaction of each claim. What is here decides only whether it is
asked: who is refused there is judged as a stranger for a while, and a programme that has spent its budget asks nobody.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping

from millrace.relayer.journal.common_programmes import Limits, Total

FULL_SECONDS = 60.0
"""A sender whom a programme did not pay for is not asked about for so long: counts fall only where something that was
signed cost nothing."""
MAX_FULL = 100_000
"""Such senders; beyond it the oldest is asked about again."""


class Allowances:
    """Those of one relayer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits: Callable[[], Mapping[str, Limits]] = dict
        """By programme, of the policy in force."""
        self._clock = clock
        self._totals: dict[str, Total] = {}
        self._full: OrderedDict[tuple[str, bytes], float] = OrderedDict()
        """Until when."""

    @property
    def full(self) -> int:
        """Senders that are remembered as refused."""
        return len(self._full)

    def hear(self, totals: Iterable[Total]) -> None:
        """What all together paid, and may have to pay, of our policy's programmes."""
        self._totals = {total.programme: total for total in totals}

    def total(self, programme: str) -> Total:
        """What was heard of a programme; nothing before anybody was paid for."""
        return self._totals.get(programme) or Total(programme, 0, 0)

    def refuse(self, programme: str, sender: bytes) -> None:
        """The server did not let a programme pay for a sender."""
        self._full[programme, sender] = self._clock() + FULL_SECONDS
        self._full.move_to_end((programme, sender))
        if len(self._full) > MAX_FULL:
            self._full.popitem(last=False)

    def has_room(self, programme: str, limits: Limits, sender: bytes, fee: int) -> bool:
        """Whether the server may say yes."""
        until = self._full.get((programme, sender))
        if until is not None and self._clock() < until:
            return False
        if until is not None:
            del self._full[programme, sender]
        return limits.per_user > 0 and self.total(programme).spent + fee <= limits.budget
