"""Network profiles: topics, chain ids, single overrides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millrace.chain.address import ESDT_SYSTEM_CONTRACT
from millrace.chain.fees import GasSchedule
from millrace.chain.network import PROFILES, communication_identifier, profile
from millrace.chain.shard import METACHAIN

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "sharding.json").read_text())


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


@pytest.mark.parametrize("row", VECTORS["table"], ids=lambda row: str(row["lastByte"]))
def test_profiles_follow_their_rule(row: dict[str, int]) -> None:
    """The documented profile takes the remainder, every live one the mask."""
    pubkey = b"\x11" * 31 + bytes((row["lastByte"],))
    assert PROFILES["documented"].shard_of(pubkey) == row["mod3"]
    assert {PROFILES[name].shard_of(pubkey) for name in ("mainnet", "devnet", "testnet")} == {row["userShard"]}


def test_one_property_at_a_time() -> None:
    """Shard rule, topic scheme, number of shards and gas can each be replaced without the others."""
    pubkey = b"\x11" * 31 + b"\x03"
    mixed = profile("documented", shard_rule="mask")
    assert (mixed.shard_of(pubkey), mixed.transactions_topic(1, 0)) == (1, "transactions_1_0")
    assert mixed.transactions_topics(0)[-1] == "transactions_0_META"
    assert mixed.shard_of(ESDT_SYSTEM_CONTRACT) == METACHAIN
    live = profile("documented", topic_scheme="live")
    assert (live.shard_of(pubkey), live.transactions_topic(1, 0)) == (0, "transactions_1")
    assert live.transactions_topic(METACHAIN, 0) == "transactions_META"
    assert profile("mainnet", shards=5).shard_of(pubkey) == 3
    assert profile("mainnet", gas=GasSchedule(min_gas_limit=1)).gas.min_gas_limit == 1
    assert PROFILES["documented"] == profile("documented")


def test_a_deployment_runs_where_its_sender_lives() -> None:
    """A transaction to the zero address counts to its sender's shard, as a node's coordinator puts it."""
    live = profile("mainnet")
    sender = b"\x11" * 31 + b"\x02"
    assert live.shard_of(sender) == 2
    vectors = json.loads((Path(__file__).parents[1] / "vectors" / "sharding.json").read_text())["special"]
    assert live.receiver_shard_of(bytes(32), sender) == vectors["zero*32 (coordinator self=2)"]
    assert live.receiver_shard_of(sender, bytes(32)) == 2
