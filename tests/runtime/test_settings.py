"""Settings come from four sources; the later one wins and every mistake is named."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect as shapes

from millrace.gossip.settings import GossipSettings
from millrace.localnet.settings import LocalnetSettings
from millrace.notifier.settings import NotifierSettings
from millrace.relayer.settings import RelayerSettings
from millrace.runtime.settings import SECTIONS, Secret, SettingsError, load, parse_overrides, struct_of


class Sample(msgspec.Struct, frozen=True):
    host: str = "127.0.0.1"
    port: int = 1
    ratio: float = 0.5
    verbose: bool = False
    peers: tuple[str, ...] = ()
    note: str | None = None
    folder: Path = Path("data")
    url: Secret = Secret()


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "millrace.toml"
    file.write_text(text)
    return file


def test_later_sources_win(tmp_path: Path) -> None:
    """A flag beats the environment, which beats the service's table, which beats [common] and the default."""
    file = write(
        tmp_path,
        '[common]\nhost = "a"\nport = 2\nhub_url = "of the relayer"\n[sample]\nport = 3\nratio = 1.5\nverbose = true',
    )
    env = {"MILLRACE_SAMPLE__RATIO": "2.5", "MILLRACE_SAMPLE__VERBOSE": "false", "MILLRACE_RELAYER__PORT": "y"}
    settings = load("sample", Sample, file=file, env=env, overrides={"verbose": "true"})
    assert settings == Sample(host="a", port=3, ratio=2.5, verbose=True)


def test_what_no_service_knows_is_refused_by_each(tmp_path: Path) -> None:
    """A name in [common] that no service has, and a variable of no service, are refused by whoever reads them."""
    for text, said in (
        ("[common]\nprot = 1", r"\[common\]: unknown setting 'prot'; did you mean port"),
        ("[common]\nlog_dri = 1", "unknown setting 'log_dri'; (did you mean|no service has it)"),
    ):
        with pytest.raises(SettingsError, match=said):
            load("sample", Sample, file=write(tmp_path, text), env={})
    with pytest.raises(SettingsError, match="MILLRACE_RELAYR__PORT: unknown service 'relayr'; did you mean relayer"):
        load("sample", Sample, env={"MILLRACE_RELAYR__PORT": "1"})
    others = {"MILLRACE_RELAYER_URL": "x", "MILLRACE_KERNELS": "plain", "XMILLRACE_RELAYR__PORT": "1"}
    assert load("sample", Sample, env=others) == Sample()


@pytest.mark.parametrize(("text", "expected"), [('["a","b"]', ("a", "b")), ("[]", ())], ids=["two", "none"])
def test_lists_are_written_as_json(text: str, expected: tuple[str, ...]) -> None:
    """A list in the environment or a flag is a JSON array."""
    assert load("sample", Sample, env={"MILLRACE_SAMPLE__PEERS": text}).peers == expected


def test_paths(tmp_path: Path) -> None:
    """A path may come from a file, the environment or a flag."""
    file = write(tmp_path, "[sample]\nfolder = '/a'")
    assert load("sample", Sample, file=file, env={}).folder == Path("/a")
    assert load("sample", Sample, env={"MILLRACE_SAMPLE__FOLDER": "b"}).folder == Path("b")
    with pytest.raises(SettingsError, match="folder"):
        load("sample", Sample, file=write(tmp_path, "[sample]\nfolder = 1"), env={})


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    """A secret may come from every source, and shows only when it is asked for."""
    file = write(tmp_path, "[sample]\nurl = 'pass-1'")
    for settings, expected in (
        (load("sample", Sample, env={}), ""),
        (load("sample", Sample, file=file, env={}), "pass-1"),
        (load("sample", Sample, file=file, env={"MILLRACE_SAMPLE__URL": "pass-2"}), "pass-2"),
        (load("sample", Sample, env={}, overrides={"url": "pass-3"}), "pass-3"),
    ):
        assert settings.url.reveal() == expected and bool(settings.url) == bool(expected)
        assert not expected or expected not in f"{settings} {settings!r} {settings.url} {settings.url!r}"
    with pytest.raises(SettingsError, match="url"):
        load("sample", Sample, file=write(tmp_path, "[sample]\nurl = 1"), env={})


def test_digits_stay_text_for_a_text_setting() -> None:
    """A value made of digits is not turned into a number where the setting is a text."""
    assert load("sample", Sample, env={}, overrides={"host": "1", "note": "2"}) == Sample(host="1", note="2")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"prot": "1"}, "unknown setting 'prot'"),
        ({"port": "many"}, "--set port"),
        ({"port": "1.5"}, "--set port"),
        ({"peers": "a"}, "--set peers"),
    ],
)
def test_wrong_flags_are_named(overrides: dict[str, str], words: str) -> None:
    """An unknown name or a value of the wrong type is refused with the name of the flag."""
    with pytest.raises(SettingsError, match=words):
        load("sample", Sample, env={}, overrides=overrides)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[sample]\nprot = 1", "unknown setting 'prot'"),
        ("[sample]\nport = 'x'", "port"),
        ("sample = 1", "must be tables"),
        ("[sample", "not a TOML file"),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, text: str, words: str) -> None:
    """A file with an unknown name, a wrong type or broken TOML is refused, and the text says where."""
    with pytest.raises(SettingsError, match=words):
        load("sample", Sample, file=write(tmp_path, text), env={})


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    """A named file that is not there is an error, not an empty file."""
    with pytest.raises(SettingsError, match="cannot be read"):
        load("sample", Sample, file=tmp_path / "nothing.toml", env={})


