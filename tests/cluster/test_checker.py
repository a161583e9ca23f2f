"""Each rule of the checker is broken by a made-up history, and a good history breaks none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster import checker
from cluster.checker import LATE_MS, LATEST_MS, LIFETIME_MS, MINUTE_MS, Limits, check
from cluster.history import (
    Answered,
    Any_,
    Asked,
    Ended,
    Gone,
    History,
    Listening,
    Looked,
    Missed,
    Published,
    Read,
    Signed,
    Told,
)

FEE = 100
LIMITS = Limits(at_risk=3 * FEE, per_minute=5 * FEE)


def signed(seen: Any = "network", *, at: int = 1_200, nonce: int = 0, payload: str = "p0") -> Signed:
    return Signed(at=at, key="k", sender="a", nonce=nonce, payload=payload, fee=FEE, seen=seen)


def claimed(*records: Signed) -> list[Any_]:
    """These, and the claim that each payload needs."""
    each_once = {each.payload: each for each in records}.values()
    return [*records, *(signed("claim", at=each.at, nonce=each.nonce, payload=each.payload) for each in each_once)]


def asked(op: int, payload: str = "p0", *, nonce: int = 0, action: str = "relay") -> Asked:
    return Asked(at=1_000, op=op, action=action, sender="a", nonce=nonce, payload=payload)


def ended(payload: str = "p0", *, at: int = 2_000, nonce: int = 0, status: str = "success") -> Ended:
    names = payload, f"chain {payload}"
    return Ended(at=at, seen=at, payload=payload, sender="a", nonce=nonce, names=names, status=status)


def read(shard: int, height: int) -> Read:
    return Read(at=1, id=f"SaveBlock:{shard}:{height:x}:1", height=height)


GOOD: list[Any_] = [
    Listening(at=900, line=1, topic="tx-status/p0"),
    Listening(at=900, line=1, topic="tx-status/lost"),
    Listening(at=900, line=1, topic="address/a"),
    asked(1),
    Answered(at=1_300, op=1, said="accepted"),
    asked(2, "other"),
    Answered(at=1_300, op=2, said="refused", words="conflicting transaction"),
    asked(3, "p0"),
    Answered(at=1_400, op=3, said="lost"),
    *claimed(signed("reply"), signed("journal"), signed()),
    ended(),
    Told(at=2_100, line=1, topic="tx-status/p0", status="success"),
    Told(at=2_100, line=1, topic="tx-status/lost", status="fail"),
    Told(at=2_100, line=1, topic="address/a", number=1),
    Told(at=2_100, line=2, topic="networkStats", number=4),
    Told(at=2_350, line=2, topic="networkStats", number=6),
    Gone(at=2_000 + LATEST_MS, line=1),
    read(0, 7),
    read(0, 8),
    read(1, 3),
    Published(at=5, id=read(0, 7).id),
    Published(at=5, id=read(0, 8).id),
    Published(at=6, id=read(0, 8).id),
    Published(at=6, id=read(1, 3).id),
]


def test_a_good_history_passes() -> None:
    """Among other things an unanswered operation, a refusal, a payload that fails unseen, a second publication."""
    assert check(History(GOOD), LIMITS) == []


def refused(rule: str, *records: Any_) -> None:
    """This rule, and no other, refuses the good history with these records."""
    history = History([*GOOD, *records])
    named = {name for name in RULES if list(RULES[name](history))}
    assert named == {rule}, check(history, LIMITS)


RULES: dict[str, Any] = {
    "one_payload": checker.one_payload,
    "claimed_first": checker.claimed_first,
    "at_risk": lambda history: checker.at_risk(history, LIMITS.at_risk),
    "per_minute": lambda history: checker.per_minute(history, LIMITS.per_minute),
    "refused_in_words": checker.refused_in_words,
    "what_ran_has_not_failed": checker.what_ran_has_not_failed,
    "everything_ends": checker.everything_ends,
    "told_once": checker.told_once,
    "told_the_truth": checker.told_the_truth,
    "told_at_all": checker.told_at_all,
    "told_of_accounts": checker.told_of_accounts,
    "never_backwards": checker.never_backwards,
    "ids_once": checker.ids_once,
    "no_block_left_out": checker.no_block_left_out,
    "published": checker.published,
}


def test_all_rules_are_here() -> None:
    """A rule that is added to the checker needs a history that it refuses."""
    rules = {
        name
        for name, value in vars(checker).items()
        if callable(value) and getattr(value, "__module__", "") == checker.__name__ and not name.startswith("_")
    }
    assert rules - {"check", "subscriptions", "Limits"} == set(RULES)


@pytest.mark.parametrize("seen", ["reply", "network", "journal"])
def test_two_payloads(seen: str) -> None:
    """Signed for one nonce, wherever the second is seen."""
    refused("one_payload", *claimed(signed(seen, payload="second", at=3_000)))


def test_two_accepted() -> None:
    """Also when nobody has seen the second signature."""
    refused("one_payload", asked(4, "second"), Answered(at=2, op=4, said="accepted"), ended("second", at=2_500))


def test_signed_without_a_claim() -> None:
    """What no relayer has claimed must not be signed."""
    refused("claimed_first", signed("journal", nonce=1, payload="p1"))


def test_too_much_at_risk() -> None:
    """Four at once, where three may be: the fourth is signed before one of the others ends, or none does."""
    several = [signed(at=5_000 + nonce, nonce=nonce, payload=f"p{nonce}") for nonce in (1, 2, 3, 4)]
    refused("at_risk", *claimed(*several), ended("p1", nonce=1, at=5_005))
    refused("at_risk", *claimed(*several))
    history = History([*GOOD, *claimed(*several), ended("p1", nonce=1, at=5_004)])
    assert list(checker.at_risk(history, LIMITS.at_risk)) == []


def test_too_much_in_a_minute() -> None:
    """Six within a minute where five may be; in longer they may, which nobody knows better than by seconds."""
    ends = [ended(f"p{nonce}", nonce=nonce, at=100_001 + 11_000 * nonce) for nonce in range(1, 7)]
    close = [signed(at=100_000 + 11_000 * nonce, nonce=nonce, payload=f"p{nonce}") for nonce in range(1, 7)]
    refused("per_minute", *claimed(*close), *ends)
    almost = [
        signed(at=100_000 + (MINUTE_MS - LATE_MS) // 5 * nonce, nonce=nonce, payload=f"p{nonce}")
        for nonce in range(1, 7)
    ]
    assert list(checker.per_minute(History(claimed(*almost)), LIMITS.per_minute)) == []
    far = [signed(at=100_000 + MINUTE_MS // 5 * nonce, nonce=nonce, payload=f"p{nonce}") for nonce in range(1, 7)]
    assert list(checker.per_minute(History(claimed(*far)), LIMITS.per_minute)) == []


@pytest.mark.parametrize("words", ["", "internal error"])
def test_refused_without_words(words: str) -> None:
    """A refusal says why."""
    refused("refused_in_words", asked(4), Answered(at=2, op=4, said="refused", words=words))


@pytest.mark.parametrize("action", ["relay", "sign", "broadcast"])
def test_what_ran_is_refused(action: str) -> None:
    """The bytes that used a nonce are not too late for it; other bytes are, and what nobody claimed may be told so."""
    words = "nonce too low: the next nonce is 1"
    again = Answered(at=3_000, op=4, said="refused", words=words)
    refused("what_ran_has_not_failed", asked(4, action=action), again)
    assert check(History([*GOOD, asked(4, "other", action=action), again]), LIMITS) == []
    unclaimed = [asked(4, "own", nonce=1, action=action), ended("own", nonce=1), again]
    assert check(History([*GOOD, *unclaimed]), LIMITS) == []


@pytest.mark.parametrize("found", [None, ("pending", ""), ("404", "unknown"), ("dropped", "")])
def test_accepted_and_lost(found: tuple[str, str] | None) -> None:
    """What was accepted is on the chain, or the service says in words what became of it; else it is lost."""
    accepted = [asked(4, "p1", nonce=1), Answered(at=2, op=4, said="accepted")]
    looked = [Looked(at=3, payload="p1", state=found[0], words=found[1])] if found is not None else []
    refused("everything_ends", *accepted, *looked)
    said = Looked(at=4, payload="p1", state="dropped", words="its nonce was used by another")
    assert check(History([*GOOD, *accepted, said]), LIMITS) == []


def test_told_twice() -> None:
    """One subscription, one status; another connection is another subscription."""
    again = Told(at=3_000, line=1, topic="tx-status/p0", status="success")
    refused("told_once", again)
    assert check(History([*GOOD, Told(at=3_000, line=3, topic=again.topic, status="success")]), LIMITS) == []


@pytest.mark.parametrize(("name", "status"), [("chain p0", "fail"), ("never", "success")])
def test_told_wrong(name: str, status: str) -> None:
    """A failure of what succeeded, a success of what the chain does not know."""
    refused("told_the_truth", Told(at=3_000, line=3, topic=f"tx-status/{name}", status=status))


def test_not_told() -> None:
    """On the same line the next nonce was told, so that the first one should have been, unless it ended before."""
    later = [*claimed(signed(nonce=1, payload="p1")), ended("p1", nonce=1, at=4_000)]
    listening = Listening(at=950, line=3, topic="tx-status/chain p0")
    told = Told(at=4_500, line=3, topic="tx-status/chain p1", status="success")
    refused("told_at_all", *later, listening, told)
    for right in (
        [listening],
        [listening, Told(at=4_500, line=4, topic=told.topic, status="success")],
        [Listening(at=2_001, line=3, topic=listening.topic), told],
        [Listening(at=4_499 - LIFETIME_MS, line=3, topic=listening.topic), listening, told],
        [listening, Told(at=950 + LIFETIME_MS, line=3, topic=told.topic, status="success")],
    ):
        assert list(checker.told_at_all(History([*GOOD, *later, *right]))) == []


def test_account_not_told() -> None:
    """Who listens to an account hears of its newest nonce."""
    listening = Listening(at=950, line=3, topic="address/a")
    early = Told(at=960, line=3, topic="address/a", number=0)
    refused("told_of_accounts", listening, early, Gone(at=2_001 + LATEST_MS, line=3))


@pytest.mark.parametrize(("topic", "line"), [("address/a", 1), ("networkStats", 2)])
def test_backwards(topic: str, line: int) -> None:
    """A nonce or a sequence that falls."""
    refused("never_backwards", Told(at=9_000, line=line, topic=topic, number=0))


def test_an_id_twice() -> None:
    """A consumer of the hub knows ids."""
    refused("ids_once", read(0, 7))


def test_a_block_is_left_out() -> None:
    """A hole between heights, of which the consumer was not told."""
    far = read(1, 5)
    refused("no_block_left_out", far, Published(at=7, id=far.id))
    told, came = Missed(at=8, why="gone from the journal"), [far, Published(at=7, id=far.id)]
    refused("no_block_left_out", *came, told)
    assert check(History([*GOOD, told, *came]), LIMITS) == []


def test_not_published() -> None:
    """Consumers of the hub have it, the broker does not."""
    refused("published", read(0, 9))
    nothing = [record for record in GOOD if not isinstance(record, Published)]
    assert len(list(checker.published(History(nothing)))) == 3


def test_a_history_is_kept(tmp_path: Path) -> None:
    """What is saved is what was there."""
    History(GOOD).save(tmp_path / "history")
    assert History.load(tmp_path / "history").records == GOOD
