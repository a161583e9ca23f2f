"""Shards and topics under both rules, for every last byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millrace.chain.address import ESDT_SYSTEM_CONTRACT, SYSTEM_ACCOUNT, ZERO, is_contract
from millrace.chain.network import PROFILES, communication_identifier, profile
from millrace.chain.shard import METACHAIN, shard_by_mask, shard_by_modulo

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "sharding.json").read_text())


@pytest.mark.parametrize("row", VECTORS["table"], ids=lambda row: str(row["lastByte"]))
def test_every_last_byte(row: dict[str, int]) -> None:
    """Both rules put users, contracts and the system contracts' prefix where the reference puts them."""
    last = bytes((row["lastByte"],))
    user, contract = b"\x11" * 31 + last, bytes(8) + b"\x05\x00" + b"\x11" * 21 + last
    assert shard_by_modulo(user) == row["mod3"]
    assert shard_by_mask(user) == row["userShard"]
    assert shard_by_mask(contract) == row["contractShard"]
    assert shard_by_mask(ESDT_SYSTEM_CONTRACT[:31] + last) == row["systemContractPrefixShard"]


def test_special_addresses() -> None:
    """System account, zero address and system contract, and other numbers of shards, follow the reference."""
    special = VECTORS["special"]
    assert shard_by_mask(ESDT_SYSTEM_CONTRACT) == special["ESDT system SC"] == METACHAIN
    assert shard_by_mask(SYSTEM_ACCOUNT) == special["systemAccount ff*32"]
    assert shard_by_mask(ZERO) == special["zero*32 (ComputeShardID)"]
    for shards in range(1, 6):
        assert shard_by_mask(b"\x11" * 31 + b"\x07", shards) == special[f"numShards={shards} lastByte=7"]


def test_contracts_are_told_by_eight_zero_bytes() -> None:
    """Eight leading zero bytes make a contract, seven do not, the zero address is one."""
    assert [is_contract(bytes(7) + b"\1" * 25), is_contract(bytes(8) + b"\1" * 24), is_contract(ZERO)] == [
        VECTORS["scCheck"][name] for name in ("7zero", "8zero", "zero")
    ]


@pytest.mark.parametrize("pair", VECTORS["topics"])
def test_live_topics(pair: str) -> None:
    """The live suffix between any two shards, metachain and all included, is the reference's."""
    first, second = (int(shard) for shard in pair.split(","))
    assert "transactions" + communication_identifier(first, second) == VECTORS["topics"][pair]


def test_documented_topics_name_both_shards() -> None:
    """The documented profile has one topic per pair of shards; a live one has one per sender's shard."""
    documented, live = PROFILES["documented"], PROFILES["mainnet"]
    assert [documented.transactions_topic(s, r) for s in (0, 2) for r in (0, 2)] == [
        "transactions_0_0",
        "transactions_0_2",
        "transactions_2_0",
        "transactions_2_2",
    ]
    assert documented.transactions_topics(1) == ("transactions_1_0", "transactions_1_1", "transactions_1_2")
    assert {live.transactions_topic(1, receiver) for receiver in range(3)} == {"transactions_1"}
    assert live.transactions_topics(1) == ("transactions_1",)
    assert live.heartbeat_topic(METACHAIN) == "heartbeatV2_META"


@pytest.mark.parametrize(
    ("name", "chain_id", "rule"),
    [("documented", "1", "modulo"), ("mainnet", "1", "mask"), ("devnet", "D", "mask"), ("testnet", "T", "mask")],
)
def test_profiles(name: str, chain_id: str, rule: str) -> None:
    """Each named profile has its chain id and shard rule, and any property can be replaced alone."""
    assert (profile(name).chain_id, profile(name).shard_rule) == (chain_id, rule)
    local = profile(name, chain_id="local")
    assert (local.chain_id, local.shard_rule) == ("local", rule)


def test_unknown_profiles_are_named() -> None:
    """An unknown profile is refused with the list of known ones."""
    with pytest.raises(ValueError, match="documented, mainnet, devnet, testnet"):
        profile("moonnet")
