"""The command: help, settings, and the explanation of the policy."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from millrace.chain.keys import KeyPair
from millrace.chain.transaction import Transaction, signing_message, to_json
from millrace.cli import main

SERVICES = ["aggregator", "relayer", "notifier", "pools", "localnet", "console"]


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_shows_its_settings(service: str) -> None:
    """Each service prints the settings that would hold, a flag among them, and refuses a setting it does not know."""
    shown = CliRunner().invoke(main, [service, "--set", "port=1234", "--show-settings"])
    assert shown.exit_code == 0, shown.output
    assert "port = 1234" in shown.output
    refused = CliRunner().invoke(main, [service, "--set", "prot=1", "--show-settings"])
    assert refused.exit_code == 1
    assert "unknown setting 'prot'" in refused.output


def test_secrets_are_not_shown() -> None:
    """A secret among the settings is shown as present, not as what it is."""
    shown = CliRunner().invoke(main, ["notifier", "--set", 'node_secrets={"node":"hunter2"}', "--show-settings"])
    assert shown.exit_code == 0, shown.output
    assert "node_secrets = ***" in shown.output
    assert "hunter2" not in shown.output


def test_help_names_every_command() -> None:
    """The help lists all commands with a sentence each."""
    output = CliRunner().invoke(main, ["--help"]).output
    assert all(f"  {command} " in output for command in [*SERVICES, "demo", "up", "policy"])


def test_policy_explain(tmp_path: Path) -> None:
    """A transaction the policy allows is explained with exit code 0, one signed too early with 1 and its reason."""
    wallet = KeyPair.from_seed(b"\3" * 32)
    draft = Transaction(
        nonce=0, value=0, receiver=b"\1" * 32, sender=wallet.public, gas_price=10**9, gas_limit=200_000,
        chain_id="local", relayer=b"\2" * 31 + wallet.public[-1:],
    )  # fmt: skip
    file = tmp_path / "tx.json"
    signed = msgspec.structs.replace(draft, signature=wallet.sign(signing_message(draft)))
    file.write_bytes(msgspec.json.encode(to_json(signed)))
    good = CliRunner().invoke(main, ["policy", "explain", str(file), "--set", "chain_id=local"])
    assert good.exit_code == 0, good.output
    assert "The relayer would sponsor it." in good.output
    early = msgspec.structs.replace(draft, relayer=b"")
    file.write_bytes(
        msgspec.json.encode(to_json(msgspec.structs.replace(draft, signature=wallet.sign(signing_message(early)))))
    )
    bad = CliRunner().invoke(main, ["policy", "explain", str(file), "--set", "chain_id=local"])
    assert bad.exit_code == 1
    assert "invalid user signature" in bad.output
    other = CliRunner().invoke(main, ["policy", "explain", str(file)])
    assert "invalid chain id" in other.output
