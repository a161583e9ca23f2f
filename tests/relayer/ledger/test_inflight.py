"""The index of what is in flight, against a plain list."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relayer_support import transfer, wallet

from millrace.chain.transaction import client_hash, early_hashes, to_proto
from millrace.relayer.ledger.inflight import Entry, InFlight
from millrace.relayer.rules.stages import Kind, hash_of

ALICE = wallet(1)
MADE = {nonce: transfer(ALICE, nonce, relayed=False, value=nonce * 7) for nonce in range(8)}


def entry(nonce: int) -> Entry:
    tx = MADE[nonce]
    return Entry(tx, to_proto(tx), client_hash(tx), "broadcast", 1, 1, 100 + nonce, nonce)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.booleans(), st.integers(0, 9)), max_size=30))
def test_nonces_and_costs(steps: list[tuple[int, bool, int]]) -> None:
    """Expected nonce and committed cost are those of the entries that are there, wherever the account has got to."""
    index = InFlight(capacity=6)
    there: dict[int, Entry] = {}
    for nonce, add, account_nonce in steps:
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


RELAYED = wallet(1, 1)
KINDS: list[tuple[Kind, bool]] = [("relay", True), ("sign", True), ("broadcast", True), ("broadcast", False)]
"""With a relayer, which of a `broadcast` is not ours, or without."""


def various(number: int) -> Entry:
    kind, relayed = KINDS[number % len(KINDS)]
    tx = transfer(RELAYED, number, relayed=relayed, value=3)
    client, sdk = early_hashes(tx)
    return Entry(tx, to_proto(tx), client, kind, 1, 1, 100 + number, number, ip="ab"[number // 4 % 2], sdk_hash=sdk)


VARIOUS = {number: various(number) for number in range(16)}


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 15), st.sampled_from(["add", "sign", "remove"])), max_size=40))
def test_sums_and_hashes(steps: list[tuple[int, str]]) -> None:
    """What is counted by address, relayer and kind is of the entries that are there; nothing is kept of others."""
    index = InFlight(capacity=8)
    there: dict[int, Entry] = {}
    for number, step in steps:
        kind = KINDS[number % len(KINDS)][0]
        if step == "add" and number not in there and index.has_room(kind):
            there[number] = msgspec.structs.replace(VARIOUS[number])
            index.add(there[number])
        elif step == "sign" and number in there and not there[number].chain_hash:
            index.signed(there[number], b"s" * 64 if kind != "broadcast" else b"")
        elif step == "remove" and number in there:
            index.remove(there.pop(number))
        broadcasts = [item for item in there.values() if item.kind == "broadcast"]
        assert index.has_room("broadcast") == (len(there) < 8 and len(broadcasts) < 4)
        assert index.has_room("relay") == index.has_room("sign") == (len(there) < 8)
        for ip in "ab":
            assert index.of_ip(ip) == sum(item.ip == ip for item in there.values())
        owed = sum(item.fee for item in broadcasts if item.tx.relayer)
        assert index.owed(VARIOUS[0].tx.relayer) == owed
        assert index.only_signed() == [item for item in index.entries() if item.kind == "sign"]
        own = sum(item.tx.value + (0 if item.tx.relayer else item.fee) for item in there.values())
        assert index.committed(RELAYED.public, 0) == own
        for at, item in there.items():
            assert index.of_sender(RELAYED.public)[at] is item is index.by_client_hash(item.client_hash)
            for name in {item.client_hash, item.chain_hash, item.sdk_hash} - {b""}:
                assert index.by_any_hash(name) is item
            nameable = bool(item.chain_hash) or not item.tx.relayer
            assert index.by_chain_hash(item.client_hash if not item.chain_hash else item.chain_hash) is (
                item if nameable else None
            )
            assert item.proto == to_proto(item.tx) and item.chain_hash in (b"", hash_of(item.proto))
            assert item.tx.relayer_signature == (b"s" * 64 if item.chain_hash and item.kind != "broadcast" else b"")
    for item in list(there.values()):
        index.remove(item)
        index.remove(item)  # twice is once
    tables = [value for value in vars(index).values() if isinstance(value, dict)]
    assert len(index) == 0 and len(tables) == 10 and not any(tables)
    assert index.has_room("broadcast")


def test_another_entry_of_the_nonce_stays() -> None:
    """To take out what is not there any more does not take out what came after it."""
    index, first = InFlight(), entry(3)
    second = msgspec.structs.replace(first, client_hash=b"other")
    index.add(first)
    index.remove(first)
    index.add(second)
    index.remove(first)
    assert index.of_sender(ALICE.public) == {3: second} and index.committed(ALICE.public, 0) == 3 * 7 + 103


def test_what_others_have_counts_once() -> None:
    """What others had of a nonce that is here, is asked for, or is below the account's does not count."""
    index, own = InFlight(), entry(3)
    index.know_elsewhere(ALICE.public, {1: 1_000, 2: 2_000, 3: 3_000, 4: 4_000})
    assert [index.committed(ALICE.public, 2), index.committed(ALICE.public, 2, 4)] == [9_000, 5_000]
    index.add(own)
    assert index.committed(ALICE.public, 2, 2) == own.cost_to_sender + 4_000


def test_what_others_let_go_of_comes_next() -> None:
    """A nonce that others have no more is expected again, also in front of one that is here."""
    index = InFlight()
    index.add(entry(0))
    index.know_elsewhere(ALICE.public, {1: 0, 2: 0})
    assert index.expected_nonce(ALICE.public, 0) == 3
    index.know_elsewhere(ALICE.public, {1: 0})
    assert index.expected_nonce(ALICE.public, 0) == 2
    index.know_elsewhere(ALICE.public, {})
    assert index.expected_nonce(ALICE.public, 0) == 1


def test_a_full_index_takes_nothing_more() -> None:
    """At its capacity nothing is added, whatever its kind, and half of it is the most for broadcasts alone."""
    index = InFlight(capacity=4)
    index.add(VARIOUS[2])
    assert index.has_room("broadcast")
    index.add(VARIOUS[3])
    assert not index.has_room("broadcast") and index.has_room("relay") and index.has_room("sign")
    index.add(VARIOUS[0])
    index.add(VARIOUS[1])
    assert index.is_full and not any(index.has_room(kind) for kind in ("relay", "sign", "broadcast"))
    with pytest.raises(KeyError):
        index.add(VARIOUS[4])
    index.remove(VARIOUS[0])
    index.add(VARIOUS[4])
    assert index.is_full and index.by_client_hash(VARIOUS[4].client_hash) is VARIOUS[4]


def test_what_was_signed_before_a_restart_is_found_as_blocks_name_it() -> None:
    """An entry that comes with its signature is found by its chain hash, and no longer once it is taken out."""
    signed = msgspec.structs.replace(VARIOUS[0])
    before, after = InFlight(), InFlight()
    before.add(signed)
    before.signed(signed, b"s" * 64)
    after.add(signed)
    assert after.by_chain_hash(signed.chain_hash) is signed and after.by_chain_hash(signed.client_hash) is None
    after.remove(signed)
    assert after.by_chain_hash(signed.chain_hash) is None
