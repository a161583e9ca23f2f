"""What amounts are worth in dollars, by the market's own prices: for people to read, never to trade by."""

from __future__ import annotations

from millrace.aggregator.snapshot import Snapshot


class Dollars:
    """Values at a snapshot's prices; a whole token of `usdc` counts as a dollar."""

    def __init__(self, snapshot: Snapshot, usdc: str) -> None:
        self._snapshot = snapshot
        dollar = snapshot.worth.get(usdc)
        self._dollar = dollar * 10 ** snapshot.decimals[usdc] if dollar else 0.0

    def of(self, token: str, amount: int) -> float | None:
        """What an amount in smallest units is worth; None where no pool leads from the token to the dollar."""
        unit = self._snapshot.worth.get(self._snapshot.inner(token))
        if unit is None or not self._dollar:
            return None
        return float(f"{amount * unit / self._dollar:.12g}")
