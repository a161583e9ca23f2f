"""How many decimals a token has, and who says so: by it whole tokens become the smallest units that are signed for.

An aggregator's word alone moves the point in an amount, and every other number that it tells can fit to that.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

import msgspec

from millrace.cli.ask import Ended, get, posted
from millrace.cli.shown import MOST_DECIMALS, to_units, units

_NATIVE, _NATIVE_DECIMALS = ("EGLD", "EGLD-000000"), 18
_SYSTEM_CONTRACT = "erd1qqqqqqqqqqqqqqqpqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqzllls8a5w6u"  # keeps the properties of tokens
_PROPERTY = b"NumDecimals-"


class Scale(NamedTuple):
    """A token's decimals, who says so, and whether that is anybody but the aggregator."""

    token: str
    decimals: int
    who: str
    is_sure: bool

    def smallest(self, text: str, *, is_units: bool) -> int:
        """Smallest units of an amount as it was typed."""
        return to_units(text, 0 if is_units else self.decimals)

    def shown(self, amount: int) -> str:
        """An amount in smallest units, and in whole tokens by this scale."""
        whole = units(amount, self.decimals)
        return f"{amount} smallest units of {self.token} = {whole} ({self.decimals} decimals, by {self.who})"


class Scales(NamedTuple):
    """Of what is paid, and of what is bought."""

    pays: Scale
    gets: Scale


def scales_of(aggregator: str, from_token: str, to_token: str, gateway: str | None, decimals: int | None) -> Scales:
    """Both scales; `decimals` are those of what is paid, by whoever typed the amount.

    Raises `Ended` for a pair that cannot be traded, and where the aggregator says something else than the others.
    """
    told_in, told_out = decimals_told(aggregator, from_token, to_token)
    pays = _scale(from_token, told_in, gateway, decimals)
    return Scales(pays, pays if from_token == to_token else _scale(to_token, told_out, gateway, None))


def decimals_told(aggregator: str, from_token: str, to_token: str) -> tuple[int, int]:
    """Decimals of both tokens, by the aggregator. Raises `Ended` for a pair that cannot be traded."""
    from millrace_client.quotes import PairConfig, Tokens

    if from_token == to_token:  # looks for arbitrage, and is no pair
        found = get(aggregator, "/api/v1/tokens", {"search": from_token, "limit": 1000}, Tokens).tokens
        for token in found:
            if token.identifier == from_token:
                return _possible(token.decimals), _possible(token.decimals)
        raise Ended(f"unknown token {from_token}: `millrace tokens` lists what can be traded")
    pair = get(aggregator, "/api/v1/pair-config", {"from": from_token, "to": to_token}, PairConfig)
    if not pair.supported or pair.decimals_in is None or pair.decimals_out is None:
        raise Ended(f"{pair.error or 'this pair cannot be traded'}: `millrace tokens` lists what can be")
    return _possible(pair.decimals_in), _possible(pair.decimals_out)


def _possible(decimals: int) -> int:
    """Raises `Ended` for decimals that no token has: who says so is not asked for amounts."""
    if not 0 <= decimals <= MOST_DECIMALS:
        raise Ended(f"the aggregator says {decimals} decimals, and no token has other than 0 to {MOST_DECIMALS}")
    return decimals


def _scale(token: str, told: int, gateway: str | None, given: int | None) -> Scale:
    found = Scale(token, told, "the aggregator's word alone", False)
    for decimals, who in _others(token, gateway, given):
        if decimals != told:
            raise Ended(
                f"nothing was signed: by the aggregator {token} has {told} decimals, by {who} {decimals}. One of them "
                "is wrong, and amounts with it: trade through an aggregator that you know, and tell this one's operator"
            )
        found = Scale(token, told, who, True)
    return found


def _others(token: str, gateway: str | None, given: int | None) -> list[tuple[int, str]]:
    """What everybody but the aggregator says of a token."""
    said = [] if given is None else [(given, "--decimals")]
    if token in _NATIVE:
        return [*said, (_NATIVE_DECIMALS, "the protocol")]
    return [*said, *([(_on_chain(gateway, token), "the chain")] if gateway else [])]


class _Output(msgspec.Struct):
    returnData: list[str | None] | None = None  # noqa: N815  # as a gateway calls it


class _Inner(msgspec.Struct):
    data: _Output


class _View(msgspec.Struct):
    data: _Inner | None = None


def _on_chain(gateway: str, token: str) -> int:
    """The decimals of a token by the chain's own contract. Raises `Ended`."""
    asked = {"scAddress": _SYSTEM_CONTRACT, "funcName": "getTokenProperties", "args": [token.encode().hex()]}
    told = posted(gateway, "/vm-values/query", asked, _View)
    for value in (told.data.data.returnData or []) if told.data else []:
        try:
            text = base64.b64decode(value or "", validate=True)
        except (binascii.Error, ValueError):
            continue
        digits = text.removeprefix(_PROPERTY)
        if text.startswith(_PROPERTY) and digits.isdigit() and len(digits) <= 2 and int(digits) <= MOST_DECIMALS:
            return int(digits)
    raise Ended(f"{gateway} names no decimals of {token}: is it a gateway of this chain?")
