"""Policy files: whatever is cut off one, what holds is never looser than the last good policy."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from millrace import cli
from millrace.relayer.journal.writer import JournalError
from millrace.relayer.rules import policy_file
from millrace.relayer.rules.policy import Policy, PolicyError, loads, name_of
from millrace.relayer.rules.policy_changes import changes, looser
from millrace.relayer.rules.policy_file import PolicyFile, checksum, seal

TEXT = """paused_shards = [2]
[caps]
fee = 10000000000000000
[budget]
per_minute = 10000000000000000  # 0.01 EGLD
floor_balance = 100000000000000000
[lists]
deny_senders = ["erd1qyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqsl6e0p7"]
allow_functions = ["", "swap"]
"""


def started(tmp_path: Path, text: str, kept: Path | None = None) -> tuple[Path, PolicyFile]:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    rules = PolicyFile(str(file), kept, keeps=kept is not None)
    rules.begin()
    return file, rules


@pytest.mark.parametrize("text", [seal(TEXT), TEXT], ids=["whole", "by hand"])
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "started again"])
def test_a_file_cut_at_any_byte_is_never_looser(tmp_path: Path, text: str, restarted: bool) -> None:
    """Emptied, cut in the middle of a line or between two: sender lists, budgets and pauses stay what they were."""
    kept = tmp_path / "data" / "kept.toml"
    file, rules = started(tmp_path, text, kept)
    good = loads(text)
    assert rules.policy == good
    for size in range(len(text)):
        file.write_bytes(text.encode()[:size])
        os.utime(file, ns=(size, size))
        if restarted:
            rules = PolicyFile(str(file), kept, keeps=True)
            rules.begin()
        else:
            try:
                rules.refresh()
            except PolicyError:
                assert rules.rejected
        assert not looser(good, rules.policy), text[:size]


def test_tables_that_are_lost_are_noticed(tmp_path: Path) -> None:
    """Without one of its tables a file is looser: it is named what is missing, and what to do."""
    file, rules = started(tmp_path, TEXT)
    file.write_text(TEXT.partition("[lists]")[0])
    with pytest.raises(PolicyError, match=r"looser in lists.allow_functions, lists.deny_senders.* policy apply"):
        rules.refresh()
    assert rules.policy == loads(TEXT) and "looser" in rules.rejected
    file.write_text(TEXT + "# nothing else")
    assert rules.refresh() and not rules.rejected


def test_a_whole_file_may_be_looser(tmp_path: Path) -> None:
    """What `millrace policy apply` wrote holds whatever it says; changed by hand since then it does not."""
    file, rules = started(tmp_path, TEXT)
    file.write_text(seal("[caps]\nfee = 20000000000000000"))
    assert rules.refresh() and rules.policy.caps.fee == 2 * 10**16
    file.write_text(seal("[caps]\nfee = 20000000000000000").replace("= 2", "= 1"))
    with pytest.raises(PolicyError, match="checksum does not fit"):
        rules.refresh()
    assert rules.policy.caps.fee == 2 * 10**16


def test_the_last_good_policy_outlives_a_restart(tmp_path: Path) -> None:
    """With the file gone the last good policy holds; with its copy damaged only a whole file does."""
    kept = tmp_path / "data" / "kept.toml"
    file, _ = started(tmp_path, TEXT, kept)
    file.unlink()
    rules = PolicyFile(str(file), kept)
    rules.begin()
    assert rules.policy == loads(TEXT) and "cannot be read" in rules.rejected
    kept.write_text(kept.read_text().replace("0.01", "0.02"))
    with pytest.raises(PolicyError):
        PolicyFile(str(file), kept).begin()
    file.write_text("")
    with pytest.raises(PolicyError, match=r"kept\.toml.*policy apply"):
        PolicyFile(str(file), kept).begin()
    file.write_text(seal(TEXT))
    rules = PolicyFile(str(file), kept, keeps=True)
    rules.begin()
    assert rules.policy == loads(TEXT) and loads(kept.read_text()) == rules.policy


@pytest.mark.parametrize("how", ["deleted", "emptied", "older", "a folder"])
def test_a_last_good_policy_that_is_lost_is_missed(tmp_path: Path, how: str) -> None:
    """By its checksum that somebody else has: then only a whole file holds, or the very one that did before."""
    kept, noted = tmp_path / "data" / "kept.toml", [checksum("")]
    looser, tighter = TEXT.replace("0.01 EGLD", "").replace("fee = 1", "fee = 3"), TEXT.replace("fee = 1", "fee = 0")
    file, rules = started(tmp_path, looser, kept)
    older = kept.read_text()
    rules.remember = noted.append
    file.write_text(TEXT)
    assert rules.refresh() and noted[-1] == checksum(TEXT) == checksum(kept.read_text())
    kept.unlink()
    match how:
        case "emptied":
            kept.touch()
        case "older":
            kept.write_text(older)
        case "a folder":
            kept.mkdir()
    for text in (looser, tighter, "", "paused_shards ="):
        file.write_text(text)
        for keeps in (True, False):
            with pytest.raises(PolicyError, match=r"kept\.toml.*policy apply"):
                PolicyFile(str(file), kept, keeps=keeps).begin(noted[-1])
    if how != "a folder":
        for text, holds in ((TEXT, TEXT), (seal(looser), looser)):
            file.write_text(text)
            rules = PolicyFile(str(file), kept, keeps=True)
            rules.begin(noted[-1])
            assert rules.policy == loads(holds) and loads(kept.read_text()) == rules.policy
            assert bool(rules.lost) == (text == TEXT), "it is kept again by the first"
            noted.append(checksum(holds))


async def test_the_journal_knows_the_last_good_policy(world: Any) -> None:
    """Without its file a looser policy by hand does not start; the one that held does, and is kept again."""
    file, kept = world.folder / "policy.toml", world.folder / "relayer" / "last-good-policy.toml"
    file.write_text("[caps]\nfee = 7")
    await world.start(policy_file=str(file))
    await world.stop()
    kept.unlink()
    file.write_text("[caps]\nfee = 8")
    with pytest.raises(PolicyError, match=r"last-good-policy\.toml: .* is missing; .*millrace policy apply"):
        await world.start(policy_file=str(file))
    await world.stop()
    file.write_text("[caps]\nfee = 7")
    service = await world.start(policy_file=str(file))
    assert service.policy_keeper.whole.caps.fee == 7 and kept.exists()
    await world.stop()
    kept.unlink()
    code, output = apply(world.folder, "[caps]\nfee = 8", "--allow-looser")
    assert code == 0, output
    service = await world.start(policy_file=str(file))
    assert service.policy_keeper.whole.caps.fee == 8 and loads(kept.read_text()).caps.fee == 8


async def test_a_policy_that_the_journal_does_not_take(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not kept either: what pays for less holds at once, what is looser waits."""
    file = world.folder / "policy.toml"
    file.write_text("[caps]\nfee = 7")
    service = await world.start(policy_file=str(file))

    async def fails(checksum: str) -> None:
        raise JournalError("disk I/O error")

    monkeypatch.setattr(service.journal, "keep_policy", fails)
    for fee, holds in ((8, 7), (6, 6)):
        file.write_text(seal(f"[caps]\nfee = {fee}"))
        with pytest.raises(PolicyError, match=r"journal does not take it: disk I/O error"):
            await service.policy_keeper.read()
        assert service.lifecycle.sponsor.policy.caps.fee == holds


