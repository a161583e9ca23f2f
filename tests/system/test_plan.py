"""What the system is started with: one chain id, whatever network its rules are of."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.chain.network import PROFILES
from millrace.localnet.settings import LocalnetSettings
from millrace.relayer.settings import RelayerSettings
from millrace.system.plan import Plan, Ports, relayer_keys, services, wallet_in_shard


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_the_chain_id_is_local_under_any_profile(tmp_path: Path, name: str) -> None:
    """Nothing that a demonstration signs is valid on a public network; shard rule and topics are the profile's."""
    plan = Plan(Ports(), tmp_path, profile=name)
    assert plan.network.chain_id == "local"
    assert (plan.network.shard_rule, plan.network.topic_scheme) == (
        PROFILES[name].shard_rule,
        PROFILES[name].topic_scheme,
    )
    by_name = {service.name: service.settings for service in services(plan)}
    assert {settings["chain_id"] for settings in by_name.values() if "chain_id" in settings} == {"local"}
    assert {"localnet", "relayer", "aggregator"} == {name for name in by_name if "chain_id" in by_name[name]}
    for made in (
        LocalnetSettings(profile=name, chain_id="local").network(),
        RelayerSettings(profile=name, chain_id="local").network(),
    ):
        assert made == plan.network
    assert {by_name[service]["profile"] for service in ("localnet", "relayer")} == {name}


def test_keys_of_another_profile_are_other_keys(tmp_path: Path) -> None:
    """One data folder may be used under both shard rules: each finds its keys in their shards, and none is lost."""
    plans = [Plan(Ports(), tmp_path, profile=name) for name in ("documented", "mainnet")]
    keys = [relayer_keys(plan) for plan in plans]
    for plan, own in zip(plans, keys, strict=True):
        assert [plan.network.shard_of(key.public) for key in own.values()] == [0, 1, 2]
        assert {key.public for key in relayer_keys(plan).values()} == {key.public for key in own.values()}
        assert all(plan.network.shard_of(wallet_in_shard(shard, plan.network).public) == shard for shard in range(3))


def test_an_unknown_profile_is_refused(tmp_path: Path) -> None:
    """With the names that there are."""
    with pytest.raises(ValueError, match="unknown network profile 'nowhere'; known are"):
        services(Plan(Ports(), tmp_path, profile="nowhere"))