def test_flag_form() -> None:
    """Flags are written field=value; dashes are underscores; a value may hold further equal signs."""
    assert parse_overrides(("a-b=1", "c=x=y")) == {"a_b": "1", "c": "x=y"}
    with pytest.raises(SettingsError, match="field=value"):
        parse_overrides(("port",))


@pytest.mark.parametrize("text", ['{"a": "hunter2",}', "{a: hunter2}", '["hunter2"]', '{"a": ["hunter2"]}'])
def test_what_is_wrong_with_secrets_is_told_without_them(text: str) -> None:
    """Of a setting that holds secrets an error shows the name alone, and so does its traceback."""
    with pytest.raises(SettingsError, match="NODE_SECRETS: is not a value for this setting") as caught:
        load("notifier", NotifierSettings, env={"MILLRACE_NOTIFIER__NODE_SECRETS": text})
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(SettingsError, match=r"--set redis_url…: write it as field=value"):
        parse_overrides(("redis_url:redis://:hunter2@host",))


@pytest.mark.parametrize(("service", "kind"), [("relayer", RelayerSettings), ("localnet", LocalnetSettings)])
def test_a_network_that_nobody_knows_is_refused_by_name(service: str, kind: type[Any]) -> None:
    """The start says so in words, for relayer and local chain alike."""
    with pytest.raises(SettingsError, match="unknown network profile 'main'; known are"):
        load(service, kind, env={}, overrides={"profile": "main"})


@pytest.mark.parametrize("value", ["0", "-1", "nan"])
def test_a_relayer_that_would_let_nobody_wait_is_refused(value: str) -> None:
    """What a submission may wait is more than nothing: the start says so, and not each submission."""
    with pytest.raises(SettingsError, match=r"max_wait: '.*' is not a value for this setting: expected a number > 0"):
        load("relayer", RelayerSettings, env={}, overrides={"max_wait": value})
    assert load("relayer", RelayerSettings, env={}, overrides={"max_wait": "0.01"}).max_wait == 0.01


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("claims_seats", "0"), ("claims_seats", "-1"), ("claims_seats", "101"), ("stale_seconds", "nan"),
        ("stale_seconds", "inf"), ("stale_seconds", "-1"), ("lifetime_seconds", "nan"), ("lifetime_seconds", "inf"),
        ("lifetime_seconds", "-0.1"), ("retention_hours", "nan"), ("retention_hours", "-1"), ("max_nonce_gap", "-1"),
        ("lease_seconds", "nan"), ("lease_seconds", "inf"), ("signer_timeout", "nan"), ("signer_timeout", "0"),
        ("sign_wait", "nan"), ("regossip_seconds", "nan"), ("regossip_seconds", "0"),
    ],
)  # fmt: skip
def test_numbers_that_money_hangs_on_have_bounds(name: str, value: str) -> None:
    """By how many a policy is divided, and for how long something is waited for, is a number that can be meant."""
    with pytest.raises(SettingsError, match=name):
        load("relayer", RelayerSettings, env={}, overrides={name: value})


def floats_of(kind: type[msgspec.Struct]) -> list[tuple[str, shapes.FloatType]]:
    """The numbers with a fraction among the settings of a struct."""
    shape = shapes.type_info(kind)
    assert isinstance(shape, shapes.StructType)
    named = [(field.name, getattr(field.type, "types", (field.type,))) for field in shape.fields]
    return [(name, item) for name, items in named for item in items if isinstance(item, shapes.FloatType)]


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1.0"])
def test_every_number_is_within_what_can_be_meant(tmp_path: Path, section: str, value: str) -> None:
    """No service starts with a number that is none, has no end or is negative, from any source; each is named."""
    for name, _ in floats_of(struct_of(section)):
        file = write(tmp_path, f"[{section}]\n{name} = {value}")
        for sources in ({"file": file}, {"overrides": {name: value}}):
            with pytest.raises(SettingsError, match=name):
                load(section, struct_of(section), env={}, **sources)


def test_nothing_takes_no_time() -> None:
    """Zero is only taken where it can be meant: of all times, rates and shares these alone may be nothing."""
    may_be_zero = {
        "aggregator": {"thin_market_egld"},
        "relayer": {
            "stale_seconds", "sign_wait", "lifetime_seconds", "retention_hours", "forward_wait", "move_seconds",
            "move_notice",
        },
        "pools": {"slow_seconds"},
        "localnet": {"traders_per_second"},
    }  # fmt: skip
    for section in SECTIONS:
        found = {name for name, shape in floats_of(struct_of(section)) if shape.gt is None and not shape.ge}
        assert found - {"trace_share"} == may_be_zero.get(section, set())
    assert [name for name, shape in floats_of(GossipSettings) if shape.gt is None or shape.le is None] == []


def test_a_range_is_told_with_the_name_of_its_setting(tmp_path: Path) -> None:
    """What is out of its range is refused with the setting and the range in words."""
    with pytest.raises(SettingsError, match=r"settings of relayer: max_wait: expected a number > 0"):
        load("relayer", RelayerSettings, file=write(tmp_path, "[relayer]\nmax_wait = 0"), env={})
    with pytest.raises(SettingsError, match=r"--set stale_seconds: 'inf' .*: expected a number <= 1000000000"):
        load("relayer", RelayerSettings, env={}, overrides={"stale_seconds": "inf"})
