"""The index of what is in flight, against a plain list."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relayer_support import transfer, wallet

from millrace.chain.transaction import client_hash, to_proto
from millrace.relayer.inflight import Entry, InFlight

ALICE = wallet(1)
MADE = {nonce: transfer(ALICE, nonce, relayed=False, value=nonce * 7) for nonce in range(8)}


def entry(nonce: int) -> Entry:
    tx = MADE[nonce]
    return Entry(tx, to_proto(tx), client_hash(tx), "broadcast", 1, 1, 100 + nonce, nonce)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=30), st.integers(0, 8))
def test_nonces_and_costs(steps: list[tuple[int, bool]], account_nonce: int) -> None:
    """Expected nonce and committed cost are those of the entries that are there."""
    index = InFlight(capacity=6)
    there: dict[int, Entry] = {}
    for nonce, add in steps:
        if add and nonce not in there and not index.is_full:
            there[nonce] = entry(nonce)
            index.add(there[nonce])
        elif not add and nonce in there:
            index.remove(there.pop(nonce))
        elif add:
            with pytest.raises(KeyError):
                index.add(entry(nonce))
        assert len(index) == len(there) and index.is_full == (len(there) == 6)
        cost = sum(item.tx.value + item.fee for at, item in there.items() if at >= account_nonce)
        assert index.committed(ALICE.public, account_nonce) == cost
        expected = next(at for at in range(account_nonce, 20) if at not in there)
        assert index.expected_nonce(ALICE.public, account_nonce) == expected
    for item in there.values():
        assert index.by_client_hash(item.client_hash) is item is index.by_chain_hash(item.client_hash)
