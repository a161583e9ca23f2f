"""What traders believe tokens are worth: the market's opening prices, each on a slow walk of its own.

Tokens pegged to another one walk with it, as they must for stable pools to make sense.
"""

from typing import Final

from millrace.localnet.market.dice import Dice
from millrace.localnet.market.founding import MILLION, Token
from millrace.localnet.market.listing import TOKENS

STEP_PPM: Final = 1_000
"""How far a price goes in one step, up or down."""
RANGE_PPM: Final = 500_000
"""A price stays within this part of where it began."""


class Prices:
    """Values of tokens in 10^-18 dollars. `walk` moves one price at a time."""

    def __init__(self, tokens: tuple[Token, ...]) -> None:
        pegs = {listed.identifier: listed.peg for listed in TOKENS}
        names = {token.identifier for token in tokens}
        self._tokens = {token.identifier: token for token in tokens}
        self._root = {name: _root(name, pegs, names) for name in names}
        self._drift = dict.fromkeys(sorted(set(self._root.values())), MILLION)
        # The dollar is what everything is counted in.
        self._walking = [root for root in self._drift if root not in _dollars()]

    def value(self, token: str, amount: int) -> int:
        """What an amount of a token is worth."""
        known = self._tokens[token]
        scale: int = 10**known.decimals
        return amount * known.price * self._drift[self._root[token]] // (MILLION * scale)

    def walk(self, dice: Dice) -> None:
        """One token's price makes a step."""
        if not self._walking:
            return
        root = dice.pick(self._walking)
        drift = self._drift[root] * (MILLION + (STEP_PPM if dice.chance(500) else -STEP_PPM)) // MILLION
        self._drift[root] = min(max(drift, MILLION - RANGE_PPM), MILLION + RANGE_PPM)


def _root(name: str, pegs: dict[str, str], names: set[str]) -> str:
    while pegs.get(name, "") in names:
        name = pegs[name]
    return name


def _dollars() -> frozenset[str]:
    return frozenset(listed.identifier for listed in TOKENS if listed.price == "1" and not listed.peg)
