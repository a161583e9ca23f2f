"""Each rule of the checker is broken by a made-up history, and a good history breaks none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cluster import stream, submissions, subscriptions
from cluster.checker import Limits, check, judged, rules
from cluster.history import (
    FINAL_MS,
    Answered,
    Any_,
    Asked,
    Ended,
    Gone,
    History,
    Listening,
    Looked,
    Made,
    Missed,
    Published,
    Read,
    Settled,
    Signed,
    Struck,
    Told,
)
from cluster.stream import AFTER_MS, BEFORE_MS, NOTIFIERS, OF_BLOCKS
from cluster.submissions import LATE_MS, MINUTE_MS
from cluster.subscriptions import LATEST_MS, LIFETIME_MS, TOLD_MS

FEE = 100
LIMITS = Limits(at_risk=3 * FEE, per_minute=5 * FEE)


def signed(seen: Any = "network", *, at: int = 1_200, nonce: int = 0, payload: str = "p0", fee: int = FEE) -> Signed:
    return Signed(at=at, key="k", sender="a", nonce=nonce, payload=payload, fee=fee, seen=seen)


def claimed(*records: Signed) -> list[Any_]:
    """These, and the claim that each payload needs."""
    each_once = {each.payload: each for each in records}.values()
    return [*records, *(msgspec.structs.replace(each, seen="claim") for each in each_once)]


def asked(op: int, payload: str = "p0", *, nonce: int = 0, action: str = "relay", line: int = 1) -> Asked:
    return Asked(at=1_000, op=op, action=action, sender="a", nonce=nonce, payload=payload, line=line)


def again(op: int, payload: str = "p0", *, action: str = "relay", words: str = "") -> list[Any_]:
    """Asked and refused."""
    return [asked(op, payload, action=action), Answered(at=3_000, op=op, said="refused", words=words)]


def ended(payload: str = "p0", *, at: int = 2_000, seen: int = 0, nonce: int = 0) -> Ended:
    names = payload, f"chain {payload}"
    return Ended(at=at, seen=seen or at, payload=payload, sender="a", nonce=nonce, names=names, status="success")


SHARDS, BLOCKS = ("0", "1", "4294967295"), 4
SETTLED_MS = 2_500


def read(topic: str, shard: str, height: int, name: str = "block") -> Read:
    is_saved = topic == "SaveBlock"
    id_ = f"{topic}:{shard}:{name} {height}:1"
    return Read(at=1, id=id_, height=height if is_saved else None, made=600 * height if is_saved else 0)


def out(*reads: Read) -> list[Published]:
    """The same from the broker."""
    return [Published(at=5, id=each.id, height=each.height) for each in reads]


def made(shard: str) -> list[Read]:
    """What is told of a shard; executed is a block with the next one, final after that."""
    found = [Read(at=1, id=f"SaveRoundsInfo:{shard}:rounds:1")]
    for height in range(1, BLOCKS + 2):
        found += [read("SaveBlock", shard, height)] * (height <= BLOCKS)
        found += [read("ExecutedBlock", shard, height - 1), read("FinalizedBlock", shard, height - 1)] * (height > 1)
    return found


READ = [each for shard in SHARDS for each in made(shard)]
GOOD: list[Any_] = [
    Listening(at=900, line=1, topic="tx-status/p0"),
    Listening(at=900, line=1, topic="tx-status/lost"),
    Listening(at=900, line=1, topic="address/a"),
    Listening(at=900, line=3, topic="tx-status/chain p0"),
    Listening(at=900, line=3, topic="tx-status/never"),
    Listening(at=900, line=3, topic="address/a"),
    asked(1),
    Answered(at=1_300, op=1, said="accepted"),
    asked(2, "other"),
    Answered(at=1_300, op=2, said="refused", words="conflicting transaction"),
    asked(3, "p0", line=4),
    Answered(at=1_400, op=3, said="lost"),
    Gone(at=1_400, line=4),
    *claimed(signed("reply"), signed("journal"), signed()),
    ended(),
    Told(at=2_100, line=1, topic="tx-status/p0", status="success"),
    Told(at=2_100, line=3, topic="tx-status/chain p0", status="success"),
    Told(at=2_100, line=1, topic="tx-status/lost", status="fail"),
    Told(at=2_100, line=1, topic="address/a", number=1),
    Told(at=2_100, line=3, topic="address/a", number=1),
    Told(at=2_100, line=2, topic="networkStats", number=4),
    Told(at=2_350, line=2, topic="networkStats", number=6),
    *READ,
    *(Made(at=8_000, shard=shard, height=BLOCKS) for shard in SHARDS),
    Settled(at=SETTLED_MS),
    *(Gone(at=SETTLED_MS + 10, line=line) for line in (1, 2, 3)),
    *out(*READ, READ[0], READ[1]),
]
NAMES = set(rules(LIMITS))


def test_a_good_history_passes() -> None:
    """Among other things an unanswered operation, a refusal, a payload that fails unseen, a second publication."""
    assert check(History(GOOD), LIMITS) == []


def broken(history: History) -> set[str]:
    """Names of the rules that refuse it."""
    return {name for name, rule in rules(LIMITS).items() if list(rule(history))}


def refused(rule: str, *records: Any_) -> None:
    """This rule, and no other, refuses the good history with these records."""
    history = History([*GOOD, *records])
    assert broken(history) == {rule}, check(history, LIMITS)


def without(is_lost: Callable[[Any_], bool]) -> History:
    """The good history with some records lost."""
    kept = [record for record in GOOD if not is_lost(record)]
    assert len(kept) < len(GOOD)
    return History(kept)


def test_all_rules_are_here() -> None:
    """Whatever finds something wrong is asked for it."""
    found = {
        name
        for module in (stream, submissions, subscriptions)
        for name, value in vars(module).items()
        if getattr(value, "__annotations__", {}).get("return") == "Iterator[str]"
    }
    assert found - {"untold"} == NAMES - {"enough"}


@pytest.mark.parametrize("seen", ["reply", "network", "journal"])
def test_two_payloads(seen: str) -> None:
    """Signed for one nonce, wherever the second is seen."""
    refused("one_payload", *claimed(signed(seen, payload="second", at=3_000)))


def test_two_accepted() -> None:
    """Also when nobody has seen the second signature."""
    refused(
        "one_payload",
        asked(4, "second", action="broadcast"),
        Answered(at=2, op=4, said="accepted"),
        ended("second", at=2_500),
    )


def test_signed_without_a_claim() -> None:
    """What no relayer has claimed must not be signed."""
    refused("claimed_first", signed("journal", nonce=1, payload="p1"))


@pytest.mark.parametrize("action", ["relay", "sign"])
def test_acknowledged_without_a_claim(action: str) -> None:
    """What is acknowledged to be signed is claimed, though nobody has seen a signature; a broadcast is not."""
    answer, end = Answered(at=3_000, op=4, said="accepted"), ended("own", nonce=1, at=4_000)
    refused("acknowledged_is_claimed", asked(4, "own", nonce=1, action=action), answer, end)
    assert check(History([*GOOD, asked(4, "own", nonce=1, action="broadcast"), answer, end]), LIMITS) == []
    let_go = Looked(at=4_000, payload="own", state="dropped", words="its relayer refused it")
    assert check(History([*GOOD, asked(4, "own", nonce=1, action=action), answer, let_go]), LIMITS) == []


def test_too_much_at_risk() -> None:
    """Four at once, where three may be: the fourth is signed before one of the others ends, or none does."""
    several = [signed(at=5_000 + nonce, nonce=nonce, payload=f"p{nonce}") for nonce in (1, 2, 3, 4)]
    refused("at_risk", *claimed(*several), ended("p1", nonce=1, at=5_005))
    refused("at_risk", *claimed(*several))
    history = History([*GOOD, *claimed(*several), ended("p1", nonce=1, at=5_004)])
    assert list(submissions.at_risk(history, LIMITS.at_risk)) == []


def test_a_unit_too_much() -> None:
    """What is allowed may be used up, and not a unit more: at risk at once, and in a minute."""
    within = [signed(at=5_000 + nonce, nonce=nonce, payload=f"p{nonce}") for nonce in (1, 2)]
    last, beyond = (signed(at=5_003, nonce=3, payload="p3", fee=fee) for fee in (FEE, FEE + 1))
    assert check(History([*GOOD, *claimed(*within, last)]), LIMITS) == []
    refused("at_risk", *claimed(*within, beyond))
    ends = [ended(f"p{nonce}", nonce=nonce, at=10_000 * nonce + 1) for nonce in (1, 2, 3, 4)]
    four = [signed(at=10_000 * nonce, nonce=nonce, payload=f"p{nonce}") for nonce in (1, 2, 3)]
    last, beyond = (signed(at=40_000, nonce=4, payload="p4", fee=fee) for fee in (FEE, FEE + 1))
    assert check(History([*GOOD, *claimed(*four, last), *ends]), LIMITS) == []
    refused("per_minute", *claimed(*four, beyond), *ends)


def test_too_much_in_a_minute() -> None:
    """Six within a minute where five may be; in longer they may, which nobody knows better than by seconds."""
    ends = [ended(f"p{nonce}", nonce=nonce, at=100_001 + 11_000 * nonce) for nonce in range(1, 7)]
    close = [signed(at=100_000 + 11_000 * nonce, nonce=nonce, payload=f"p{nonce}") for nonce in range(1, 7)]
    refused("per_minute", *claimed(*close), *ends)
    almost = [
        signed(at=100_000 + (MINUTE_MS - LATE_MS) // 5 * nonce, nonce=nonce, payload=f"p{nonce}")
        for nonce in range(1, 7)
    ]
    assert list(submissions.per_minute(History(claimed(*almost)), LIMITS.per_minute)) == []
    far = [signed(at=100_000 + MINUTE_MS // 5 * nonce, nonce=nonce, payload=f"p{nonce}") for nonce in range(1, 7)]
    assert list(submissions.per_minute(History(claimed(*far)), LIMITS.per_minute)) == []


@pytest.mark.parametrize("words", ["", "internal error"])
def test_refused_without_words(words: str) -> None:
    """A refusal says why."""
    refused("refused_in_words", *again(4, words=words))


@pytest.mark.parametrize("action", ["relay", "sign", "broadcast"])
def test_what_ran_is_refused(action: str) -> None:
    """The bytes that used a nonce are not too late for it; other bytes are, and what nobody claimed may be told so."""
    words = "nonce too low: the next nonce is 1"
    refused("what_ran_has_not_failed", *again(4, action=action, words=words))
    assert check(History([*GOOD, *again(4, "other", action=action, words=words)]), LIMITS) == []
    unclaimed = [*again(4, "own", action=action, words=words), ended("own", nonce=1, at=4_000)]
    assert check(History([*GOOD, *unclaimed]), LIMITS) == []


@pytest.mark.parametrize("found", [None, ("pending", ""), ("404", "unknown"), ("dropped", "")])
def test_accepted_and_lost(found: tuple[str, str] | None) -> None:
    """What was accepted is on the chain, or the service says in words what became of it; else it is lost."""
    accepted = [asked(4, "p1", nonce=1, action="broadcast"), Answered(at=2, op=4, said="accepted")]
    looked = [Looked(at=3, payload="p1", state=found[0], words=found[1])] if found is not None else []
    refused("everything_ends", *accepted, *looked)
    said = Looked(at=4, payload="p1", state="dropped", words="its nonce was used by another")
    assert check(History([*GOOD, *accepted, said]), LIMITS) == []


def test_told_twice() -> None:
    """One subscription, one status; another connection is another subscription, as the good history has it."""
    refused("told_once", Told(at=3_000, line=1, topic="tx-status/p0", status="success"))


@pytest.mark.parametrize(("name", "status"), [("chain p0", "fail"), ("never", "success")])
def test_told_wrong(name: str, status: str) -> None:
    """A failure of what succeeded, a success of what the chain does not know."""
    topic = f"tx-status/{name}"
    refused("told_the_truth", Listening(at=2_600, line=5, topic=topic), Told(at=3, line=5, topic=topic, status=status))


@pytest.mark.parametrize("topic", ["tx-status/p0", "address/a"])
def test_told_on_another_line(topic: str) -> None:
    """Nobody hears what they do not listen to, but for who had no answer: with it the topic would have been told."""
    told = Told(at=2_300, line=2, topic=topic, status="success", number=1)
    refused("told_to_listeners", told)
    assert check(History([*GOOD, msgspec.structs.replace(told, line=4)]), LIMITS) == []


@pytest.mark.parametrize(
    ("topic", "bound"), [("tx-status/chain p0", TOLD_MS), ("tx-status/p0", TOLD_MS), ("address/a", LATEST_MS)]
)
def test_not_told(topic: str, bound: int) -> None:
    """Who listens when the run has settled has been told; who was cut off before, if that was long after the end."""
    listening = Listening(at=1_950, line=5, topic=topic)
    refused("told_at_all", listening)
    refused("told_at_all", listening, Gone(at=SETTLED_MS, line=5))
    later = Settled(at=2_001 + bound)
    assert "told_at_all" in broken(History([*GOOD, listening, later, Gone(at=2_000 + bound, line=5)]))
    for right in (
        [listening, Gone(at=SETTLED_MS - 1, line=5)],
        [Listening(at=2_000 + FINAL_MS, line=5, topic=topic), Settled(at=2_001 + FINAL_MS)],
        [listening, Told(at=9, line=5, topic=topic, status="success", number=1)],
        [listening, later, Gone(at=1_999 + bound, line=5)],
    ):
        assert "told_at_all" not in broken(History([*GOOD, *right]))


def test_a_subscription_has_an_end() -> None:
    """Nothing is owed to a subscription that has run out when the run settles."""
    listening = Listening(at=1_950, line=5, topic="tx-status/p0")
    late = ended(at=LIFETIME_MS)
    for settled, owed in ((1_950 + LIFETIME_MS, True), (1_951 + LIFETIME_MS, False)):
        history = History([listening, late, Settled(at=settled)])
        assert bool(subscriptions.owed_statuses(history, settled)) == owed


def test_an_old_nonce_is_told() -> None:
    """Who listens to an account hears of its newest nonce."""
    early = Told(at=960, line=5, topic="address/a", number=0)
    refused("told_at_all", Listening(at=950, line=5, topic="address/a"), early)


def test_not_told_in_order() -> None:
    """On the same line the next nonce was told, so that the first one should have been, unless it ended before."""
    later = [*claimed(signed(nonce=1, payload="p1")), ended("p1", nonce=1, at=2_200, seen=4_000)]
    also, gone = Listening(at=2_210, line=5, topic="tx-status/chain p1"), Gone(at=2_450, line=5)
    listening = Listening(at=950, line=5, topic="tx-status/chain p0")
    told = Told(at=2_400, line=5, topic="tx-status/chain p1", status="success")
    refused("told_in_order", *later, listening, also, told, gone)
    for right in (
        [listening],
        [listening, Told(at=2_400, line=6, topic=told.topic, status="success")],
        [Listening(at=2_000 + FINAL_MS, line=5, topic=listening.topic), told],
        [Listening(at=2_399 - LIFETIME_MS, line=5, topic=listening.topic), listening, told],
        [listening, Told(at=950 + LIFETIME_MS, line=5, topic=told.topic, status="success")],
    ):
        assert list(subscriptions.told_in_order(History([*GOOD, *later, *right]))) == []


def test_a_state_is_left_out() -> None:
    """After each block that used a nonce, or several, an account is told, but for who began to listen only then."""
    later = [ended(f"p{nonce}", nonce=nonce, at=at, seen=4_000) for nonce, at in ((1, 3_000), (2, 3_000), (3, 4_000))]
    first, both, last = (Told(at=9, line=1, topic="address/a", number=number) for number in (2, 3, 4))
    for wrong in ([last], [first, last]):
        assert "told_each_state" in broken(History([*GOOD, *later, *wrong]))
    for right in ([], [both], [both, last]):
        assert broken(History([*GOOD, *later, *right])) == set()
    behind = [Listening(at=at, line=5, topic="address/a") for at in (3_000 + FINAL_MS - 1, 3_000 + FINAL_MS)]
    told = msgspec.structs.replace(last, line=5)
    assert [len(list(subscriptions.told_each_state(History([*later, each, told])))) for each in behind] == [1, 0]


@pytest.mark.parametrize("falls", [0, 1])
@pytest.mark.parametrize(("topic", "line", "newest"), [("address/a", 1, 1), ("networkStats", 2, 6)])
def test_backwards(topic: str, line: int, newest: int, falls: int) -> None:
    """A nonce or a sequence that falls, or comes twice."""
    refused("never_backwards", Told(at=9_000, line=line, topic=topic, number=newest - falls))


def test_an_id_twice() -> None:
    """A consumer of the hub knows ids."""
    refused("ids_once", read("SaveBlock", "0", 2))


@pytest.mark.parametrize("topic", OF_BLOCKS)
@pytest.mark.parametrize("height", [1, 2, BLOCKS])
def test_an_event_of_a_block_is_left_out(topic: str, height: int) -> None:
    """The first one, one between, the last: the chain has the block, the consumer was told of no gap."""
    lost = read(topic, "1", height)
    history = without(lambda record: record == lost)
    said = " ".join(check(history, LIMITS))
    assert f"{topic} of shard 1 never came for 1 blocks: [{height}]" in said
    assert {"no_block_left_out", "published_was_read"} - broken(history) == set()


def test_a_gap_is_told() -> None:
    """Just there, and of nothing that came: else it explains nothing."""
    lost = [read("SaveBlock", "1", 3), read("ExecutedBlock", "1", 2), read("FinalizedBlock", "1", 2)]
    first = GOOD.index(lost[0])
    missed = Missed(at=1, why="gone from the journal")
    rest = [record for record in GOOD[first:] if record not in lost]
    assert check(History([*GOOD[:first], missed, *rest]), LIMITS) == []
    refused("no_block_left_out", missed)
    assert "no_block_left_out" in broken(History([*GOOD[:first], *rest, missed]))
    assert "no_block_left_out" in broken(History([*GOOD[:first], missed, *rest, missed]))


@pytest.mark.parametrize("topic", ["ExecutedBlock", "FinalizedBlock"])
def test_before_its_block(topic: str) -> None:
    """A finality or an execution comes after the block that it is of."""
    early = read(topic, "1", 2)
    rest = [record for record in GOOD if record != early]
    rest.insert(rest.index(read("SaveBlock", "1", 2)), early)
    assert broken(History(rest)) == {"block_first"}


def test_two_blocks_of_a_height() -> None:
    """The chain takes nothing back."""
    other = read("SaveBlock", "0", 2, "other")
    refused("block_first", other, *out(other))


def test_not_published() -> None:
    """Consumers of the hub have it, the broker does not."""
    far = read("SaveBlock", "0", 9)
    refused("published", far)
    nothing = without(lambda record: isinstance(record, Published))
    assert broken(nothing) == {"published", "enough"}


def test_published_and_not_read() -> None:
    """The broker has a block that the hub's consumer has not; of later ones than the run's end that may be."""
    refused("published_was_read", *out(read("SaveBlock", "0", 2, "other")))
    assert check(History([*GOOD, *out(read("SaveBlock", "0", BLOCKS + 1))]), LIMITS) == []


def test_published_too_often() -> None:
    """Both notifiers may do it; more often only with faults between them and the broker at that time."""
    event = READ[1]
    several = out(*[event] * (2 * NOTIFIERS))
    fault = Struck(at=event.made, kind="kill", victim="notifier0>redis", seconds=1.0)
    other, early, late = (
        msgspec.structs.replace(fault, **changes)
        for changes in (
            {"victim": "edge0"}, {"at": event.made + BEFORE_MS + 1}, {"at": event.made - 1_000 - AFTER_MS - 1},
        )
    )  # fmt: skip
    assert check(History([*GOOD, *several[:2], fault]), LIMITS) == []
    refused("published_again", *several, fault)
    for useless in (other, early, late):
        refused("published_again", several[0], useless)


def is_status(record: Any_) -> bool:
    return isinstance(record, Told) and record.topic.startswith("tx-status/")


LOST: dict[str, tuple[Callable[[Any_], bool], set[str], str]] = {
    "no status is told": (is_status, {"told_at_all"}, "was never told on line"),
    "no status is told on one line": (lambda each: is_status(each) and each.line == 3, {"told_at_all"}, "on line 3"),
    "no account is told": (
        lambda each: isinstance(each, Told) and each.topic == "address/a", {"told_at_all"}, "heard of -1",
    ),
    "no statistics": (
        lambda each: isinstance(each, Told) and each.topic == "networkStats", {"enough"}, "statistics, 0",
    ),
    "the hub's consumer hears nothing any more": (
        lambda each: each in READ[len(READ) // 2 :], {"no_block_left_out", "published_was_read"}, "of shard 4294967295",
    ),
    "nothing of a shard": (
        lambda each: isinstance(each, Read) and ":0:" in each.id, {"no_block_left_out", "published_was_read"},
        "of shard 0 never came for 4 blocks",
    ),
    "no finality": (
        lambda each: isinstance(each, Read) and each.id.startswith("FinalizedBlock"),
        {"no_block_left_out", "published_was_read"}, "FinalizedBlock of shard 0",
    ),
    "no execution": (
        lambda each: isinstance(each, Read) and each.id.startswith("ExecutedBlock"),
        {"no_block_left_out", "published_was_read"}, "ExecutedBlock of shard 0",
    ),
    "nothing is answered": (
        lambda each: isinstance(each, Answered), {"everything_answered", "enough"}, "was answered 0 times",
    ),
    "one answer is missing": (
        lambda each: isinstance(each, Answered) and each.op == 2, {"everything_answered"}, "operation 2",
    ),
    "one question is missing": (
        lambda each: isinstance(each, Asked) and each.op == 2, {"everything_answered"}, "nobody asked",
    ),
    "one shard is not asked for": (
        lambda each: isinstance(each, Made) and each.shard == "1", {"no_block_left_out"}, "of what shard 1 made",
    ),
    "the chain is not asked": (lambda each: isinstance(each, Made), {"no_block_left_out", "enough"}, "blocks made, 0"),
    "the chain executed nothing": (
        lambda each: isinstance(each, Ended), {"everything_ends", "told_the_truth", "enough"}, "statuses owed, 0",
    ),
    "it never settles": (lambda each: isinstance(each, Settled), {"enough"}, "ends, 0"),
    "everything": (lambda each: True, {"enough"}, "answers, 0"),
}  # fmt: skip


@pytest.mark.parametrize("what", LOST)
def test_something_is_lost(what: str) -> None:
    """A good history from which all of a kind is taken, or a part of it, is no good history; what is said names it."""
    is_lost, named, words = LOST[what]
    history = without(is_lost)
    assert broken(history) == named, check(history, LIMITS)
    assert words in " ".join(check(history, LIMITS))


def test_everything_is_published_ten_times() -> None:
    """Without a fault that explains it."""
    refused("published_again", *[record for record in GOOD if isinstance(record, Published)] * 9)


def test_an_answer_too_much() -> None:
    """To an operation that had one."""
    refused("everything_answered", Answered(at=1_500, op=1, said="accepted"))


def test_too_little_to_judge() -> None:
    """It is counted, and as many of each kind as one likes are wanted; of the end there is one."""
    numbers = judged(History(GOOD))
    assert numbers.pop("ends") == 1
    least = min(numbers.values())
    assert least > 0
    assert check(History(GOOD), LIMITS._replace(least=least)) == []
    assert check(History(GOOD), LIMITS._replace(least=least + 1))


def test_a_history_is_kept(tmp_path: Path) -> None:
    """What is saved is what was there."""
    History(GOOD).save(tmp_path / "history")
    assert History.load(tmp_path / "history").records == GOOD
