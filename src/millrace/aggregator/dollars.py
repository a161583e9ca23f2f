"""What amounts are worth in dollars, by the market's own prices: for people to read, never to trade by."""

from __future__ import annotations

from millrace.aggregator.snapshot import Snapshot


def in_dollars(snapshot: Snapshot, usdc: str, token: str, *amounts: int) -> list[float | None]:
    """What amounts of a token, in smallest units, are worth at a snapshot's prices: a whole `usdc` counts as a dollar.

    None where no pool leads from the token to the dollar.
    """
    unit, of_usdc = snapshot.worth.get(snapshot.inner(token)), snapshot.worth.get(usdc)
    if unit is None or not of_usdc:
        return [None] * len(amounts)
    dollar = of_usdc * snapshot.units[usdc]
    return [float(f"{amount * unit / dollar:.12g}") for amount in amounts]
