"""`policy explain` says what the relayer would say."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from relayer_support import NETWORK, RELAYERS, raw, transfer, wallet

from millrace.relayer.command import policy
from millrace.relayer.explain import explain
from millrace.relayer.policy import Policy, loads
from millrace.relayer.stages import Relayers

ALICE = wallet(1)
OURS = Relayers({shard: pair.public for shard, pair in RELAYERS.items()})


def test_all_steps_of_a_good_transaction() -> None:
    """Every step passes and says what it compared."""
    steps = list(explain(bytes(raw(transfer(ALICE))), Policy(), NETWORK, OURS))
    assert all(step.passed for step in steps)
    assert [step.name for step in steps][:5] == ["parse", "authenticate", "caps", "gas price", "lists"]
    assert "100000000000000" in steps[2].text


def test_the_first_failing_step_is_the_last() -> None:
    """A refusal ends the list with its reason."""
    rules = loads("[caps]\nfee = 1")
    last = list(explain(bytes(raw(transfer(ALICE))), rules, NETWORK, OURS))[-1]
    assert not last.passed and last.text.startswith("fee too high")
    last = list(explain(bytes(raw(transfer(ALICE))), loads("[budget]\nper_day = 1"), NETWORK))[-1]
    assert not last.passed and last.name == "budget per day"
    (only,) = explain(b"nonsense", Policy(), NETWORK)
    assert not only.passed


def test_command(tmp_path: Path) -> None:
    """The command prints the steps and ends with 0 or 1."""
    file = tmp_path / "tx.json"
    file.write_bytes(bytes(raw(transfer(ALICE))))
    arguments = ["explain", str(file), "--chain-id", NETWORK.chain_id]
    good = CliRunner().invoke(policy, arguments)
    assert good.exit_code == 0 and "it would be sponsored" in good.output
    rules = tmp_path / "policy.toml"
    rules.write_text("paused_shards = [1]")
    bad = CliRunner().invoke(policy, [*arguments, "--policy-file", str(rules)])
    assert bad.exit_code == 1 and "shard paused" in bad.output
    rules.write_text("[caps]\nx = 1")
    broken = CliRunner().invoke(policy, [*arguments, "--policy-file", str(rules)])
    assert broken.exit_code == 1 and "Error" in broken.output
