"""No key twice in one object, found quickly where there is none and surely where there is one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.relayer.protocol import strict_json
from millrace.relayer.protocol.reasons import Refused

KEYS = st.sampled_from(["a", "b", "c:", "\u00e9", ""])
VALUES = st.recursive(
    st.one_of(st.none(), st.integers(-5, 2**70), st.text(st.sampled_from('a:"{,\\\u00e9'), max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.lists(st.tuples(KEYS, inner), max_size=3).map(lambda pairs: ("object", pairs))
    ),
    max_leaves=12,
)


def write(value: Any, escape: bool) -> tuple[str, bool]:
    """A value as JSON text, and whether an object in it has a key twice; keys may be written with escapes."""
    if isinstance(value, tuple):
        parts, twice = [], len({key for key, _ in value[1]}) != len(value[1])
        for number, (key, item) in enumerate(value[1]):
            name = "".join(f"\\u{ord(sign):04x}" for sign in key) if escape and number % 2 else key
            text, inside = write(item, escape)
            twice = twice or inside
            parts.append(f'"{name}" :{text}')
        return "{" + ",".join(parts) + "}", twice
    if isinstance(value, list):
        written = [write(item, escape) for item in value]
        return "[" + ", ".join(text for text, _ in written) + "]", any(inside for _, inside in written)
    return json.dumps(value), False


@settings(max_examples=400, deadline=None)
@given(VALUES, st.booleans())
def test_row_21_duplicate_keys_wherever_they_are(value: Any, escape: bool) -> None:
    """An object with a key twice is refused, however the key is written and however deep it is; others never are."""
    text, twice = write(value, escape)
    try:
        strict_json.refuse_duplicate_keys(text.encode(), 0, 10_000)
        refused = False
    except Refused:
        refused = True
    assert refused == twice


OBJECTS = st.lists(st.tuples(KEYS, VALUES), max_size=4).map(lambda pairs: ("object", pairs))


@settings(max_examples=400, deadline=None)
@given(OBJECTS, st.booleans(), st.sampled_from(["", " ", "\n\t "]))
def test_row_22_walking_value_by_value_finds_the_same(value: Any, escape: bool, space: str) -> None:
    """A large message is walked with stops between its values and the items of its lists, and judged no differently."""
    text, twice = write(value, escape)
    if space:
        text = space + json.dumps(json.loads(text), indent=1) + space if not twice else space + text + space
    try:
        stops = len(list(strict_json.walk(text.encode(), 0, 10_000)))
        refused = False
    except Refused:
        refused = True
    assert refused == twice
    if not refused:
        values = json.loads(text).values()
        assert stops == sum(len(item) if isinstance(item, list) else 1 for item in values)


@pytest.mark.parametrize("data", [b'{"a":"\xff"}', b'{"a":1,"a":1}', b'{"a":{"b":1,"b":2}}', b'[{"a":1,"\\u0061":2}]'])
def test_row_21_what_is_refused(data: bytes) -> None:
    """Keys that stand twice, and bytes that are no UTF-8."""
    with pytest.raises(Refused):
        strict_json.refuse_duplicate_keys(data, strict_json.marks(data), 100)
