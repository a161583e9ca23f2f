"""Until when a long question may be searched: what its asker is promised, and what is left of his share."""

from __future__ import annotations

from collections.abc import Callable

from millrace.aggregator import errors
from millrace.aggregator.errors import Busy


class Until(float):
    """A moment on `time.monotonic`, compared like a number, that has also come once a client's share is `used` up.

    The moment is what the asker is promised, and comes whatever the search did meanwhile. The share is processor time:
    that of others, for whom the search stands aside or rests, is not taken off it. Once it was seen to be used up it
    stays so for this search, although there is more of it by and by: what has left something out says so.
    """

    _used: Callable[[], bool]
    cut: bool
    """Whether somebody has seen it come before its moment, for want of the share."""

    def __new__(cls, latest: float, used: Callable[[], bool]) -> Until:
        made = super().__new__(cls, latest)
        made._used, made.cut = used, False
        return made

    def _come(self) -> bool:
        self.cut = self.cut or self._used()
        return self.cut

    def __lt__(self, now: float) -> bool:
        return float.__lt__(self, now) or self._come()

    def __le__(self, now: float) -> bool:
        return float.__le__(self, now) or self._come()

    def __gt__(self, now: float) -> bool:
        return float.__gt__(self, now) and not self._come()

    def __ge__(self, now: float) -> bool:
        return float.__ge__(self, now) and not self._come()


def too_late(until: float) -> Busy:
    """What is said of a question for which nothing was found by then: with more time there may be a plan."""
    by_share = isinstance(until, Until) and until.cut
    return errors.too_many_of_one() if by_share else errors.busy()
