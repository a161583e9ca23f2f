"""The ledger against a model that simply copies everything."""

import copy
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millrace.dex.constant_product import JexPool
from millrace.localnet.contracts.guardians import NOBODY, Guardian, Guarding
from millrace.localnet.contracts.ledger import NONCE, InsufficientFunds, Ledger, LedgerError, TooManyAccounts

ACCOUNTS = st.sampled_from([bytes([n]) * 32 for n in range(1, 5)])
TOKENS = st.sampled_from(["EGLD", "EGLD-000000", "USDC-c76f1f", "UTK-2f80e9"])
AMOUNTS = st.integers(0, 50)


def pool(number: int, reserve: int) -> JexPool:
    return JexPool(
        id=f"j:{number}",
        address=bytes(32),
        tokens=("A-000000", "B-000000"),
        reserves=(reserve, reserve),
        lp_fee=1,
        platform_fee=1,
    )


def picture(ledger: Ledger) -> Any:
    accounts = {
        key: (account.nonce, account.balance, dict(account.tokens), account.guarding)
        for key, account in ledger.accounts.items()
    }
    stored = {key: ledger.load(b"c", key) for key in ("x", "y")}
    return copy.deepcopy((accounts, dict(ledger.pools), stored))


class LedgerMachine(RuleBasedStateMachine):
    """Random changes, checkpoints, rollbacks and discards; pictures are kept of every open checkpoint."""

    @initialize()
    def start(self) -> None:
        self.ledger = Ledger()
        self.open: dict[int, Any] = {}

    @rule(who=ACCOUNTS, token=TOKENS, amount=AMOUNTS)
    def credit(self, who: bytes, token: str, amount: int) -> None:
        before = self.ledger.balance_of(who, token)
        self.ledger.credit(who, token, amount)
        assert self.ledger.balance_of(who, token) == before + amount

    @rule(who=ACCOUNTS, token=TOKENS, amount=AMOUNTS)
    def debit(self, who: bytes, token: str, amount: int) -> None:
        before = self.ledger.balance_of(who, token)
        if amount > before:
            shown = picture(self.ledger)
            with pytest.raises(InsufficientFunds):
                self.ledger.debit(who, token, amount)
            assert picture(self.ledger) == shown
        else:
            self.ledger.debit(who, token, amount)
            assert self.ledger.balance_of(who, token) == before - amount

    @rule(who=ACCOUNTS, nonce=AMOUNTS)
    def nonce(self, who: bytes, nonce: int) -> None:
        self.ledger.set_nonce(who, nonce)
        guarding = Guarding((Guardian(who, nonce, b""),))
        self.ledger.set_guarding(who, guarding)
        assert (self.ledger.account(who).nonce, self.ledger.account(who).guarding) == (nonce, guarding)

    @rule(number=st.integers(0, 2), reserve=AMOUNTS)
    def put_pool(self, number: int, reserve: int) -> None:
        self.ledger.put_pools((pool(number, reserve),))
        assert self.ledger.pool(f"j:{number}").reserves == (reserve, reserve)

    @rule(key=st.sampled_from(["x", "y"]), value=st.none() | AMOUNTS)
    def store(self, key: str, value: int | None) -> None:
        self.ledger.store(b"c", key, value)
        assert self.ledger.load(b"c", key) == value

    @rule()
    def checkpoint(self) -> None:
        self.open[self.ledger.checkpoint()] = picture(self.ledger)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def rollback(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.open)))
        self.ledger.rollback(name)
        assert picture(self.ledger) == self.open[name]
        self.open = {other: shown for other, shown in self.open.items() if other < name}

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.open)))
        shown = picture(self.ledger)
        self.ledger.discard(name)
        assert picture(self.ledger) == shown
        del self.open[name]

    @invariant()
    def touched_names_what_differs(self) -> None:
        for name, (accounts, _, _) in self.open.items():
            touched = self.ledger.touched(name)
            for who, account in self.ledger.accounts.items():
                nonce, balance, tokens, guarding = accounts.get(who, (0, 0, {}, NOBODY))
                changed = touched.get(who, set())
                assert (NONCE in changed) or (account.nonce, account.guarding) == (nonce, guarding)
                assert ("EGLD" in changed) or account.balance == balance
                for token in {*tokens, *account.tokens} - changed:
                    assert tokens.get(token) == account.tokens.get(token)


LedgerMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


class TestLedgerMachine(LedgerMachine.TestCase):  # type: ignore[misc]
    """Rollback restores exactly, discard keeps, touched misses nothing, in any order of events."""


def test_nothing_is_journalled_without_a_checkpoint_and_all_is_forgotten_after_the_last() -> None:
    """The journal holds only what an open checkpoint needs."""
    ledger = Ledger()
    ledger.credit(b"a" * 32, "EGLD", 5)
    assert ledger._journal == []
    first, second = ledger.checkpoint(), ledger.checkpoint()
    ledger.credit(b"a" * 32, "EGLD", 5)
    ledger.discard(first)
    assert len(ledger._journal) == 1
    ledger.discard(second)
    assert ledger._journal == []


def test_a_balance_of_zero_leaves_no_trace_among_the_tokens() -> None:
    """`tokens` holds positive balances only."""
    ledger = Ledger()
    ledger.credit(b"a" * 32, "USDC-c76f1f", 5)
    ledger.debit(b"a" * 32, "USDC-c76f1f", 5)
    assert ledger.account(b"a" * 32).tokens == {}


def test_reading_an_account_does_not_open_it() -> None:
    """An account that nobody credited is not part of the ledger."""
    ledger = Ledger()
    assert ledger.account(b"a" * 32).balance == 0
    ledger.credit(b"a" * 32, "USDC-c76f1f", 0)
    assert ledger.accounts == {}


def test_a_full_ledger_refuses_new_accounts_and_serves_the_old_ones() -> None:
    """The account table is bounded."""
    ledger = Ledger(max_accounts=1)
    ledger.credit(b"a" * 32, "EGLD", 5)
    with pytest.raises(TooManyAccounts):
        ledger.credit(b"b" * 32, "EGLD", 5)
    ledger.credit(b"a" * 32, "EGLD", 5)
    assert ledger.balance_of(b"a" * 32) == 10


@pytest.mark.parametrize("method", ["credit", "debit"])
def test_negative_amounts_are_refused(method: str) -> None:
    """No amount may be negative, or a debit would be a credit."""
    ledger = Ledger()
    ledger.credit(b"a" * 32, "EGLD", 5)
    with pytest.raises(LedgerError):
        getattr(ledger, method)(b"a" * 32, "EGLD", -1)
    assert ledger.balance_of(b"a" * 32) == 5
