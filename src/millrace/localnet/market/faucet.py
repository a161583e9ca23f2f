"""Giving accounts EGLD and tokens of the market, for demonstrations and tests."""

from typing import Final

from millrace.chain.token import NATIVE
from millrace.localnet.contracts.frame import State
from millrace.localnet.contracts.ledger import InsufficientFunds, Ledger, LedgerError
from millrace.localnet.market.market import WRAPPED, Market

MAX_GRANT: Final = 10**40
"""The most smallest units in one grant."""


class FaucetError(Exception):
    """The faucet does not give this; the text says why."""


def grant(market: Market, home: State, ledger: Ledger, receiver: bytes, token: str, amount: int) -> None:
    """Credit an account. `home` is the contracts' shard, `ledger` the receiver's, perhaps the same one.

    Market tokens are minted, and the wrapper receives the EGLD behind minted wrapped EGLD. LP units are not
    minted, since they stand for reserves: they come from those who founded the pools. Raises `FaucetError`.
    """
    if not 0 < amount <= MAX_GRANT:
        raise FaucetError(f"the amount must be between 1 and {MAX_GRANT}")
    at = market.addresses
    checkpoint = home.ledger.checkpoint()
    try:
        if token in market.lp_tokens:
            home.ledger.debit(at.provider, token, amount)
        elif token == WRAPPED:
            home.ledger.credit(at.wrapper, NATIVE, amount)
        elif token != NATIVE and token not in market.decimals:
            raise FaucetError(f"unknown token {token[:40]!r}")
        ledger.credit(receiver, token, amount)
    except InsufficientFunds:
        home.ledger.rollback(checkpoint)
        left = home.ledger.balance_of(at.provider, token)
        raise FaucetError(f"only {left} of LP token {token} are left to give") from None
    except (LedgerError, FaucetError) as error:
        home.ledger.rollback(checkpoint)
        raise FaucetError(str(error)) from error
    home.ledger.discard(checkpoint)
