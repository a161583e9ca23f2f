"""Settings as they may be shown: secrets only as there, and of addresses neither users and passwords nor queries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

MASK = "***"
_USER = re.compile(r"(?<=://)\S*@")  # up to the last @: passwords hold some that nobody has escaped
_QUERY = re.compile(r"(://[^\s?]*\?)\S+")
_PASSWORD = re.compile(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)", re.IGNORECASE)  # of a PostgreSQL connection string


def masked(name: str, value: object) -> object:
    """The value of a setting without what must not be read."""
    from millrace.runtime.settings import Secret

    if isinstance(value, Secret) or "secret" in name:
        return MASK if value else ""
    return _without_credentials(value)


def is_masked(value: object) -> bool:
    """Whether something was left out of it."""
    return MASK in str(value)


def _without_credentials(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, str):
        return _PASSWORD.sub(rf"\1{MASK}", _QUERY.sub(rf"\1{MASK}", _USER.sub(f"{MASK}@", value)))
    if isinstance(value, Mapping):
        return {key: _without_credentials(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_without_credentials(item) for item in value)
    return value
