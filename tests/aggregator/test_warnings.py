"""Tokens are listed with what their holders should know before they buy."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from millrace.aggregator.catalogue import make
from millrace.aggregator.snapshot import build
from millrace.dex.document import decode, encode
from synthetic import make_market

USDC = "USDC-c76f1f"
MARKET = make_market(40, seed=11)


def rows(powers: tuple[str, ...], thin: float) -> dict[str, dict[str, Any]]:
    """The list of tokens of a market whose USDC has a manager with these powers."""
    tokens = tuple(
        msgspec.structs.replace(info, powers=powers) if info.identifier == USDC else info for info in MARKET.tokens
    )
    parts = make(build(encode(msgspec.structs.replace(MARKET, tokens=tokens)), 0.0), USDC, thin)
    while True:
        try:
            next(parts)
        except StopIteration as end:
            found = [msgspec.json.decode(row) for _, row in end.value.tokens]
            return {row["identifier"]: row for row in found}


@pytest.mark.parametrize(
    ("powers", "warnings"),
    [
        ((), []),
        (("wipe", "freeze"), ["freezable", "wipeable"]),
        (("freeze", "pause", "wipe", "other"), ["freezable", "pausable", "wipeable"]),
    ],
)
def test_a_managers_powers_are_warnings(powers: tuple[str, ...], warnings: list[str]) -> None:
    """Those that a holder has to fear, in one order; words that nobody knows mean nothing."""
    found = rows(powers, 0.0)
    assert found[USDC]["warnings"] == warnings
    assert found["EGLD"]["warnings"] == []


def test_thin_markets_are_named() -> None:
    """Below the bound, and without a price, but LP tokens, which are not there to be traded."""
    plain = rows((), 0.0)
    worth = sorted(row["liquidityEgld"] for row in plain.values() if not row["isLp"])
    bound = worth[len(worth) // 2]
    for identifier, row in rows((), bound).items():
        thin = not row["isLp"] and plain[identifier]["liquidityEgld"] < bound
        assert row["warnings"] == (["thin_market"] if thin else [])


def test_powers_travel_in_the_document() -> None:
    """What is written is read again; a list too long to be true leaves the token out."""
    token = msgspec.structs.replace(MARKET.tokens[0], powers=("pause",))
    document = msgspec.structs.replace(MARKET, tokens=(token, *MARKET.tokens[1:]))
    assert decode(encode(document)).tokens[0].powers == ("pause",)
    long = msgspec.structs.replace(token, powers=("pause",) * 17)
    with pytest.raises(ValueError, match="powers"):
        decode(encode(msgspec.structs.replace(document, tokens=(long, *MARKET.tokens[1:]))))
