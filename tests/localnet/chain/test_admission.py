"""A transaction enters a mempool only if a node would keep it, and is refused in the node's words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from millrace.chain.address import encode
from millrace.chain.keys import KeyPair
from millrace.chain.token import NATIVE
from millrace.chain.transaction import GUARDED, HASH_SIGNED, signing_message
from millrace.localnet.chain.admission import Refused
from millrace.localnet.contracts.guardians import Guardian, Guarding

EGLD = 10**18


@pytest.fixture
def funded(bench: Any, wallet: Any) -> Any:
    """A chain on which the first wallets of shards 0 and 1 hold EGLD."""
    bench.give(wallet(0))
    bench.give(wallet(1))
    return bench


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"chain_id": "1"}, "invalid chain ID"),
        ({"version": 0}, "invalid transaction version"),
        ({"version": 1, "options": HASH_SIGNED}, "invalid transaction version"),
        ({"gas_price": 10**9 - 1}, "insufficient gas price in tx"),
        ({"gas_limit": 49_999}, "insufficient gas limit in tx"),
        ({"gas_limit": 600_000_001}, "more gas was provided"),
        ({"value": 2 * 10**25 + 1}, "tx value is too big"),
        ({"nonce": 101}, "veryHighNonceInTx: true"),
        ({"guardian": bytes(32)}, "not expected"),
        ({"gas_limit": 600_000_000, "gas_price": 10**13}, "insufficient funds"),
    ],
)
def test_each_rule_has_its_words(funded: Any, wallet: Any, fields: dict[str, Any], words: str) -> None:
    """A transaction that breaks one rule, correctly signed, is refused for that rule."""
    with pytest.raises(Refused, match=words):
        funded.chain.submit(funded.tx(wallet(0), wallet(0, 1).public, **fields))


def test_the_first_rule_that_is_broken_is_told(bench: Any, wallet: Any) -> None:
    """Rules are asked in the nodes' order: a transaction that breaks all of them, mended one by one, is told each."""
    key, relayer, ledger = wallet(0, 3), bench.relayers[0], bench.chain.shards[0].state.ledger
    fields: dict[str, Any] = {
        "version": 0, "chain_id": "1", "gas_price": 1, "gas_limit": 1, "value": 3 * 10**25, "nonce": 101,
        "guardian": bytes(32), "relayer": wallet(1).public,
    }  # fmt: skip
    signs: set[str] = set()

    def told() -> str:
        tx = bench.tx(key, wallet(0).public, **fields)
        own = tx.signature if "sender" in signs else bytes(64)
        relayed = relayer.sign(signing_message(tx)) if "relayer" in signs else bytes(64)
        with pytest.raises(Refused) as refusal:
            bench.chain.submit(msgspec.structs.replace(tx, signature=own, relayer_signature=relayed))
        return str(refusal.value)

    for words, mended in (
        ("invalid transaction version", {"version": 2}),
        ("invalid chain ID", {"chain_id": "local"}),
        ("insufficient gas price in tx", {"gas_price": 10**13}),
        ("insufficient gas limit in tx", {"gas_limit": 600_000_000}),
        ("tx value is too big", {"value": 1}),
    ):
        assert told() == words
        fields |= mended
    assert told() == "ed25519: invalid signature"
    signs.add("sender")
    assert told() == "guardian address or signature not expected"
    fields["guardian"] = b""
    assert told() == "shard ID missmatch"
    fields["relayer"] = relayer.public
    assert told() == "inner transaction: ed25519: invalid signature"
    signs.add("relayer")
    assert told() == f"insufficient funds for address {encode(key.public)}"
    ledger.credit(key.public, NATIVE, EGLD)
    assert "veryHighNonceInTx: true" in told()
    fields["nonce"] = 0
    assert f"insufficient funds, for address: {encode(relayer.public)}" in told()
    fields["gas_price"] = 10**9
    ledger.set_guarding(key.public, guarded_by(wallet(1)))
    assert "not executable" in told()


def test_edges_of_the_rules_are_inside(funded: Any, wallet: Any) -> None:
    """The lowest gas, the hundredth nonce ahead and version 1 are all accepted."""
    key = wallet(0)
    funded.chain.submit(funded.tx(key, key.public, nonce=100))
    funded.chain.submit(funded.tx(key, key.public, version=1))
    funded.chain.submit(funded.tx(key, key.public, nonce=1, options=HASH_SIGNED))
    funded.rounds(funded.here)
    assert funded.chain.account(key.public).nonce == 2


