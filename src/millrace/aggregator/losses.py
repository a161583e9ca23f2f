"""A market that shrinks at one blow is more likely an upstream's fault than the truth: it has to be said again."""

from __future__ import annotations

import logging
from collections import Counter
from fractions import Fraction

from millrace.dex.document import DocumentError, PoolDocument
from millrace.dex.rate import RatePool

log = logging.getLogger(__name__)


class HeldBack(DocumentError):
    """A sound document that has lost too much since the one in use."""


class Losses:
    """Compares each document with the one in use. One thread at a time.

    One is held back that has lost `share` or more of all pools, or every pool of an exchange; it is taken when so many
    fetches in a row (`fetches`) have lost the very same pools.
    """

    def __init__(self, share: float, fetches: int) -> None:
        self._share = Fraction(str(share))  # as the operator wrote it
        self._fetches = fetches
        self._lost: frozenset[str] = frozenset()
        self._seen = 0
        self.held_back = 0
        """Documents held back since the start."""
        self.taken = 0
        """Losses believed since the start, each one an alarm."""

    def check(self, document: PoolDocument, current: PoolDocument | None) -> None:
        """Raise `HeldBack` while a document's losses are not believed."""
        lost, reason = frozenset[str](), ""
        if current is not None:
            lost = frozenset(pool.id for pool in current.pools) - {pool.id for pool in document.pools}
            reason = self._reason(document, current, len(lost)) if lost else ""
        if not reason:
            self.forget()
            return
        self._seen = self._seen + 1 if lost == self._lost else 1
        self._lost = lost
        if self._seen < self._fetches:
            self.held_back += 1
            raise HeldBack(f"{reason}; held back until {self._fetches} fetches agree ({self._seen} so far)")
        self.forget()
        self.taken += 1
        log.error("the market has lost pools", extra={"reason": reason, "some": sorted(lost)[:10]})

    def forget(self) -> None:
        """The document in use has been seen, or another is: what was lost has to be said as often again."""
        self._lost, self._seen = frozenset(), 0

    def _reason(self, document: PoolDocument, current: PoolDocument, lost: int) -> str:
        gone = sorted(_exchanges(current) - {pool.exchange for pool in document.pools})
        if gone:
            return f"all pools of {', '.join(gone)} are gone"
        if lost >= self._share * len(current.pools):
            return f"{lost} of {len(current.pools)} pools are gone"
        return ""


def _exchanges(document: PoolDocument) -> set[str]:
    """Exchanges that do not vanish with one pool: of those that are contracts at a rate, many are a single one."""
    rated = {(pool.exchange, pool.address) for pool in document.pools if isinstance(pool, RatePool)}
    contracts = Counter(exchange for exchange, _ in rated)
    return {pool.exchange for pool in document.pools if contracts[pool.exchange] != 1}
