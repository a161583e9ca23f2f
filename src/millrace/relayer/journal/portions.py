"""How much of every budget a relayer holds of those that share its keys, and how that moves to who needs it.

Each seat begins with an equal number of portions; a relayer's part of a sum is as large as its part of all portions.
Who has hardly any left wants more, and so does who had to refuse a stranger, as strangers may use a part of it only.
Who has more than it needs gives some when somebody wants it: it keeps to the smaller part first, and then tells the
server; who wants it takes it from there, and spends it once the server has said so. What it needs is what its part of
every sum has to be for what it has spent and put at risk, so all parts together cover all that was spent, at every
moment.

With each claim the server is told a bound of what is needed then. So it knows of a seat that was lost what nobody can
have spent, and gives that to others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

PORTIONS = 64
"""Of each seat at first."""
SPARE = 8
"""With fewer free ones a relayer wants more; it keeps twice as many when others want some."""
AT_ONCE = 16
"""As many are taken at once, a quarter of an equal part; the next ones a second later."""
AHEAD = 4
"""So many more than are needed the server is told, and hears of no change before they are used."""


class Need(NamedTuple):
    """What has been used, in portions."""

    portions: int
    step: int
    """Fees that certainly need no more than one portion further."""
    keeps: bool = False
    """Something was used of a sum that is nothing now: what is held covers it, should there be such a sum again."""
    is_short: bool = False
    """Somebody got nothing for want of his part of what is held, though that is not used up."""


class Portions:
    """Those of one relayer."""

    def __init__(self) -> None:
        self.need: Callable[[], Need] | None = None
        """Until it is known all may be needed, and nothing is given or wanted."""
        self.on_change: Callable[[], None] = lambda: None
        """Told when `held` is another number."""
        self.held = 0
        self.bound = 0
        """What the server is told to be needed."""
        self.others_want = False
        """As far as was heard."""
        self._room = 0
        """Fees that the bound covers further."""
        self._keeps = False
        """Nothing that is held is given."""
        self._is_short = False

    def hold(self, number: int) -> None:
        """The server has given so many, or they were given away."""
        if number != self.held:
            self.held = number
            self.on_change()

    def begin(self, number: int) -> None:
        """Take over a seat's, of which nobody knows yet what is needed."""
        self.bound, self._room = number, 0
        self.hold(number)

    def claim(self, fees: int) -> int:
        """What is needed at most once fees are claimed, which the ledger has reserved."""
        self._room -= fees
        if self._room < 0:
            self._look()
        return self.bound

    def settle(self) -> bool:
        """Give what others want and nobody needs here; whether more is wanted."""
        needed = self._look()
        if self.need is None:
            return False
        if self._is_short:
            return True
        if self.others_want and not self._keeps:
            self.hold(min(self.held, needed + 2 * SPARE))
            self.bound = min(self.bound, self.held)
        return self.held - needed < SPARE

    def _look(self) -> int:
        need = Need(self.held, 0, keeps=True) if self.need is None else self.need()
        needed, step, self._keeps, self._is_short = need
        self.bound = self.held if self._keeps else min(self.held, needed + AHEAD)
        self._room = (self.bound - needed) * step  # not more, as more may be held before it is told anew
        return needed
