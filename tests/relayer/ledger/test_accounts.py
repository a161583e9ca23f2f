"""The book of accounts: final blocks and the chain API speak in any order, and a nonce does not go back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.relayer.ledger.accounts import Account, AccountBook

A, GUARDIAN = b"a" * 32, b"g" * 32


def known(nonce: int, balance: int = 10, guardian: bytes | None = b"") -> AccountBook:
    """A book in which the chain API has told of one account."""
    book = AccountBook()
    book.learn_from_api(A, nonce, balance, None, 1.0, guardian)
    return book


def state(book: AccountBook) -> tuple[int, int]:
    account = book.get(A)
    assert account is not None
    return account.nonce, account.balance


def test_only_accounts_that_were_asked_for_are_kept() -> None:
    """A block's accounts that nobody asked for are news, and push nobody out."""
    book = AccountBook()
    assert book.learn_from_event(A, 3, 7)
    assert book.get(A) is None and len(book) == 0
    book.raise_nonce(A, 4)
    book.doubt(A, 1.0)
    assert len(book) == 0 and book.doubted_since(A) is None


def test_what_a_final_block_says_is_taken_unless_it_is_older() -> None:
    """With the nonce that is known a balance is new, as when somebody pays the account; with a lower one it is old."""
    book = known(3)
    assert book.learn_from_event(A, 3, 99)
    assert state(book) == (3, 99)
    assert not book.learn_from_event(A, 2, 5)
    assert state(book) == (3, 99)
    assert book.learn_from_event(A, 4, 1)
    assert book.get(A) == Account(4, 1, 1.0, is_final=True, guardian=b"")


def test_blocks_say_nothing_of_guardians() -> None:
    """The guardian the chain API told stays known when a block tells nonce and balance."""
    book = known(3, guardian=GUARDIAN)
    book.learn_from_event(A, 4, 1)
    account = book.get(A)
    assert account is not None and account.guardian == GUARDIAN


def test_the_chain_api_may_lag() -> None:
    """An answer older than what final blocks have said since, or before, takes no nonce back."""
    book = known(3)
    asked = book.get(A)
    book.learn_from_event(A, 5, 1)
    book.learn_from_api(A, 4, 50, asked, 2.0)
    assert state(book) == (5, 1), "a block spoke while it was asked"
    book.learn_from_api(A, 5, 50, asked, 3.0)
    assert state(book) == (5, 1), "and of the same nonce the block's balance is newer than the question"
    asked = book.get(A)
    book.learn_from_api(A, 4, 50, asked, 4.0)
    assert state(book) == (5, 1), "an API behind the final blocks"
    book.learn_from_api(A, 5, 50, asked := book.get(A), 5.0)
    assert asked is not None and state(book) == (5, 50), "asked after the block: its balance is as new"
    book.learn_from_api(A, 4, 9, book.get(A), 6.0)
    assert state(book) == (4, 9), "what only the API said it may take back, as when its block was reverted"


def test_a_transaction_in_a_final_block_raises_the_nonce_for_good() -> None:
    """Its nonce is used up; an API that has not heard of it takes nothing back."""
    book = known(3)
    book.raise_nonce(A, 5)
    book.raise_nonce(A, 4)
    assert state(book) == (5, 10)
    book.learn_from_api(A, 3, 10, book.get(A), 2.0)
    assert state(book) == (5, 10)


def test_the_account_unused_for_longest_is_forgotten() -> None:
    """Beyond the capacity it goes first, with the doubt about its guardian."""
    book = AccountBook(capacity=2)
    for number, name in enumerate((b"1", b"2")):
        book.learn_from_api(name, number, 0, None, 1.0)
        book.doubt(name, 1.0)
    book.get(b"1")
    book.learn_from_api(b"3", 3, 0, None, 1.0)
    assert book.get(b"2") is None and book.doubted_since(b"2") is None
    assert len(book) == 2 and book.doubted_since(b"1") == 1.0


def test_after_a_gap_nothing_is_known() -> None:
    """Accounts and doubts are forgotten."""
    book = known(3)
    book.doubt(A, 1.0)
    book.forget_all()
    assert len(book) == 0 and book.doubted_since(A) is None


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=12))
def test_states_that_are_not_older_than_their_block(steps: list[tuple[int, int, int]]) -> None:
    """The nonce never goes back, and of one nonce the state stays that the newest header brought, in any order."""
    book = AccountBook()
    book.learn_from_api(b"a", 0, -1, None, 0.0)
    best: tuple[int, tuple[int, int]] = 0, (0, 0)
    for balance, (carrier, below, nonce) in enumerate(steps):
        order = (carrier, carrier - below)
        taken = book.learn_from_event(b"a", nonce, balance, order)
        assert taken == ((nonce, order) >= best)
        if taken:
            best, held = (nonce, max(order, best[1])), balance
            known = book.get(b"a")
            assert known is not None and (known.nonce, known.balance, known.is_final) == (nonce, held, True)
