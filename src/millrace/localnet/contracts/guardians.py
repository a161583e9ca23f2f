"""Guardians of accounts: the chain's own functions `SetGuardian`, `GuardAccount` and `UnGuardAccount`.

Rules and words of the nodes (mx-chain-go `process/guardian`, `process/transaction`; mx-chain-vm-common-go). A guardian
counts some epochs after it was named, at once where the one before it signs that. An account has two at most: the
active one and one that is pending.
"""

from __future__ import annotations

from typing import Final

import msgspec

from millrace.chain.address import SIZE, is_contract
from millrace.chain.call import ParsedCall, names_guardian
from millrace.chain.transaction import Transaction

SET: Final = "SetGuardian"
GUARD: Final = "GuardAccount"
UNGUARD: Final = "UnGuardAccount"
FUNCTIONS: Final = frozenset({SET, GUARD, UNGUARD})
GAS: Final = 250_000
"""Of each function, beside moving the bytes (gas schedule V9)."""
_MAX_SERVICE: Final = 32  # bytes of a guardian service's name


class GuardError(ValueError):
    """What a transaction asks of an account's guardians cannot be; nothing was changed. The text is the nodes' own."""


class Guardian(msgspec.Struct, frozen=True):
    """Who guards an account, from which epoch on."""

    address: bytes
    epoch: int
    service: bytes


class Guarding(msgspec.Struct, frozen=True):
    """An account's guardians, and whether they guard it."""

    guardians: tuple[Guardian, ...] = ()
    on: bool = False

    def active(self, epoch: int) -> Guardian | None:
        """The newest guardian that counts in an epoch."""
        return max((item for item in self.guardians if item.epoch <= epoch), key=lambda item: item.epoch, default=None)

    def pending(self, epoch: int) -> Guardian | None:
        """The guardian that does not count yet."""
        return next((item for item in self.guardians if item.epoch > epoch), None)


NOBODY: Final = Guarding()


def check_signed(tx: Transaction, guarding: Guarding, epoch: int) -> None:
    """Raise `GuardError` unless a transaction has the guardian that its sender's account wants."""
    if not guarding.on:
        if tx.is_guarded:
            raise GuardError("guarded transaction not expected")
        return
    if not tx.is_guarded:
        _check_unsigned(tx, guarding, epoch)
        return
    active = guarding.active(epoch)
    if active is None or active.address != tx.guardian:
        raise GuardError("mismatch between transaction guardian and configured account guardian")


def _check_unsigned(tx: Transaction, guarding: Guarding, epoch: int) -> None:
    """Who has lost his guardian may name another one without it, unless one is pending."""
    if not names_guardian(tx):
        raise GuardError("not allowed to bypass guardian")
    if tx.sender_username or tx.receiver_username:
        raise GuardError("SetGuardian does not support usernames")
    if guarding.pending(epoch) is not None:
        raise GuardError("cannot replace pending guardian on guarded account")


def changed(tx: Transaction, call: ParsedCall, guarding: Guarding, epoch: int, delay: int) -> Guarding:
    """An account's guardians after one of `FUNCTIONS`. Raises `GuardError`."""
    if tx.receiver != tx.sender:
        raise GuardError("operation in account not permitted")
    if tx.value:
        raise GuardError("built in function called with tx value is not allowed")
    expected = 2 if call.function == SET else 0
    if len(call.args) != expected:
        raise GuardError(f"invalid number of arguments, expected {expected}, got {len(call.args)} ")
    if call.function == SET:
        return _named(tx, call.args[0], call.args[1], guarding, epoch, delay)
    return _switched(guarding, epoch, on=call.function == GUARD)


def _named(tx: Transaction, named: bytes, service: bytes, guarding: Guarding, epoch: int, delay: int) -> Guarding:
    if len(named) != SIZE or is_contract(named):
        raise GuardError("invalid address for guardian")
    if len(service) > _MAX_SERVICE:
        raise GuardError("service UID is invalid for guardian service")
    if named == tx.sender:
        raise GuardError("cannot set own address as guardian")
    if not service:
        raise GuardError("nil guardian service unique identifier")
    if tx.is_guarded:  # by the active guardian: that was checked
        return Guarding((Guardian(named, epoch, service),), guarding.on)
    guardian, active = Guardian(named, epoch + delay, service), guarding.active(epoch)
    if not guarding.guardians:
        return Guarding((guardian,), guarding.on)
    if active is None:
        count = len(guarding.guardians)
        raise GuardError(f"account has no active guardian in updateGuardians, with {count} configured guardians")
    return Guarding((active, guardian), guarding.on)


def _switched(guarding: Guarding, epoch: int, *, on: bool) -> Guarding:
    active = guarding.active(epoch)
    if active is None:
        raise GuardError("account has no active guardian")
    if on == guarding.on:
        raise GuardError(f"cannot {'guard account, it is already' if on else 'un-guard account, it is not'} guarded")
    return Guarding((active,) if on else guarding.guardians, on)
