"""What must hold of every history: a pure function of it, in the manner of Jepsen.

What the chain did is in the history, and all that clients, the hub's consumer and the broker say is held against it.
Each rule returns sentences about what breaks it. A rule may let something pass where the history does not say enough,
as who signed at what moment; it never blames a service that did right. A history that says too little breaks a rule
of its own: so nothing passes because there was nothing to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from cluster import stream, submissions, subscriptions
from cluster.history import Answered, History, Made, Published, Read, Settled, Signed, Told

Rule = Callable[[History], Iterable[str]]
LEAST = 1


class Limits(NamedTuple):
    """Of each key; and of each kind of thing how many there have to be to judge."""

    at_risk: int
    per_minute: int
    least: int = LEAST


def check(history: History, limits: Limits) -> list[str]:
    """Everything that is wrong, in words, with the name of the rule before them."""
    return [f"{name}: {wrong}" for name, rule in rules(limits).items() for wrong in rule(history)]


def rules(limits: Limits) -> dict[str, Rule]:
    """All rules, by name."""
    return {
        "one_payload": submissions.one_payload,
        "claimed_first": submissions.claimed_first,
        "acknowledged_is_claimed": submissions.acknowledged_is_claimed,
        "at_risk": partial(submissions.at_risk, most=limits.at_risk),
        "per_minute": partial(submissions.per_minute, most=limits.per_minute),
        "refused_in_words": submissions.refused_in_words,
        "what_ran_has_not_failed": submissions.what_ran_has_not_failed,
        "everything_answered": submissions.everything_answered,
        "everything_ends": submissions.everything_ends,
        "told_once": subscriptions.told_once,
        "told_the_truth": subscriptions.told_the_truth,
        "told_to_listeners": subscriptions.told_to_listeners,
        "told_at_all": subscriptions.told_at_all,
        "told_in_order": subscriptions.told_in_order,
        "told_each_state": subscriptions.told_each_state,
        "never_backwards": subscriptions.never_backwards,
        "ids_once": stream.ids_once,
        "no_block_left_out": stream.no_block_left_out,
        "block_first": stream.block_first,
        "published": stream.published,
        "published_was_read": stream.published_was_read,
        "published_again": stream.published_again,
        "enough": partial(enough, least=limits.least),
    }


def judged(history: History) -> dict[str, int]:
    """How much of each kind there was to judge."""
    settled = subscriptions.settled_at(history)
    answers = [each.said for each in history.of(Answered)]
    return {
        "answers": sum(said != "lost" for said in answers),
        "acknowledgements": answers.count("accepted"),
        "signatures seen": sum(each.seen in ("reply", "network") for each in history.of(Signed)),
        "statuses owed": len(subscriptions.owed_statuses(history, settled)),
        "accounts owed": len(subscriptions.owed_accounts(history, settled)),
        "statistics": sum(each.topic == "networkStats" for each in history.of(Told)),
        "blocks made": sum(each.height for each in history.of(Made)),
        "events read": len(history.of(Read)),
        "events published": len(history.of(Published)),
        "ends": len(history.of(Settled)),
    }


def enough(history: History, least: int) -> Iterator[str]:
    """Of everything there was something to judge; the run has one end."""
    for kind, number in judged(history).items():
        if number < (1 if kind == "ends" else least):
            yield f"too little to judge: {kind}, {number}"
