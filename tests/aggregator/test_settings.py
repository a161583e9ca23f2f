"""Settings that decide what a transaction may take: read from anywhere, refused where they make no sense."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from millrace.aggregator.settings import AggregatorSettings
from millrace.routing.costs import ROWS, Cost
from millrace.runtime.settings import SettingsError, load


def test_the_limits_are_the_networks_less_a_margin() -> None:
    """No plan may come to the very limit of built-in calls, transfers or reads; gas has its margin in the estimate."""
    most = AggregatorSettings().most()
    network = Cost(most.legs, 100, 250, 1_500, 600_000_000)
    assert most.within(network)
    assert most.calls < 100
    assert most.transfers < 250
    assert most.reads < 1_500


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_gas": 0}, "max_gas: expected 1 to 600000000, got 0"),
        ({"max_gas": 600_000_001}, "max_gas: expected 1 to 600000000, got 600000001"),
        ({"max_builtin_calls": 101}, "max_builtin_calls: expected 1 to 100, got 101"),
        ({"max_transfers": 251}, "max_transfers: expected 1 to 250, got 251"),
        ({"max_storage_reads": 1501}, "max_storage_reads: expected 1 to 1500, got 1501"),
        ({"referrals": {"7": (5_000, 5_001)}}, "referrals: the fees of 7 must be from 0 and together at most 10000"),
        ({"gas_per_read": -1}, "gas_per_read: expected 0 to 1000000, got -1"),
        ({"max_gas": 5_000_000}, "the limits of a transaction leave nothing for pools"),
        ({"max_builtin_calls": 4}, "the limits of a transaction leave nothing for pools"),
        ({"costs": {"base": {"gas": 600_000_000}}}, "the limits of a transaction leave nothing for pools"),
        ({"costs": {"onedex": {"price": 1}}}, "costs.onedex: there is no column 'price'"),
        ({"costs": {"uniswap_swap": {"gas": 1}}}, "costs: there is no row 'uniswap_swap'"),
        ({"pools_url": ""}, "pools_url: is no address, as it begins with neither http:// nor https://; expected http"),
        ({"pools_url": "127.0.0.1:8500/pools"}, "pools_url: is no address, as it begins with neither"),
        ({"pools_url": "ftp://me:secret@host/pools"}, "pools_url: is no address, as it begins with neither"),
        ({"pools_url": "http://"}, "pools_url: is no address, as it names no host"),
        ({"pools_url": "http://a..b/pools"}, "pools_url: is no address, as it names no host"),
        ({"pools_url": "http://host:port/pools"}, "pools_url: is no address, as its port is no number"),
        ({"pools_url": "http://host:85000/pools"}, "pools_url: is no address, as its port is no number"),
        ({"pools_url": "http://host:0/pools"}, "pools_url: is no address, as its port is 0"),
        ({"pools_url": "http://[::1/pools"}, "pools_url: is no address, as it cannot be read"),
        ({"pools_url": "http://two hosts/pools"}, "pools_url: is no address, as there is a space in it"),
        ({"gateway": "gateway.multiversx.com"}, "gateway: is no address"),
        ({"chain_api_url": "api.multiversx.com"}, "chain_api_url: is no address"),
        ({"contract": "erd1qqq"}, "contract: "),
        ({"contract": ""}, "contract: "),
        (
            {"referrals": {"007": (1, 2)}},
            "referrals: '007' is no id: expected a whole number from 1 to 184467440737095516",
        ),
        ({"referrals": {"٣": (1, 2)}}, "referrals: '٣' is no id"),
        ({"referrals": {"None": (1, 2)}}, "referrals: 'None' is no id"),
        ({"referrals": {"0": (1, 2)}}, "referrals: '0' is no id"),
        ({"referrals": {str(1 << 64): (1, 2)}}, "referrals: '18446744073709551616' is no id"),
        ({"default_slippage": "1"}, "default_slippage: expected a fraction from 0 to below 1, got '1'"),
        ({"default_slippage": "0.5%"}, "default_slippage: expected a fraction from 0 to below 1"),
    ],
)
def test_limits_that_make_no_sense_are_refused_by_name(change: dict[str, Any], words: str) -> None:
    """The service does not start with them."""
    with pytest.raises(ValueError, match=f"^{re.escape(words)}"):
        AggregatorSettings(**change)


def test_costs_come_from_a_file_or_the_environment(tmp_path: Path) -> None:
    """A table of the file and JSON in the environment mean the same; a wrong row is named with its service."""
    file = tmp_path / "millrace.toml"
    file.write_text("[aggregator.costs.onedex_swap]\ngas = 8000000\ncalls = 6\n")
    by_file = load("aggregator", AggregatorSettings, file=file, env={})
    text = '{"onedex_swap": {"gas": 8000000, "calls": 6}}'
    by_environment = load("aggregator", AggregatorSettings, env={"MILLRACE_AGGREGATOR__COSTS": text})
    assert by_file.costs == by_environment.costs
    assert by_file.table().rows["onedex_swap"].gas == 8_000_000
    assert by_file.table().rows["jex_swap"] == ROWS["jex_swap"]
    file.write_text("[aggregator.costs.onedex_swop]\ngas = 8000000\n")
    with pytest.raises(SettingsError, match=r"settings of aggregator: .*there is no row 'onedex_swop'"):
        load("aggregator", AggregatorSettings, file=file, env={})
