"""Settings of a service: defaults of its struct, then a TOML file, then the environment, then flags.

A later source wins over an earlier one. The TOML file has one table per service and a table `[common]`
whose keys reach every service that knows them. The environment names are `MILLRACE_<SECTION>__<FIELD>`;
flags are `--set field=value`.
"""

from __future__ import annotations

import difflib
import importlib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import msgspec
from msgspec import Meta

T = TypeVar("T", bound=msgspec.Struct)

FOREVER = 1e9
"""In seconds, thirty years: no wait is meant to be longer."""
Seconds = Annotated[float, Meta(gt=0, le=FOREVER)]
"""A time. Each number with a fraction has such a range: a lower bound keeps out what is none, an upper one infinity."""
Wait = Annotated[float, Meta(ge=0, le=FOREVER)]
"""A time that may be nothing."""
Rate = Annotated[float, Meta(gt=0, le=1e12)]
"""How many a second, or at once after a pause."""
Share = Annotated[float, Meta(gt=0, le=1)]

COMMON = "common"
SECTIONS = {
    "aggregator": "millrace.aggregator.settings:AggregatorSettings",
    "relayer": "millrace.relayer.settings:RelayerSettings",
    "notifier": "millrace.notifier.settings:NotifierSettings",
    "pools": "millrace.collector.settings:CollectorSettings",
    "localnet": "millrace.localnet.settings:LocalnetSettings",
    "console": "millrace.console.settings:ConsoleSettings",
}
"""The services, each with its struct: one file may hold the settings of all of them."""
_PREFIX = "MILLRACE_"
_NOT_OF_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
MAX_PORT = 65_535
_MOST_NAMED = 100  # names in an error: the longest table has some seventy, all tables together more than anybody reads


class Secret:
    """A setting that must not be shown: a password, or a URL that holds one. Only `reveal` gives it away."""

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        self._text = text

    def reveal(self) -> str:
        """The secret itself: for the library that needs it, never for a log or an error."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __repr__(self) -> str:
        return "Secret(…)" if self._text else "Secret()"


class SettingsError(ValueError):
    """A setting is unknown or has a wrong value; the text names its source and its name."""


def load(
    section: str,
    kind: type[T],
    *,
    file: Path | None = None,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> T:
    """Build the settings struct `kind` of the service `section` from all sources.

    Raises `SettingsError` for an unreadable file, an unknown table or name, a value of the wrong type, or no port.
    """
    return load_with_sources(section, kind, file=file, env=env, overrides=overrides)[0]


def load_with_sources(
    section: str,
    kind: type[T],
    *,
    file: Path | None = None,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> tuple[T, dict[str, str]]:
    """The same, and where each value that is no default comes from, by name."""
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    if file is not None:
        for name, (value, table) in _from_file(file, section, types).items():
            values[name], sources[name] = value, f"{file} [{table}]"
    for name, text in sorted((os.environ if env is None else env).items()):
        table, is_setting, field = name.removeprefix(_PREFIX).lower().partition("__")
        if not (name.startswith(_PREFIX) and is_setting):
            continue
        if table not in (*SECTIONS, section):
            known = sorted({*SECTIONS, section})
            raise SettingsError(
                f"environment variable {name}: unknown service {table!r}; {_did_you_mean(table, known)}"
            )
        if table == section:
            values[field] = _from_text(f"environment variable {name}", field, text, types)
            sources[field] = name
    for field, text in (overrides or {}).items():
        values[field] = _from_text(f"--set {field}", field, text, types)
        sources[field] = "--set"
    try:
        settings = msgspec.convert(values, kind, dec_hook=_decode)
    except msgspec.ValidationError as error:
        raise SettingsError(f"settings of {section}: {_in_words(error)}") from error
    for name in types:
        port = getattr(settings, name)
        if (name == "port" or name.endswith("_port")) and isinstance(port, int) and not 0 <= port <= MAX_PORT:
            raise SettingsError(f"settings of {section}: {name} = {port} is no port: 0 (any free one) to {MAX_PORT}")
    return settings, sources


def struct_of(section: str) -> type[Any]:
    """The struct of a service's settings, which is imported when somebody asks for it."""
    module, _, name = SECTIONS[section].partition(":")
    found: type[Any] = getattr(importlib.import_module(module), name)
    return found


