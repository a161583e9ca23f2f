"""The policy file: what is no policy is refused with the entry's name and what to write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from relayer_support import NETWORK, RELAYERS, as_json, transfer, wallet, write_keys

from millrace import cli
from millrace.chain.fees import initially_paid_fee
from millrace.relayer.policy import SHARDS, Caps, Policy, PolicyError, PolicyFile, check_caps, loads
from millrace.relayer.reasons import Refused

TX = transfer(wallet(1), data=b"12345", value=7, gas_limit=150_000)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[cap]\nfee = 5", ["no `cap`", "did you mean `caps`"]),
        ("[caps]\nfees = 5", ["[caps]", "no `fees`", "did you mean `fee`"]),
        ("[caps]\nxyz = 5", ["no `xyz`", "there are gas_price, "]),
        ("fee = 5", ["no `fee`", "caps"]),
        ("[caps]\nfee = 0.05", ["caps.fee", "`float`", "whole numbers of atomic units"]),
        ('[caps]\nfee = "5 EGLD"', ["caps.fee", "`str`", "atomic units"]),
        ("[caps]\nfee = true", ["caps.fee", "`bool`"]),
        ("[caps]\nfee = -1", ["caps.fee", "negative"]),
        ("caps = 5", ["caps"]),
        ('[lists]\nallow_functions = "swap"', ["lists.allow_functions", '["…"']),
        ('[lists]\nallow_receivers = ["erd1abc"]', ["lists.allow_receivers", "'erd1abc'", "58 further"]),
        ("[quotas]\nfirst_ban_seconds = nan", ["quotas.first_ban_seconds", "no number"]),
        ("[quotas]\nlongest_ban_seconds = inf", ["quotas.longest_ban_seconds"]),
        ("[quotas]\nfirst_ban_seconds = 1e300", ["quotas.first_ban_seconds", "ten years"]),
        ("[budget]\nper_day = 0x" + "f" * 5_000, ["budget.per_day", "10^30"]),
        (f"[caps]\nvalue = {10**30 + 1}", ["caps.value", "10^30"]),
        ("[budget]\nper_day = 1" + "0" * 5_000, ["thousands of digits"]),
        ("lists = " + "[" * 5_000, ["nested too deeply"]),
        ("[quotas]\nfailures = 0", ["quotas.failures", "at least 1"]),
        ("[quotas]\ncall_failure_percent = 0", ["quotas.call_failure_percent", "1 to 100"]),
        ("paused_shards = [3]", ["paused_shards", "no shard 3"]),
        ("paused_shards = [-1]", ["paused_shards"]),
        ("paused_shards = 1", ["paused_shards", '["…"']),
        ("[caps]\nfee = 1\nfee = 2", ["overwrite"]),
        ("[caps\nfee = 1", ["line 1"]),
    ],
)
def test_what_is_no_policy(tmp_path: Path, text: str, words: list[str]) -> None:
    """A wrong entry is named, with what it may be meant to be, and the file it stands in."""
    with pytest.raises(PolicyError) as error:
        loads(text)
    assert all(word in str(error.value) for word in words), str(error.value)
    file = tmp_path / "policy.toml"
    file.write_text(text)
    with pytest.raises(PolicyError, match=r"policy\.toml"):
        PolicyFile(str(file)).refresh()


def test_what_is_a_policy(tmp_path: Path) -> None:
    """Amounts may be texts, and the file may begin with the mark some editors write."""
    file = tmp_path / "policy.toml"
    file.write_bytes(b'\xef\xbb\xbf[caps]\nfee = "12345678901234567"\n[lists]\nallow_functions = [""]\n')
    rules = PolicyFile(str(file))
    assert rules.refresh() and rules.policy.caps.fee == 12345678901234567
    assert loads("") == Policy() and NETWORK.shards == SHARDS
    assert loads(f"[caps]\nvalue = {10**30}\nfee = 0").caps == Caps(value=10**30, fee=0)


def test_explaining_with_a_policy_that_is_none(tmp_path: Path) -> None:
    """The command says which file and which entry, or that there is no such file, and shows no traceback."""
    transaction = tmp_path / "tx.json"
    transaction.write_text(json.dumps(as_json(transfer(wallet(1)))))
    (tmp_path / "bad.toml").write_text("[caps]\nfees = 1")
    for name, words in (("bad.toml", "did you mean `fee`"), ("none.toml", "cannot be read")):
        options = ["--set", f"policy_file={tmp_path / name}", "--set", "chain_id=local"]
        result = CliRunner().invoke(cli.main, ["policy", "explain", str(transaction), *options])
        assert result.exit_code == 1 and name in result.output and words in result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)


def test_row_1_explaining_with_the_keys_of_the_settings(tmp_path: Path) -> None:
    """The command knows by the key files whom the relayer signs for, and reads no secret for that."""
    files = write_keys(tmp_path)
    for file in files:
        Path(file).write_text(Path(file).read_text().splitlines()[0])
    options = ["--set", f"key_files={json.dumps(files)}", "--set", "chain_id=local"]
    alice = wallet(1)
    for tx, words in (
        (transfer(alice), "The relayer would sponsor it."),
        (transfer(alice, receiver=RELAYERS[2].public), "relayer key not allowed"),
        (transfer(RELAYERS[1]), "relayer key not allowed"),
        (transfer(alice, relayer=wallet(1, 9).public), "invalid relayer address"),
    ):
        transaction = tmp_path / "tx.json"
        transaction.write_text(json.dumps(as_json(tx)))
        result = CliRunner().invoke(cli.main, ["policy", "explain", str(transaction), *options])
        assert words in result.output and result.exit_code == ("would sponsor" not in words), result.output


@pytest.mark.parametrize(
    ("cap", "value", "reason"),
    [
        ("gas_price", TX.gas_price, "gas price too high"),
        ("gas_limit", TX.gas_limit, "gas limit too high"),
        ("data_bytes", len(TX.data), "data too large"),
        ("value", TX.value, "value too high"),
        ("fee", initially_paid_fee(TX, NETWORK.gas), "fee too high"),
    ],
)
def test_row_3_and_row_4_each_cap_holds_to_the_unit(cap: str, value: int, reason: str) -> None:
    """A transaction exactly at a cap is sponsored, at its worst-case fee; one unit above it is refused."""
    assert check_caps(TX, Policy(caps=Caps(**{cap: value})), NETWORK) == initially_paid_fee(TX, NETWORK.gas)
    with pytest.raises(Refused, match=reason):
        check_caps(TX, Policy(caps=Caps(**{cap: value - 1})), NETWORK)
