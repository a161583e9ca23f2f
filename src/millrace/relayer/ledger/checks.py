"""What an account must be for one of our keys to sign: rules of a transaction, its sender's account and the policy."""

from __future__ import annotations

from millrace.chain import address
from millrace.chain.call import names_guardian
from millrace.chain.transaction import Transaction
from millrace.relayer.ledger.accounts import Account
from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.rules.policy import Policy
from millrace.relayer.rules.stages import Origin


def check_need(account: Account, origin: Origin, rules: Policy) -> None:
    """Strangers who can pay for themselves are not sponsored, where the policy says so."""
    below = rules.strangers.sponsor_below
    if below and not origin.person and account.balance >= below:
        raise Refused(reasons.SENDER_NOT_ALLOWED.but(f"only senders that hold less than {below} are sponsored"))


def check_sign_only(tx: Transaction, account: Account, committed: int, origin: Origin, rules: Policy) -> None:
    """A signature to be broadcast by others must not be good for nobody, nor for a nonce that lies far ahead.

    `committed`: what the sender's transactions in flight may spend. New wallets cost nothing, so that what may be kept
    signed would be filled by as many as it takes; what they have to hold has to come from somewhere.
    """
    kept = rules.strangers.sign_only_balance
    if not origin.person and tx.value + committed + kept > account.balance:
        text = f"/v1/sign wants an account that holds {kept} beyond all that it may spend: send it by `relay`"
        raise Refused(reasons.INSUFFICIENT_BALANCE.but(text))
    highest = account.nonce + rules.quotas.sign_only_ahead
    if tx.nonce > highest:
        raise Refused(reasons.NONCE_TOO_HIGH.but(f"up to {highest} is signed without being broadcast", 10_000))


def check_guardian(tx: Transaction, account: Account, origin: Origin) -> None:
    """Raise `Refused` for what nodes call not executable: it would stay signed and at risk for ever.

    Who has lost his guardian names another one without it, and pays for that himself: nodes execute it unless one is
    pending already.
    """
    if account.guardian is None or account.guardian == tx.guardian:
        return
    if not account.guardian:
        raise Refused(reasons.INVALID_GUARDIAN.but("the account has no guardian"))
    if not origin.is_sponsored and names_guardian(tx):
        if account.pending:
            raise Refused(reasons.INVALID_GUARDIAN.but("another guardian is pending: wait until it is the active one"))
        return
    ours = f"set guardian to {address.encode(account.guardian)} and options to 2, and let it sign"
    raise Refused(reasons.INVALID_GUARDIAN.but(f"the account is guarded: {ours}"))