def pack(settings: msgspec.Struct) -> bytes:
    """Settings with their secrets, for another process of ours and for nobody else."""
    return msgspec.json.encode(settings, enc_hook=_plain)


def unpack(data: bytes, kind: type[T]) -> T:
    """The settings that `pack` has packed."""
    return msgspec.json.decode(data, type=kind, dec_hook=_decode)


def _plain(value: Any) -> str:
    return value.reveal() if isinstance(value, Secret) else str(value)


def parse_overrides(pairs: list[str] | tuple[str, ...]) -> dict[str, str]:
    """Turn `["port=8100", …]` into a mapping; raises `SettingsError` for an item without `=`."""
    result = {}
    for pair in pairs:
        field, found, text = pair.partition("=")
        if not found or not field:
            name = _NOT_OF_A_NAME.split(pair, maxsplit=1)[0]  # no more of it: the rest may be a secret
            raise SettingsError(f"--set {name}…: write it as field=value")
        result[field.replace("-", "_")] = text
    return result


def _from_file(file: Path, section: str, types: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    """Values by name, each with the table that it stands in."""
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: not a TOML file: {error}") from error
    for name, table in document.items():
        if name not in (COMMON, *SECTIONS, section):
            known = sorted({COMMON, *SECTIONS, section})
            raise SettingsError(f"{file}: unknown table [{name}]; {_did_you_mean(name, known)}")
        if not isinstance(table, dict):
            raise SettingsError(f"{file}: [{COMMON}] and [{section}] must be tables, and [{name}] is none")
    own = document.get(section, {})
    for name in own:
        _require_known(f"{file}, table [{section}]", name, types)
    common = document.get(COMMON, {})
    if not common.keys() <= types.keys():
        of_all = {field.name: field.type for name in SECTIONS for field in msgspec.structs.fields(struct_of(name))}
        for name in common:
            _require_known(f"{file}, table [{COMMON}]", name, {**of_all, **types})
    shared = {name: (value, COMMON) for name, value in common.items() if name in types}
    return shared | {name: (value, section) for name, value in own.items()}


def _from_text(source: str, field: str, text: str, types: Mapping[str, Any]) -> Any:
    _require_known(source, field, types)
    kind = types[field]
    try:
        return msgspec.convert(text, kind, strict=False, dec_hook=_decode)
    except msgspec.ValidationError as error:
        fault = error
    try:
        return msgspec.json.decode(text, type=kind, dec_hook=_decode)
    except msgspec.ValidationError as error:
        fault = error
    except msgspec.DecodeError:
        pass  # it is no JSON: then it was meant as it stands there, and what was wrong with that is told
    if _holds_secret(kind):  # what stands at fault may be a part of one
        raise SettingsError(f"{source}: is not a value for this setting (not shown, as it holds a secret)")
    raise SettingsError(f"{source}: {text!r} is not a value for this setting: {_in_words(fault)}") from fault


def _in_words(fault: msgspec.ValidationError) -> str:
    """What is wrong with a value: the setting first, and a number called by its name."""
    what, _, path = str(fault).partition(" - at `$.")
    what = what.replace("Expected `float`", "expected a number").replace("Expected `int`", "expected a whole number")
    return f"{path.rstrip('`')}: {what}" if path else what


def _holds_secret(kind: Any) -> bool:
    return kind is Secret or any(map(_holds_secret, get_args(kind)))


def _decode(kind: type[Any], value: Any) -> Any:
    """The types of settings beyond JSON's own."""
    if kind is Path and isinstance(value, str | Path):
        return Path(value)
    if kind is Secret and isinstance(value, str | Secret):
        return value if isinstance(value, Secret) else Secret(value)
    raise TypeError(f"a setting cannot be a {kind.__name__}")


def _require_known(source: str, name: str, types: Mapping[str, Any]) -> None:
    if name not in types:
        raise SettingsError(f"{source}: unknown setting {name!r}; {_did_you_mean(name, sorted(types))}")


def _did_you_mean(name: str, known: list[str]) -> str:
    """The names that are meant most likely, else all of them."""
    are_few = len(known) <= _MOST_NAMED
    near = difflib.get_close_matches(name, known, 3 if are_few else 1)
    if near:
        return f"did you mean {' or '.join(near)}?"
    if not are_few:
        return "no service has it; `millrace config` lists them all"
    return f"known are {', '.join(known)}"
