"""What amounts are worth in dollars, by the market's own prices: for people to read, never to trade by."""

from __future__ import annotations

from typing import NamedTuple

from millrace.aggregator.snapshot import Snapshot


class Dollars(NamedTuple):
    """Values at a snapshot's prices; a whole token of `usdc` counts as a dollar."""

    snapshot: Snapshot
    usdc: str

    def of(self, token: str, amount: int) -> float | None:
        """What an amount in smallest units is worth; None where no pool leads from the token to the dollar."""
        worth = self.snapshot.worth
        unit, dollar = worth.get(self.snapshot.inner(token)), worth.get(self.usdc)
        if unit is None or not dollar:
            return None
        return float(f"{amount * unit / (dollar * 10 ** self.snapshot.decimals[self.usdc]):.12g}")
