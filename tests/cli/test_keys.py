"""`millrace keys`: wallets of every form, made, shown and checked."""

from __future__ import annotations

from pathlib import Path

import multiversx_sdk as sdk
import pytest
from click.testing import CliRunner

from millrace.cli import main
from millrace_client import Wallet


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["keys", *arguments])
    return result.exit_code, result.output


@pytest.mark.parametrize("form", ["keystore", "pem", "mnemonic"])
def test_a_new_key(tmp_path: Path, form: str) -> None:
    """A new key is only its owner's to read, shows the address it was made with, and passes its check."""
    file, password = tmp_path / "key", tmp_path / "password"
    password.write_text("a word of mine\n")
    common = ("--password-file", str(password))
    code, made = run("new", str(file), "--form", form, *common)
    assert code == 0, made
    assert file.stat().st_mode & 0o777 == 0o600
    code, shown = run("show", str(file), *common)
    assert code == 0 and made.strip() in shown
    code, checked = run("check", str(file), *common)
    assert code == 0 and "yours alone" in checked
    if form == "keystore":
        assert sdk.Account.new_from_keystore(file, "a word of mine").address.to_bech32() == made.strip()
    assert run("new", str(file), *common) == (
        1,
        f"Error: {file} exists: a key is never overwritten; name another file\n",
    )


def test_a_key_in_a_shard(tmp_path: Path) -> None:
    """A key can be made for a shard, as relayers need it."""
    for shard in range(3):
        file = tmp_path / f"{shard}.pem"
        assert run("new", str(file), "--form", "pem", "--shard", str(shard))[0] == 0
        assert f"shard       {shard}\n" in run("show", str(file))[1]


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    """Files that others may read, that hold no key or are not there end with 1 and what to do."""
    file = tmp_path / "w.pem"
    file.write_text(Wallet.generate().to_pem())
    file.chmod(0o644)
    code, said = run("check", str(file))
    assert code == 1 and "chmod 600" in said
    file.write_text("three blind mice")
    assert run("check", str(file))[0] == 1
    assert "cannot be read" in run("show", str(tmp_path / "none"))[1]


def test_a_wrong_password(tmp_path: Path) -> None:
    """A password that is asked for and wrong ends with 1; it is not echoed."""
    file = tmp_path / "w.json"
    file.write_text(Wallet.generate().to_keystore("right"))
    result = CliRunner().invoke(main, ["keys", "show", str(file)], input="wrong\n")
    assert result.exit_code == 1
    assert "password is wrong" in result.output and "wrong\n" not in result.output.replace("is wrong\n", "")
