"""The policy file: what is no policy is refused with the entry's name and what to write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from relayer_support import NETWORK, RELAYERS, as_json, transfer, wallet, write_keys

from millrace import cli
from millrace.chain import address
from millrace.chain.call import CallError
from millrace.chain.fees import initially_paid_fee
from millrace.chain.transaction import Transaction
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.rules.policy import (
    SHARDS,
    Caps,
    Lists,
    Person,
    Policy,
    PolicyError,
    Target,
    check_caps,
    check_gas_price,
    check_lists,
    gas_price_cap,
    loads,
    name_of,
    target_of,
)
from millrace.relayer.rules.policy_file import PolicyFile

TX = transfer(wallet(1), data=b"12345", value=7, gas_limit=150_000)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[cap]\nfee = 5", ["no `cap`", "did you mean `caps`"]),
        ("[caps]\nfees = 5", ["[caps]", "no `fees`", "did you mean `fee`"]),
        ("[caps]\nxyz = 5", ["no `xyz`", "there are gas_price, "]),
        ("fee = 5", ["no `fee`", "caps"]),
        ("[caps]\nfee = 0.05", ["caps.fee: 0.05", "whole numbers of atomic units"]),
        ('[caps]\nfee = "5 EGLD"', ["caps.fee: '5 EGLD'", "atomic units"]),
        ("[caps]\nfee = 9007199254740993.0", ["caps.fee", "no whole number"]),
        ('[caps]\nfee = "9007199254740993.0"', ["caps.fee", "no whole number"]),
        ('[caps]\nfee = "1e16"', ["caps.fee", "no whole number"]),
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
        ("[quotas]\ncall_failure_percent = 101", ["quotas.call_failure_percent", "1 to 100"]),
        ("paused_shards = [3]", ["paused_shards", "no shard 3"]),
        ("paused_shards = [-1]", ["paused_shards"]),
        ("paused_shards = 1", ["paused_shards", '["…"']),
        ('[people.""]\nkeys = []', ["people: ''", "1 to 64"]),
        ('[people."  "]\nkeys = []', ["people: '  '", "1 to 64"]),
        ('[people."a\\u0000"]\nkeys = []', ["people: 'a\\x00'", "printable"]),
        (f"[people.{'a' * 65}]\nkeys = []", ["people: ", "1 to 64"]),
        ('[programmes.""]\nbudget = 1', ["programmes.: ", "at most 64"]),
        ('[lists]\ndeny_senders = [""]', ["lists.deny_senders: ''"]),
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


@pytest.mark.parametrize(
    ("p90", "cap"),
    [(None, 20), (0, 20), (9, 20), (10, 20), (11, 22), (33, 66), (49, 98), (50, 100), (51, 100), (10**30, 100)],
)
def test_row_3_the_gas_price_follows_what_others_pay(p90: int | None, cap: int) -> None:
    """Twice what nine in ten pay is sponsored, never less than the floor nor more than the cap; to the unit."""
    caps = Caps(gas_price=100, gas_price_floor=20, gas_price_percent_of_p90=200)
    assert gas_price_cap(caps, p90) == cap
    check_gas_price(transfer(wallet(1), gas_price=cap), Policy(caps=caps), p90)
    with pytest.raises(Refused, match="gas price too high"):
        check_gas_price(transfer(wallet(1), gas_price=cap + 1), Policy(caps=caps), p90)


BOB, EVE, SWAP = wallet(1, 1), wallet(1, 2).public, b"\0" * 8 + b"\5\0" + b"swap" * 5 + b"\0\1"
TOKEN = b"@" + b"TOK-123456".hex().encode()
PLAIN = transfer(BOB, receiver=EVE)
CALL = transfer(BOB, receiver=SWAP, data=b"buy@01")
TOKENS = transfer(BOB, receiver=SWAP, data=b"ESDTTransfer" + TOKEN + b"@05@" + b"buy".hex().encode())
TO_ONESELF = b"MultiESDTNFTTransfer@" + SWAP.hex().encode() + b"@01" + TOKEN + b"@@05@" + b"buy".hex().encode()
NFT = transfer(
    BOB,
    receiver=BOB.public,
    data=b"ESDTNFTTransfer" + TOKEN + b"@02@05@" + SWAP.hex().encode() + b"@" + b"buy".hex().encode(),
)
MANY = transfer(BOB, receiver=BOB.public, data=TO_ONESELF)


def names(*keys: bytes) -> tuple[str, ...]:
    return tuple(address.encode(key) for key in keys)


@pytest.mark.parametrize("tx", [PLAIN, CALL, TOKENS, NFT, MANY], ids=["plain", "call", "tokens", "nft", "many"])
def test_lists_of_senders(tx: Transaction) -> None:
    """A list of senders is of who signs; to deny wins over to allow, and what is not allowed is refused."""
    for lists in (Lists(allow_senders=names(EVE)), Lists(deny_senders=names(BOB.public))):
        with pytest.raises(Refused, match="sender not allowed"):
            check_lists(tx, target_of(tx), lists)
    both = Lists(allow_senders=names(BOB.public), deny_senders=names(BOB.public))
    with pytest.raises(Refused, match="sender not allowed"):
        check_lists(tx, target_of(tx), both)
    check_lists(tx, target_of(tx), Lists(allow_senders=names(EVE, BOB.public), deny_senders=names(EVE)))


@pytest.mark.parametrize(
    ("tx", "receiver"),
    [(PLAIN, EVE), (CALL, SWAP), (TOKENS, SWAP), (NFT, SWAP), (MANY, SWAP)],
    ids=["plain", "call", "tokens", "nft", "many"],
)
def test_row_15_lists_of_receivers(tx: Transaction, receiver: bytes) -> None:
    """A list of receivers is of who really receives, also where tokens are sent to oneself with a target inside."""
    other = wallet(1, 3).public
    for lists in (Lists(allow_receivers=names(other)), Lists(deny_receivers=names(receiver))):
        with pytest.raises(Refused, match="receiver not allowed"):
            check_lists(tx, target_of(tx), lists)
    check_lists(tx, target_of(tx), Lists(allow_receivers=names(receiver), deny_receivers=names(other)))


def test_row_15_a_transfer_to_oneself_has_oneself_as_receiver() -> None:
    """Whoever may not receive may not send to itself either; a receiver named outside counts beside the one inside."""
    own = transfer(BOB, receiver=BOB.public)
    with pytest.raises(Refused, match="receiver not allowed"):
        check_lists(own, target_of(own), Lists(deny_receivers=names(BOB.public)))
    odd = Target(SWAP, "buy")  # a target inside what was sent to somebody else
    with pytest.raises(Refused, match="receiver not allowed"):
        check_lists(PLAIN, odd, Lists(deny_receivers=names(EVE)))
    with pytest.raises(Refused, match="receiver not allowed"):
        check_lists(PLAIN, odd, Lists(allow_receivers=names(EVE)))


@pytest.mark.parametrize(("tx", "function"), [(PLAIN, ""), (CALL, "buy"), (TOKENS, "buy"), (NFT, "buy"), (MANY, "buy")])
def test_row_15_lists_of_functions_and_contracts(tx: Transaction, function: str) -> None:
    """Functions are those the contract runs; contracts are listed apart, and say nothing of plain transfers."""
    for lists in (Lists(allow_functions=("sell",)), Lists(deny_functions=(function,))):
        with pytest.raises(Refused, match="function not allowed"):
            check_lists(tx, target_of(tx), lists)
    check_lists(tx, target_of(tx), Lists(allow_functions=(function,), deny_functions=("sell",)))
    check_lists(tx, target_of(tx), Lists(allow_contracts=names(SWAP)))
    others = Lists(allow_contracts=names(SWAP[:-3] + b"x\0\1"))
    if function:
        with pytest.raises(Refused, match="receiver not allowed"):
            check_lists(tx, target_of(tx), others)
    else:
        check_lists(tx, target_of(tx), others)


def test_row_15_what_cannot_be_read() -> None:
    """A call whose arguments are no hex is matched by its name; a token transfer that cannot be read is none at all."""
    burn = transfer(BOB, receiver=SWAP, data=b"burn@0")
    with pytest.raises(Refused, match="function not allowed"):
        check_lists(burn, target_of(burn), Lists(deny_functions=("burn",)))
    assert target_of(transfer(BOB, data=b"\xff\xfe@0")).function == "\ufffd\ufffd"
    for name in (b"ESDTTransfer", b"ESDTNFTTransfer", b"MultiESDTNFTTransfer"):
        with pytest.raises(CallError):
            target_of(transfer(BOB, data=name + b"@0"))


def test_a_paused_shard_alone_is_paused() -> None:
    """Of a shard whose key is paused nothing is sponsored; others go on."""
    with pytest.raises(Refused, match="shard paused"):
        check_caps(TX, Policy(paused_shards=(0, 1)), NETWORK)
    assert check_caps(TX, Policy(paused_shards=(0, 2)), NETWORK)


@pytest.mark.parametrize(
    "name", ["allow_receivers", "deny_receivers", "allow_contracts", "allow_senders", "deny_senders"]
)
def test_each_list_of_addresses_is_checked(name: str) -> None:
    """An address with a slip of the pen would protect nobody: its list and it are named."""
    good, bad = names(EVE)[0], names(EVE)[0][:-1] + ("q" if names(EVE)[0][-1] != "q" else "p")
    assert getattr(loads(f'[lists]\n{name} = ["{good}"]').lists, name) == (good,)
    with pytest.raises(PolicyError, match=rf"lists\.{name}: .*{bad}"):
        loads(f'[lists]\n{name} = ["{good}", "{bad}"]')


def test_an_api_key_of_any_bytes_is_looked_up() -> None:
    """A header may hold bytes that are no text: the key is wrong then, and nothing else."""
    assert name_of(b"\xff\xfe".decode("ascii", "surrogateescape"), {"a": Person()}) is None
