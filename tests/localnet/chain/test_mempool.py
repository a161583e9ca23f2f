"""The mempool keeps its bounds and hands out what can be executed, best price first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.chain.fees import GasSchedule, price_per_unit
from millrace.chain.token import NATIVE
from millrace.chain.transaction import Transaction, chain_hash
from millrace.localnet.chain.admission import Refused
from millrace.localnet.chain.mempool import Mempool
from millrace.localnet.chain.selection import Accounts, Selection
from millrace.localnet.contracts.ledger import Ledger

GAS = GasSchedule()
TRANSACTIONS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(1, 5), st.integers(50_000, 60_000)), max_size=40
)


def transaction(sender: int, nonce: int, price: int = 1, gas_limit: int = 50_000) -> Transaction:
    """An unsigned transaction: nobody looks at signatures here."""
    address = bytes([1]) * 31 + bytes([sender])
    return Transaction(nonce, 0, address, address, price * 10**9, gas_limit, "local")


@given(items=TRANSACTIONS, room=st.integers(0, 30))
def test_selection_is_by_nonce_within_a_sender_and_by_price_between(
    items: list[tuple[int, int, int, int]], room: int
) -> None:
    """What comes out: no gaps per sender, never a dearer one left that was executable, no more than there is room."""
    pool, ledger = Mempool(GAS, 1000, 1000), Ledger()
    for item in items:
        tx = transaction(*item)
        try:
            pool.add(chain_hash(tx), tx, 0)
        except Refused:
            continue
    before = len(pool)
    taken: list[Transaction] = []
    for _, tx in pool.select(Accounts(ledger), 10**12, room):
        assert ledger.account(tx.sender).nonce == tx.nonce
        heads = [
            own[ledger.account(sender).nonce][1]
            for sender, own in pool._by_sender.items()
            if ledger.account(sender).nonce in own
        ]
        assert all(price_per_unit(tx, GAS) >= price_per_unit(head, GAS) for head in heads if head.sender != tx.sender)
        ledger.set_nonce(tx.sender, tx.nonce + 1)
        taken.append(tx)
    assert len(taken) <= room and len(pool) == before - len(taken)
    assert len({(tx.sender, tx.nonce) for tx in taken}) == len(taken)


def test_bounds_refuse_and_keep_what_waits() -> None:
    """At either bound a new transaction is refused; a better one of the same nonce takes its place."""
    pool = Mempool(GAS, max_size=3, max_per_sender=2)
    for sender, nonce in ((0, 0), (0, 1), (1, 0)):
        tx = transaction(sender, nonce)
        assert pool.add(chain_hash(tx), tx, 0) is None
    for sender, nonce in ((0, 2), (2, 0)):
        tx = transaction(sender, nonce, price=9)
        with pytest.raises(Refused, match="mempool is full"):
            pool.add(chain_hash(tx), tx, 0)
    same = transaction(0, 1, gas_limit=50_001)
    with pytest.raises(Refused, match="nonce"):
        pool.add(chain_hash(same), same, 0)
    better = transaction(0, 1, price=2)
    assert pool.add(chain_hash(better), better, 0) == chain_hash(transaction(0, 1))
    assert (len(pool), pool.refused) == (3, 2)


def test_what_waits_too_long_is_dropped() -> None:
    """Age counts from arrival; the rest stays."""
    pool = Mempool(GAS, 10, 10)
    for round_ in (1, 5):
        tx = transaction(round_, 3)
        pool.add(chain_hash(tx), tx, round_)
    assert pool.drop_older(5) == [chain_hash(transaction(1, 3))]
    assert len(pool) == 1 and pool.drop_older(5) == []


def test_gas_beyond_the_block_leaves_the_transaction_waiting() -> None:
    """One that does not fit is passed over for smaller ones."""
    pool = Mempool(GAS, 10, 10)
    large, small = transaction(0, 0, price=5, gas_limit=90_000), transaction(1, 0)
    for tx in (large, small):
        pool.add(chain_hash(tx), tx, 0)
    assert [tx for _, tx in pool.select(Accounts(Ledger()), 60_000, 10)] == [small]
    assert pool.contains(large.sender, 0, chain_hash(large))


def test_what_is_proposed_is_passed_over_and_what_is_used_is_forgotten() -> None:
    """Selection goes on from the nonce that follows all proposals, and drops only what the chain has used."""
    pool, ledger = Mempool(GAS, 10, 10), Ledger()
    own = [transaction(0, nonce) for nonce in range(5)]
    for tx in own:
        pool.add(chain_hash(tx), tx, 0)
    ledger.credit(own[0].sender, NATIVE, 10**18)
    ledger.set_nonce(own[0].sender, 1)
    selection = Selection(ledger, GAS)
    for tx in own[1:3]:
        selection.take(tx)
    assert [tx.nonce for _, tx in pool.select(selection, 10**12, 1)] == [3]
    assert pool.passed == [chain_hash(own[0])]
    assert [tx.nonce for tx in own if pool.contains(tx.sender, tx.nonce, chain_hash(tx))] == [1, 2, 4]


def test_what_is_not_covered_takes_no_room() -> None:
    """However dear: it waits, and a block's one place goes to the next that can be paid for."""
    pool, ledger = Mempool(GAS, 10, 10), Ledger()
    first, dear, cheap = transaction(0, 0), transaction(0, 1, price=9), transaction(1, 0)
    for tx in (dear, cheap):
        pool.add(chain_hash(tx), tx, 0)
    ledger.credit(dear.sender, NATIVE, 10 * 50_000 * 10**9 - 1)
    ledger.credit(cheap.sender, NATIVE, 10**18)
    selection = Selection(ledger, GAS)
    selection.take(first)
    assert [tx for _, tx in pool.select(selection, 50_000, 1)] == [cheap]
    assert pool.contains(dear.sender, 1, chain_hash(dear))


def test_what_a_reverted_block_had_takes_its_place_back() -> None:
    """Another transaction that came for its nonce meanwhile is forgotten, and named; the count stays right."""
    pool = Mempool(GAS, 10, 10)
    first, other = transaction(0, 0), transaction(0, 0, gas_limit=50_001)
    pool.add(chain_hash(other), other, 0)
    for _ in range(2):
        pool.put_back(chain_hash(first), first, 0)
        assert len(pool) == 1 and pool.contains(first.sender, 0, chain_hash(first))
    assert pool.passed == [chain_hash(other)]