def test_what_cannot_be_kept_holds_only_if_it_pays_for_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A looser policy waits until it is on disk as the last good one; a pause does not wait for a disk."""
    file, rules = started(tmp_path, TEXT, tmp_path / "data" / "kept.toml")

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(policy_file, "write", full)
    looser, tighter = (TEXT.replace("fee = 10000000000000000", f"fee = {fee}") for fee in (2 * 10**16, 5))
    for text, holds in ((looser, TEXT), (tighter, tighter)):
        file.write_text(seal(text))
        with pytest.raises(PolicyError, match="no space left"):
            rules.refresh()
        assert rules.policy == loads(holds) and "no space left" in rules.rejected


def test_a_policy_file_is_read_when_it_is_another(tmp_path: Path) -> None:
    """Another size, another time or another file is read; the same is not, and a broken one is tried each time."""
    file = tmp_path / "policy.toml"
    rules = PolicyFile(str(file))

    def write(text: str, at: int) -> None:
        file.write_text(seal(text))
        os.utime(file, ns=(at, at))

    write("[caps]\nfee = 1", 5)
    assert rules.refresh() and not rules.refresh()
    write("[caps]\nfee = 2", 6)  # another time
    assert rules.refresh() and not rules.refresh() and rules.policy.caps.fee == 2
    write("[caps]\nfee = 33", 6)  # another size
    assert rules.refresh() and not rules.refresh() and rules.policy.caps.fee == 33
    other = tmp_path / "other"
    other.write_text(seal("[caps]\nfee = 44"))
    os.utime(other, ns=(6, 6))
    other.replace(file)
    assert rules.refresh() and not rules.refresh() and rules.policy.caps.fee == 44
    changed = file.stat().st_ctime_ns
    while file.stat().st_ctime_ns == changed:  # until the kernel's clock has gone on
        write("[caps]\nfee = 55", 6)  # the same file, size and time, as copying tools keep it
    assert rules.refresh() and not rules.refresh() and rules.policy.caps.fee == 55
    write("[caps]\nfee = 44", 7)
    assert rules.refresh()
    for content in (b"[caps]\nfee = -5", b"\xff\xfe"):
        file.write_bytes(content)
        for _ in range(2):
            with pytest.raises(PolicyError, match=r"policy\.toml"):
                rules.refresh()
        assert rules.policy.caps.fee == 44
    assert not PolicyFile("").refresh()


def apply(tmp_path: Path, text: str, *options: str) -> tuple[int, str]:
    new = tmp_path / "new.toml"
    new.write_text(text)
    names = ["--set", f"policy_file={tmp_path / 'policy.toml'}", "--set", f"data_dir={tmp_path / 'data'}"]
    result = CliRunner().invoke(cli.main, ["policy", "apply", str(new), *names, *options])
    return result.exit_code, result.output


def test_policy_apply(tmp_path: Path) -> None:
    """The difference is shown in words, looser entries marked, which take a flag; the file is put there whole."""
    target = tmp_path / "policy.toml"
    code, output = apply(tmp_path, TEXT, "--allow-looser")
    assert code == 0 and policy_file.is_whole(target.read_text()) and loads(target.read_text()) == loads(TEXT)
    code, output = apply(tmp_path, TEXT.replace("[2]", "[]").replace("floor_balance = 1", "floor_balance = 2"))
    assert code == 1 and "LOOSER paused_shards: gone 2" in output and "--allow-looser" in output
    assert "       budget.floor_balance: 100000000000000000 -> 200000000000000000" in output
    assert loads(target.read_text()) == loads(TEXT)
    code, _ = apply(tmp_path, TEXT.replace("floor_balance = 1", "floor_balance = 2"))
    assert code == 0 and loads(target.read_text()).budget.floor_balance == 2 * 10**17
    code, output = apply(tmp_path, "[caps]\nfees = 1")
    assert code == 1 and "did you mean `fee`" in output
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    result = CliRunner().invoke(cli.main, ["policy", "apply", str(target)])
    assert result.exit_code == 1 and "no policy_file is set" in result.output


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder on another file system, where this machine has one."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield Path(folder)


def test_a_link_to_another_file_system(tmp_path: Path, elsewhere: Path) -> None:
    """A link is followed: `policy apply` puts the file in the place it names, and a link that is turned is noticed."""
    link, first, second = tmp_path / "policy.toml", elsewhere / "first.toml", elsewhere / "second.toml"
    first.write_text("[caps]\nfee = 7")
    link.symlink_to(first)
    rules = PolicyFile(str(link))
    assert rules.refresh() and rules.policy.caps.fee == 7
    code, output = apply(tmp_path, "[caps]\nfee = 6")
    assert code == 0, output
    assert link.is_symlink() and policy_file.is_whole(first.read_text())
    assert rules.refresh() and rules.policy.caps.fee == 6
    second.write_text(seal("[caps]\nfee = 5"))
    turned = tmp_path / "turned"
    turned.symlink_to(second)
    turned.replace(link)
    assert rules.refresh() and rules.policy.caps.fee == 5
    second.unlink()
    with pytest.raises(PolicyError, match="cannot be read"):
        rules.refresh()
    assert rules.policy.caps.fee == 5, "the last good one"
    assert [path.name for path in elsewhere.iterdir()] == ["first.toml"], "nothing is left over"


def test_every_entry_has_a_direction() -> None:
    """Each entry of the policy, made larger or smaller, is looser in one of both ways, or named as one that is not."""
    neither = {"budget.alert_balance", "budget.alert_seconds"}
    for table in ("caps", "budget", "quotas", "strangers"):
        for name in getattr(Policy(), table).__struct_fields__:
            ends = [loads(f"[{table}]\n{name} = {value}\n[people.a]") for value in ("1", "2")]
            found = [looser(*ends), looser(*reversed(ends))]
            assert sorted(map(len, found)) == ([0, 0] if f"{table}.{name}" in neither else [0, 1]), name


def test_people_and_who_needs_it() -> None:
    """Somebody new, another key or a larger budget is looser; so is to sponsor more of those who need it less."""
    texts = ["", '[people.a]\nkeys = ["%s"]' % ("0" * 64), '[people.a]\nkeys = ["%s"]\nper_hour = 1' % ("1" * 64)]
    nobody, someone, other = (loads(text) for text in texts)
    assert looser(nobody, someone) == ["people.a"]
    assert looser(someone, other) == ["people.a.keys"] and looser(other, someone) == [
        "people.a.keys",
        "people.a.per_hour",
    ]
    assert [change.words for change in changes(someone, nobody)] == ["75 -> 100", "gone"]
    assert looser(someone, nobody) == ["strangers.together_percent"], "without people strangers have it all"
    assert looser(loads(texts[1] + "\n[people.b]"), someone) == [], "somebody who is gone pays for nobody"
    ninety = loads("[strangers]\ntogether_percent = 90\n" + texts[1])
    assert looser(ninety, nobody) == ["strangers.together_percent"], "75 of nobody binds nobody"
    assert looser(loads("[strangers]\ntogether_percent = 50"), someone) == ["people.a"], "somebody new binds them"
    few, more, everybody = (loads(f"[strangers]\nsponsor_below = {value}") for value in (5, 6, 0))
    assert looser(few, more) and looser(more, everybody) and not looser(everybody, few) and not looser(more, few)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[people.a]\nkeys = ['short']", "people.a.keys: not the hash"),
        ("[people.a]\nper_hour = -1", "people.a.per_hour: negative"),
        ("[people.a]\nper_hours = 1", "did you mean `per_hour`"),
        ("[people.a]\nper_hour = 1.5", "no whole number"),
        (f"[people.a]\nkeys = ['{'0' * 64}']\n[people.b]\nkeys = ['{'0' * 64}']", "of a, too"),
    ],
)
def test_people_that_cannot_be_meant(text: str, words: str) -> None:
    """A wrong entry of somebody is named with theirs."""
    with pytest.raises(PolicyError, match=words):
        loads(text)


def test_a_new_key_is_one_of_the_policys() -> None:
    """What the command prints for the policy file is the hash of what it prints for the person."""
    lines = CliRunner().invoke(cli.main, ["policy", "new-key"]).output.splitlines()
    key = lines[0].removeprefix("Authorization: Bearer ")
    assert name_of(key, loads("\n".join(lines[1:])).people) == "NAME" and name_of("x", {}) is None


@pytest.mark.parametrize(
    ("before", "after", "is_looser"),
    [
        ("allow_functions = []", 'allow_functions = ["a"]', False),
        ('allow_functions = ["a"]', "allow_functions = []", True),
        ('allow_functions = ["a"]', 'allow_functions = ["a", "b"]', True),
        ('allow_functions = ["a", "b"]', 'allow_functions = ["a"]', False),
        ('deny_functions = ["a"]', "deny_functions = []", True),
        ("deny_functions = []", 'deny_functions = ["a"]', False),
    ],
)
def test_lists_that_are_looser(before: str, after: str, is_looser: bool) -> None:
    """An empty list of what is allowed allows all; of what is denied everything that goes is looser."""
    policies = [loads(f"[lists]\n{text}") for text in (before, after)]
    assert bool(looser(*policies)) is is_looser
