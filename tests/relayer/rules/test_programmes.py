"""Programmes in the policy: what may be written, what is looser, and what they are compared with."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from relayer_support import NETWORK, raw, transfer, wallet

from millrace.chain import address
from millrace.relayer.rules.explain import explain
from millrace.relayer.rules.policy import Policy, PolicyError, loads
from millrace.relayer.rules.policy_changes import changes, looser
from millrace.relayer.rules.programmes import MAX_PROGRAMMES, Programme, matchers

SHOP, OTHER, ALICE = (address.encode(wallet(1, number).public) for number in (40, 41, 0))
WHOLE = {"until": "2027-01-31T18:00:00Z", "budget": "50", "per_user": "3", "functions": '["mint"]'}


def text(name: str = "launch", **entries: str) -> str:
    lines = [f"{entry} = {value}" for entry, value in (WHOLE | entries).items() if value]
    return "\n".join([f"[programmes.{name}]", *lines, ""])


def test_what_a_file_says() -> None:
    """A date-time with a zone may be written with and without quotes, and means the same moment."""
    (programme,) = loads(text()).programmes.values()
    assert programme == Programme(datetime(2027, 1, 31, 18, tzinfo=UTC), 50, 3, functions=("mint",))
    (quoted,) = loads(text(until='"2027-01-31T19:00:00+01:00"')).programmes.values()
    assert quoted.until_ms == programme.until_ms == 1_801_418_400_000


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"until": ""}, "programmes.launch: .*`until`"),
        ({"until": "2027-01-31T18:00:00"}, r"programmes.launch.until: .*timezone.*2027-01-31T18:00:00Z"),
        ({"until": "2027-01-31"}, "programmes.launch.until"),
        ({"until": "7"}, "programmes.launch.until"),
        ({"until": '"soon"'}, "programmes.launch.until"),
        ({"budget": ""}, "programmes.launch: .*`budget`"),
        ({"budget": "5.0"}, "programmes.launch.budget: 5.0 is no whole number"),
        ({"budget": "-1"}, "programmes.launch.budget: negative"),
        ({"per_user": str(10**30 + 1)}, "programmes.launch.per_user: .*10\\^30"),
        ({"functions": ""}, "programmes.launch: it pays for everything"),
        ({"functions": '"mint"'}, "programmes.launch.functions: Expected `array`"),
        ({"receivers": '["erd1"]'}, "programmes.launch.receivers: 'erd1'"),
        ({"senders": '["erd1"]'}, "programmes.launch.senders: 'erd1'"),
        ({"reciever": "[]"}, "no `reciever`: did you mean `receivers`"),
    ],
)
def test_what_cannot_be_meant_is_named(entries: dict[str, str], words: str) -> None:
    """A wrong entry is refused with its name and what it should look like."""
    with pytest.raises(PolicyError, match=words):
        loads(text(**entries))


def test_how_many_and_with_which_names() -> None:
    """At most 64 programmes, with names that can stand in a metric."""
    many = [text(f"p{number}") for number in range(MAX_PROGRAMMES + 1)]
    assert len(loads("".join(many[1:])).programmes) == MAX_PROGRAMMES
    with pytest.raises(PolicyError, match="at most 64"):
        loads("".join(many))
    with pytest.raises(PolicyError, match="names have letters"):
        loads(text('"a b"'))


def test_what_it_pays_for() -> None:
    """Each list that is not empty has to name its part of the transaction."""
    both = text(receivers=f'["{SHOP}"]', senders=f'["{ALICE}"]')
    (item,) = matchers(loads(both).programmes)
    right = (address.decode(ALICE), address.decode(SHOP), "mint")
    wrong = (address.decode(OTHER), address.decode(OTHER), "burn")
    assert item.matches(*right)
    for place in range(3):
        assert not item.matches(*right[:place], wrong[place], *right[place + 1 :])
    (any_receiver,) = matchers(loads(text()).programmes)
    assert any_receiver.matches(wrong[0], wrong[1], "mint") and not any_receiver.matches(wrong[0], wrong[1], "")


@pytest.mark.parametrize(
    ("tighter", "wider", "entry"),
    [
        (text(), text(until="2027-01-31T18:00:01Z"), "until"),
        (text(), text(budget="51"), "budget"),
        (text(), text(per_user="4"), "per_user"),
        (text(), text(functions='["mint", "burn"]'), "functions"),
        (text(senders=f'["{ALICE}"]'), text(), "senders"),
        (text(receivers=f'["{SHOP}"]'), text(), "receivers"),
        ("", text(), ""),
    ],
)
def test_later_larger_and_wider_is_looser(tighter: str, wider: str, entry: str) -> None:
    """A later end, a larger budget or count, a list with more and a new programme are looser, and their undoing not."""
    old, new = loads(tighter), loads(wider)
    name = f"programmes.launch.{entry}".rstrip(".")
    assert looser(old, new) == [name] and not looser(new, old)
    assert [change.name for change in changes(new, old)] == [name]


def test_every_entry_is_compared() -> None:
    """No entry of a programme can be changed without `policy apply` showing it."""
    old = Programme(datetime(2027, 1, 1, tzinfo=UTC), 5, 5, ("a",), ("b",), ("c",))
    for field in Programme.__struct_fields__:
        value = (
            datetime(2028, 1, 1, tzinfo=UTC) if field == "until" else 6 if field in ("budget", "per_user") else ("z",)
        )
        new = msgspec.structs.replace(old, **{field: value})
        (change,) = changes(Policy(programmes={"x": old}), Policy(programmes={"x": new}))
        assert change.name == f"programmes.x.{field}"


def test_another_order_is_shown() -> None:
    """Which programme pays first is a change, and none that is looser; one that is added or gone moves no other."""
    old, new = loads(text("a") + text("b") + text("c")), loads(text("c") + text("a") + text("d") + text("b"))
    shown = {change.name: (change.words, change.is_looser) for change in changes(old, new)}
    assert shown["programmes"] == ("in another order: a, b, c -> c, a, b", False)
    assert "programmes" not in {change.name for change in changes(old, loads(text("a") + text("d") + text("c")))}


@pytest.mark.parametrize(
    ("entries", "now_ms", "words"),
    [
        ({"budget": str(10**18)}, 1_801_418_399_999, "pays 100000000000000 of 1000000000000000000"),
        ({"budget": str(10**18)}, 1_801_418_400_000, "ended 2027-01-31T18:00:00"),
        ({"budget": "99999999999999"}, 0, "has no room"),
        ({"per_user": "0"}, 0, "has no room"),
    ],
)
def test_explain_says_which_programme_pays(entries: dict[str, str], now_ms: int, words: str) -> None:
    """A matching programme is a step that says whether it would pay; one that does not match is none."""
    rules = loads(text(functions='[""]', **entries) + text("other"))
    steps = list(explain(bytes(raw(transfer(wallet(1)))), rules, NETWORK, now_ms=now_ms))
    (step,) = [step for step in steps if step.name.startswith("programme")]
    assert step.name == "programme launch" and step.text.startswith(words) and all(item.passed for item in steps)
