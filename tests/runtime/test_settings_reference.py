"""What is said of settings comes from the source, and nothing is left unsaid."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from millrace.runtime.settings import Secret
from millrace.runtime.settings_reference import Setting, meanings, settings_of


class Sample(msgspec.Struct):
    """Settings of nothing."""

    port: Annotated[int, Meta(ge=0, le=65535)] = 8100
    """Where it
    listens."""
    kind: Literal["a", "b"] = "a"
    hosts: tuple[str, ...] = ()
    """Who."""
    fees: dict[str, tuple[int, float]] = {}
    most: int | None = None
    file: Path = Path("data/x")
    password: Secret = Secret("hidden")
    """Never shown."""


def test_a_setting_is_told_by_its_source() -> None:
    """Type, bounds and default are those of the field, its meaning is the text below it, in one line."""
    assert settings_of(Sample) == [
        Setting("port", "integer ≥ 0, ≤ 65535", "8100", "Where it listens."),
        Setting("kind", "`a` or `b`", '"a"', ""),
        Setting("hosts", "list of text", "[]", "Who."),
        Setting("fees", "table of [integer, number]", "{}", ""),
        Setting("most", "integer, or none", "", ""),
        Setting("file", "path", '"data/x"', ""),
        Setting("password", "secret", '""', "Never shown."),
    ]


def test_a_text_belongs_to_the_attribute_above_it() -> None:
    """The docstring of the class is no setting's meaning, and an attribute without a text has none."""
    assert meanings(Sample) == {"port": "Where it listens.", "hosts": "Who.", "password": "Never shown."}
