"""Shards of addresses under both rules, for every last byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.chain.address import ESDT_SYSTEM_CONTRACT, SYSTEM_ACCOUNT, ZERO, contract_address, is_contract
from millrace.chain.network import profile
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


def test_the_rules_disagree_for_most_addresses() -> None:
    """The two rules differ for 169 of the 256 last bytes, and agree exactly for 0, 1, 2 and 7 modulo 12."""
    agree = {last for last in range(256) if shard_by_mask(b"\x11" * 31 + bytes((last,))) == last % 3}
    assert len(agree) == 256 - 169
    assert agree == {last for last in range(256) if last % 12 in (0, 1, 2, 7)}


@given(st.binary(min_size=32, max_size=32), st.integers(1, 16))
def test_every_address_has_a_shard(pubkey: bytes, shards: int) -> None:
    """Any address lands in one of the shards; only the mask rule knows the metachain."""
    assert 0 <= shard_by_modulo(pubkey, shards) < shards
    by_mask = shard_by_mask(pubkey, shards)
    assert 0 <= by_mask < shards or by_mask == METACHAIN


@given(st.binary(min_size=32, max_size=32), st.integers(0, 2**64 - 1))
def test_a_contract_lives_with_its_deployer(deployer: bytes, nonce: int) -> None:
    """A contract's address is in its deployer's shard under both rules."""
    contract = contract_address(deployer, nonce)
    assert shard_by_modulo(contract) == shard_by_modulo(deployer)
    assert shard_by_mask(contract) == shard_by_mask(b"\x11" * 30 + deployer[-2:])


@given(st.binary(min_size=32, max_size=32).filter(lambda pubkey: any(pubkey[:8])))
def test_sixteen_shards(pubkey: bytes) -> None:
    """Of sixteen shards an account's is the low half of its last byte under both rules, and each has its own topics."""
    networks = [profile(name, shards=16) for name in ("documented", "mainnet")]
    assert {network.shard_of(pubkey) for network in networks} == {pubkey[-1] & 0x0F}
    for network in networks:
        topics = [topic for shard in range(16) for topic in network.transactions_topics(shard)]
        assert len(set(topics)) == len(topics) == (16 * 16 if network.name == "documented" else 16)
