"""Both clients have the same surface: `tests/vectors/client_surface.json` is its table, for the other one, too."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import msgspec
import pytest

import millrace_client
from millrace_client import Handle, Patience, Relayer, errors, handle, link, relayer

ROOT = Path(__file__).parents[2]
TABLE = msgspec.json.decode((ROOT / "tests" / "vectors" / "client_surface.json").read_bytes())
HIDDEN = {"heard", "lost", "ended", "listen", "leave_later"}
"""What classes tell each other."""


def snake(name: str) -> str:
    return re.sub("([A-Z])", lambda found: "_" + found[1].lower(), name)


def of_table(name: str) -> set[str]:
    """What the table gives a Python class: what both have, and what Python alone has."""
    alone = [key.partition(".") for key in TABLE["only"]["python"]]
    return {snake(member) for member in TABLE["classes"][name]} | {member for of, _, member in alone if of == name}


@pytest.mark.parametrize("name", TABLE["classes"])
def test_public_names(name: str) -> None:
    """A class has the methods and attributes of the table, and no others."""
    of = getattr(millrace_client, name)
    members = {name for name in vars(of) if not name.startswith("_")} - HIDDEN
    source = inspect.getsource(of.__init__)
    members |= {
        attribute
        for target in re.findall(r"^        (self\.[^=(]*?)(?::[^=]*)? = ", source, re.M)
        for attribute in re.findall(r"self\.([a-z]\w*)", target)
    }
    assert members == of_table(name)


@pytest.mark.parametrize("name", TABLE["arguments"])
def test_arguments(name: str) -> None:
    """A class or method takes the arguments that the table names."""
    of, _, method = name.partition(".")
    function = getattr(millrace_client, of)
    parameters = inspect.signature(getattr(function, snake(method)) if method else function).parameters
    assert {snake(argument) for argument in TABLE["arguments"][name]} <= set(parameters)


@pytest.mark.parametrize("name", TABLE["errors"])
def test_errors(name: str) -> None:
    """Every exception is a `ClientError` and says what the table names; there are no others."""
    of = getattr(millrace_client, name)
    assert issubclass(of, millrace_client.ClientError)
    said = set(re.findall(r"self\.(\w+) = ", inspect.getsource(of.__init__))) if "__init__" in vars(of) else set()
    renamed = TABLE["python"]
    assert said == {renamed.get(f"{name}.{field}", snake(field)) for field in TABLE["errors"][name]}
    own = {
        other
        for other, value in vars(errors).items()
        if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert own == set(TABLE["errors"])


CONSTANTS = {
    "tries": ("wait", "ATTEMPTS"),
    "waitsMs": ("wait", "LONGEST_WAIT_MS"),
    "timeoutMs": ("wait", "TIMEOUT_MS"),
    "firstPauseMs": ("wait", "FIRST_PAUSE_MS"),
    "longestPauseMs": ("wait", "LONGEST_PAUSE_MS"),
    "finalMs": ("handle", "TIMEOUT_MS"),
    "askMs": ("handle", "CHECK_MS"),
    "queue": ("queue", "SIZE"),
    "batch": ("relayer", "MAX_BATCH"),
    "topicsOfAConnection": ("live", "TOPICS_PER_CONNECTION"),
    "connections": ("relayer", "MAX_CONNECTIONS"),
    "relayersMs": ("relayer", "RELAYERS_MS"),
}
"""Where the TypeScript client has each of the defaults."""


def of_typescript(module: str, constant: str) -> int:
    text = (ROOT / "clients" / "typescript" / "src" / f"{module}.ts").read_text(encoding="utf-8")
    found = re.search(rf"const {constant} = ([0-9_]+)", text)
    assert found is not None, constant
    return int(found[1].replace("_", ""))


def test_defaults() -> None:
    """Tries, waits, times and bounds are the table's, in both."""
    assert {name: of_typescript(*place) for name, place in CONSTANTS.items()} == TABLE["defaults"]
    ours = {
        "tries": Patience().tries,
        "waitsMs": Patience().seconds * 1000,
        "timeoutMs": inspect.signature(Relayer).parameters["timeout"].default * 1000,
        "firstPauseMs": link._FIRST_PAUSE * 1000,
        "longestPauseMs": link._LONGEST_PAUSE * 1000,
        "finalMs": inspect.signature(Handle.final).parameters["timeout"].default * 1000,
        "askMs": handle._ASK_SECONDS * 1000,
        "queue": inspect.signature(Relayer.subscribe).parameters["size"].default,
        "batch": relayer._MOST_AT_ONCE,
        "topicsOfAConnection": link.MAX_TOPICS,
        "connections": relayer.MAX_LINKS,
        "relayersMs": relayer._RELAYERS_SECONDS * 1000,
    }
    assert ours == TABLE["defaults"]
