"""Accounts get, change and lose their guardians by transactions, in the order and the words of nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from millrace.chain import call
from millrace.chain.keys import KeyPair
from millrace.chain.transaction import GUARDED, Transaction, signing_message
from millrace.localnet.chain.admission import Refused

EPOCH = 40
"""Rounds."""
GAS = 1_000_000


@pytest.fixture
def world(make_bench: Callable[..., Any], wallet: Any) -> World:
    """Somebody with EGLD, on a chain with short epochs."""
    world = World(make_bench(rounds_per_epoch=EPOCH), wallet(0))
    world.bench.give(world.key)
    return world


class World:
    """Somebody, and what becomes of his account."""

    def __init__(self, bench: Any, key: KeyPair) -> None:
        self.bench = bench
        self.key = key

    def made(self, data: bytes = b"", guardian: KeyPair | None = None, **fields: Any) -> Transaction:
        """A transaction to himself, signed by a guardian, too, if he has one."""
        guarded = {"guardian": guardian.public, "options": GUARDED} if guardian else {}
        receiver = fields.pop("receiver", self.key.public)
        tx = self.bench.tx(self.key, receiver, data=data, **({"gas_limit": GAS} | guarded | fields))
        signature = guardian.sign(signing_message(tx)) if guardian else b""
        return msgspec.structs.replace(tx, guardian_signature=signature)

    def done(self, *args: Any, **fields: Any) -> tuple[str, str]:
        """How a transaction ends."""
        tx_hash = self.bench.chain.submit(self.made(*args, **fields))
        self.bench.rounds(self.bench.here)
        return self.bench.status(tx_hash)

    def refused(self, *args: Any, **fields: Any) -> str:
        """Why a transaction is not taken."""
        with pytest.raises(Refused) as refusal:
            self.bench.chain.submit(self.made(*args, **fields))
        return str(refusal.value).removeprefix("transaction is not executable and gas will not be consumed, ")

    def next_epoch(self) -> None:
        """Go on until another epoch has begun, and something was executed in it."""
        self.bench.rounds(EPOCH - self.bench.chain.round % EPOCH + self.bench.here)

    def guard(self, guardian: KeyPair) -> None:
        """Have the account guarded."""
        assert self.done(named(guardian)) == ("success", "")
        self.next_epoch()
        assert self.done(b"GuardAccount") == ("success", "")


def named(guardian: KeyPair) -> bytes:
    """The data that names a guardian."""
    return call.encode("SetGuardian", guardian.public, b"tests")


def test_a_guardian_counts_an_epoch_after_he_was_named(world: World, wallet: Any) -> None:
    """From then on the account can be guarded, and is used with his signature only, until he signs that it is not."""
    guardian, other = wallet(1), wallet(2)
    assert world.done(b"GuardAccount") == ("fail", "execution failed: account has no active guardian")
    assert world.done(named(guardian)) == ("success", "")
    assert world.done(b"GuardAccount") == ("fail", "execution failed: account has no active guardian")
    assert "1 configured guardians" in world.done(named(other))[1]  # one that is pending cannot be replaced
    assert world.refused(guardian=guardian) == "guarded transaction not expected"
    world.next_epoch()
    assert world.done() == ("success", "")
    assert world.done(b"GuardAccount") == ("success", "")
    assert world.refused() == "not allowed to bypass guardian"
    mismatch = "mismatch between transaction guardian and configured account guardian"
    assert world.refused(guardian=other) == mismatch
    assert world.done(guardian=guardian) == ("success", "")
    assert "already guarded" in world.done(b"GuardAccount", guardian)[1]
    assert world.done(b"UnGuardAccount", guardian) == ("success", "")
    assert world.done() == ("success", "")
    assert world.done(b"GuardAccount") == ("success", "")  # he still counts


def test_the_guardian_signs_for_the_next_one(world: World, wallet: Any) -> None:
    """A guardian named with the signature of the active one takes its place at once."""
    guardian, other = wallet(1), wallet(2)
    world.guard(guardian)
    assert world.done(named(other), guardian) == ("success", "")
    assert "mismatch" in world.refused(guardian=guardian)
    assert world.done(guardian=other) == ("success", "")


def test_who_lost_his_guardian_waits(world: World, wallet: Any) -> None:
    """Without the active one's signature another one is pending for its time, is not replaced, and then counts."""
    guardian, other = wallet(1), wallet(2)
    world.guard(guardian)
    assert world.refused(named(other), gas_price=2 * 10**9 + 1) == "gas price is too high for the transaction"
    assert world.done(named(other)) == ("success", "")
    assert world.refused(named(wallet(1, 1))) == "cannot replace pending guardian on guarded account"
    assert world.done(guardian=guardian) == ("success", "")
    waiting = world.bench.chain.submit(
        world.made(guardian=guardian, nonce=world.bench.chain.account(world.key.public).nonce + 1)
    )
    world.next_epoch()
    assert "mismatch" in world.refused(guardian=guardian)
    assert world.done(guardian=other) == ("success", "")
    world.bench.rounds(world.bench.here)
    # What the old one signed before is not executed any more.
    assert world.bench.chain.index.find(waiting) is None or world.bench.status(waiting)[0] == "fail"
    assert world.done(guardian=other) == ("success", "")


@pytest.mark.parametrize(
    ("data", "fields", "why"),
    [
        (b"SetGuardian", {}, "invalid number of arguments, expected 2, got 0"),
        (b"SetGuardian@00@01", {}, "invalid address for guardian"),
        (call.encode("SetGuardian", bytes(32), b"x"), {}, "invalid address for guardian"),
        (call.encode("SetGuardian", b"\1" * 32, b"x" * 33), {}, "service UID is invalid"),
        (call.encode("SetGuardian", b"\1" * 32, b""), {}, "nil guardian service unique identifier"),
        (call.encode("SetGuardian", b"\1" * 32, b"x"), {"value": 1}, "called with tx value is not allowed"),
        (call.encode("SetGuardian", b"\1" * 32, b"x"), {"receiver": b"\1" * 32}, "operation in account not permitted"),
        (call.encode("SetGuardian", b"\1" * 32, b"x"), {"gas_limit": 300_000}, "not enough gas"),
        (b"GuardAccount@01", {}, "invalid number of arguments, expected 0, got 1"),
        (b"UnGuardAccount", {}, "account has no active guardian"),
    ],
)
def test_what_guardians_are_not_asked(world: World, data: bytes, fields: dict[str, Any], why: str) -> None:
    """A function of guardians that cannot be is invalid, in the nodes' words: the fee is gone, nothing else changes."""
    before = world.bench.chain.account(world.key.public).guarding
    status, reason = world.done(data, **fields)
    assert status == "fail" and why in reason
    assert world.bench.chain.account(world.key.public).guarding == before


def test_nobody_guards_himself(world: World) -> None:
    """An account is not its own guardian."""
    assert world.done(named(world.key)) == ("fail", "execution failed: cannot set own address as guardian")


def test_a_block_that_is_taken_back_takes_its_guardian_with_it(world: World, wallet: Any) -> None:
    """A guardian is part of the state that a revert restores, and is named again by the next block."""
    world.bench.chain.finality_rounds = 5
    assert world.done(named(wallet(1)))[0] == "pending"
    assert world.bench.chain.account(world.key.public).guarding.guardians
    world.bench.chain.take_back(0, world.bench.here)
    assert not world.bench.chain.account(world.key.public).guarding.guardians
    world.bench.rounds(world.bench.here + 5)
    assert world.bench.chain.account(world.key.public).guarding.guardians