def test_a_used_nonce_is_too_low(funded: Any, wallet: Any) -> None:
    """After its execution a transaction is not taken again."""
    tx = funded.tx(wallet(0), wallet(0, 1).public, 1)
    funded.chain.submit(tx)
    funded.rounds(funded.here)
    with pytest.raises(Refused, match="lowerNonceInTx: true"):
        funded.chain.submit(tx)


def test_any_changed_field_breaks_the_signature(funded: Any, wallet: Any) -> None:
    """Signature checks cover everything that matters."""
    tx = funded.tx(wallet(0), wallet(0, 1).public, 1)
    for change in (
        {"value": 2},
        {"receiver": wallet(1).public},
        {"gas_limit": 60_000},
        {"nonce": 1},
        {"signature": bytes(64)},
    ):
        with pytest.raises(Refused, match="invalid signature"):
            funded.chain.submit(msgspec.structs.replace(tx, **change))


def test_relayed_rules(funded: Any, wallet: Any) -> None:
    """Both relayer fields, the sender's shard, a valid co-signature, no relayed call inside."""
    key = wallet(0)
    good = funded.tx(key, wallet(0, 1).public, 1, relayed=True)
    with pytest.raises(Refused, match="invalid relayed transaction"):
        funded.chain.submit(msgspec.structs.replace(good, relayer_signature=b""))
    with pytest.raises(Refused, match="invalid signature"):
        funded.chain.submit(msgspec.structs.replace(good, relayer_signature=bytes(64)))
    foreign = msgspec.structs.replace(good, relayer=wallet(1).public)
    foreign = msgspec.structs.replace(foreign, signature=key.sign(signing_message(foreign)))
    with pytest.raises(Refused, match="shard ID missmatch"):
        funded.chain.submit(foreign)
    with pytest.raises(Refused, match="recursive relayed tx"):
        funded.chain.submit(funded.tx(key, key.public, 0, b"relayedTx@00", relayed=True))
    funded.chain.submit(good)


def test_an_unknown_sender_needs_a_relayer(bench: Any, wallet: Any) -> None:
    """An account that does not exist yet can send what is worth nothing, if a relayer pays."""
    key = wallet(2, 3)
    with pytest.raises(Refused, match="insufficient funds"):
        bench.chain.submit(bench.tx(key, key.public))
    tx_hash = bench.chain.submit(bench.tx(key, key.public, relayed=True))
    bench.rounds(bench.here)
    assert bench.status(tx_hash)[0] == "success" and bench.chain.account(key.public).nonce == 1


def guarded_by(key: KeyPair) -> Guarding:
    """An account's guardian, who counts."""
    return Guarding((Guardian(key.public, 0, b"tests"),), on=True)


def test_guarded_accounts_need_their_guardian(funded: Any, wallet: Any) -> None:
    """Only the active guardian's signature makes a guarded account's transaction acceptable."""
    key, guardian, other = wallet(0), wallet(1, 1), wallet(1, 2)
    funded.chain.ledger_of(key.public).set_guarding(key.public, guarded_by(guardian))
    with pytest.raises(Refused, match="not executable"):
        funded.chain.submit(funded.tx(key, key.public))
    for signer, accepted in ((other, False), (guardian, True)):
        tx = funded.tx(key, key.public, guardian=signer.public, options=GUARDED, gas_limit=100_000)
        tx = msgspec.structs.replace(tx, guardian_signature=signer.sign(signing_message(tx)))
        if accepted:
            tx_hash = funded.chain.submit(tx)
        else:
            with pytest.raises(Refused, match="not executable"):
                funded.chain.submit(tx)
        with pytest.raises(Refused, match="guardian signature"):
            funded.chain.submit(msgspec.structs.replace(tx, guardian_signature=bytes(64), nonce=tx.nonce))
    funded.rounds(funded.here)
    assert funded.status(tx_hash)[0] == "success"


def test_a_guarded_relayer_pays_for_nobody(funded: Any, wallet: Any) -> None:
    """A relayer whose account is guarded is refused at admission, and at execution if it was guarded meanwhile."""
    relayer = funded.relayers[0]
    waiting = funded.chain.submit(funded.tx(wallet(0), wallet(0, 1).public, 1, relayed=True))
    funded.chain.ledger_of(relayer.public).set_guarding(relayer.public, guarded_by(wallet(1)))
    with pytest.raises(Refused, match="guarded relayer not allowed"):
        funded.chain.submit(funded.tx(wallet(0), wallet(0, 1).public, 1, relayed=True, nonce=1))
    funded.rounds(funded.here)
    assert funded.chain.account(wallet(0).public).nonce == 0
    assert funded.status(waiting)[0] == "fail" or funded.chain.index.find(waiting) is None
