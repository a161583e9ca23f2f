"""What must hold of what is pushed to clients' lines: what the chain did is told, once, truly, to who listens."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import inf

from cluster.history import FINAL_MS, Answered, Asked, Ended, Gone, History, Listening, Settled, Told

LIFETIME_MS = 55_000
"""A subscription to a status lives longer, as its 60 seconds begin at the service."""
TOLD_MS = 40_000
"""Within it what one line, or the chain, knows is told on all others that stand, though faults go on. Of such faults
each takes 8 s at most; an edge gives a silent notifier up within seconds, and a line to a client that ends says so."""
LATEST_MS = 100_000
"""The same for accounts, whose subscriptions have no end: whatever was broken, on a busy machine too."""
STATUS, ACCOUNT = "tx-status/", "address/"


def settled_at(history: History) -> float:
    """When everybody had been told; without a word of it what is there is not judged by it."""
    return max((each.at for each in history.of(Settled)), default=-inf)


def owed_statuses(history: History, settled: float) -> list[Listening]:
    """Subscriptions that have to have been told by then.

    What ends before somebody listens is not told; a line that ends knows that; a subscription ends by itself. Of the
    others those that stand when the run has settled, and those that stood for long after the end was known.
    """
    ends = {STATUS + name: each for each in history.of(Ended) for name in each.names}
    known, gone = _known(history), _gone(history)
    owed = []
    for each in subscriptions(history):
        end = ends.get(each.topic)
        if end is None or not _is_told(end, each):
            continue
        until = min(gone.get(each.line, inf), each.at + LIFETIME_MS)
        stands = each.at <= settled <= until and end.seen <= settled
        if stands or min(until, settled) >= known[end.payload] + TOLD_MS:
            owed.append(each)
    return owed


def owed_accounts(history: History, settled: float) -> dict[tuple[int, str], int]:
    """By line and topic the nonce that has to have been told by then: the next one after the last that was used."""
    used: dict[str, list[Ended]] = defaultdict(list)
    for ended in sorted(history.of(Ended), key=lambda each: -each.nonce):
        used[ACCOUNT + ended.sender].append(ended)
    known, gone = _known(history), _gone(history)
    owed: dict[tuple[int, str], int] = {}
    for each in subscriptions(history):
        until = gone.get(each.line, inf)
        for end in used.get(each.topic, ()):
            stands = each.at <= settled <= until and end.seen <= settled
            if _is_told(end, each) and (stands or min(until, settled) >= known[end.payload] + LATEST_MS):
                owed[each.line, each.topic] = end.nonce + 1
                break
    return owed


def untold(history: History, settled: float) -> Iterator[str]:
    """What was owed by then and has not come."""
    told = {(each.line, each.topic) for each in history.of(Told)}
    for each in owed_statuses(history, settled):
        if (each.line, each.topic) not in told:
            yield f"{each.topic} was never told on line {each.line}, which listened since {each.at}"
    heard: dict[tuple[int, str], int] = defaultdict(lambda: -1)
    for push in history.of(Told):
        heard[push.line, push.topic] = max(push.number, heard[push.line, push.topic])
    for (line, topic), nonce in owed_accounts(history, settled).items():
        if heard[line, topic] < nonce:
            yield f"{topic} used nonce {nonce - 1} and line {line} heard of {heard[line, topic]}"


def told_at_all(history: History) -> Iterator[str]:
    """Whoever listened on was told, as the chain has it."""
    return untold(history, settled_at(history))


def told_in_order(history: History) -> Iterator[str]:
    """Who is told of a sender's later nonce was told of the earlier ones it listens to; who is cut off knows that."""
    ended = {STATUS + name: each for each in history.of(Ended) for name in each.names}
    told: dict[int, list[Told]] = defaultdict(list)
    for each in history.of(Told):
        if each.topic in ended:
            told[each.line].append(each)
    for listening in subscriptions(history):
        end = ended.get(listening.topic)
        here = told[listening.line]
        if end is None or not _is_told(end, listening) or any(each.topic == listening.topic for each in here):
            continue
        for each in here:
            is_later = ended[each.topic].sender == end.sender and ended[each.topic].nonce > end.nonce
            if is_later and listening.at < each.at < listening.at + LIFETIME_MS:
                yield f"{listening.topic} was not told on line {listening.line}, and {each.topic} was, which came later"
                break


def told_each_state(history: History) -> Iterator[str]:
    """Who is told of a later state of an account was told of it after each earlier block that used a nonce."""
    used: dict[str, list[Ended]] = defaultdict(list)
    for ended in sorted(history.of(Ended), key=lambda each: each.nonce):
        used[ACCOUNT + ended.sender].append(ended)
    told: dict[tuple[int, str], list[int]] = defaultdict(list)
    for push in history.of(Told):
        told[push.line, push.topic].append(push.number)
    for each in subscriptions(history):
        numbers = sorted(told[each.line, each.topic])
        for end, last in _with_last(used.get(each.topic, [])):
            if _is_told(end, each) and numbers and numbers[-1] > last:
                place = bisect_right(numbers, end.nonce)
                if numbers[place] > last:
                    yield f"{each.topic} used nonce {end.nonce} and line {each.line} heard of {numbers[place]} first"


def _with_last(ends: list[Ended]) -> Iterator[tuple[Ended, int]]:
    """Each with the first nonce that a later block used: till then the account may say any nonce."""
    for end, following in pairwise(ends):
        if following.at > end.at and following.nonce > end.nonce:
            yield end, following.nonce


def told_once(history: History) -> Iterator[str]:
    """A subscription is told one status at most."""
    told = Counter((each.line, each.topic) for each in history.of(Told) if each.topic.startswith(STATUS))
    for (line, topic), times in told.items():
        if times > 1:
            yield f"{topic} was told {times} times on line {line}"


def told_the_truth(history: History) -> Iterator[str]:
    """What is told is what the chain says in the end."""
    truth = {name: ended.status for ended in history.of(Ended) for name in ended.names}
    for each in history.of(Told):
        if not each.topic.startswith(STATUS):
            continue
        said = truth.get(each.topic.removeprefix(STATUS), "nothing")
        # What another payload's use of the nonce keeps from running fails, and the chain never hears of it.
        if said != each.status and (said, each.status) != ("nothing", "fail"):
            yield f"{each.topic} was told as {each.status}, the chain says {said}"


def told_to_listeners(history: History) -> Iterator[str]:
    """Nobody is told what they do not listen to; whose submission was never answered may listen without knowing it."""
    listens = {(each.line, each.topic) for each in history.of(Listening)}
    answers = {each.op: each.said for each in history.of(Answered)}
    unsure = {each.line for each in history.of(Asked) if answers.get(each.op, "lost") == "lost"}
    for each in history.of(Told):
        is_topic = each.topic.startswith((STATUS, ACCOUNT))
        if is_topic and (each.line, each.topic) not in listens and each.line not in unsure:
            yield f"{each.topic} was told on line {each.line}, which does not listen to it"


def never_backwards(history: History) -> Iterator[str]:
    """On one connection an account's nonce and the sequence of statistics rise with every push."""
    newest: dict[tuple[int, str], int] = {}
    for each in history.of(Told):
        if not each.topic.startswith(STATUS):
            before = newest.get((each.line, each.topic), -1)
            if each.number <= before:
                yield f"{each.topic} went from {before} to {each.number} on line {each.line}"
            newest[each.line, each.topic] = each.number


def subscriptions(history: History) -> list[Listening]:
    """Each as it began: who subscribes again meanwhile changes nothing, and does not make it last longer."""
    first: dict[tuple[int, str], Listening] = {}
    for each in history.of(Listening):
        first.setdefault((each.line, each.topic), each)
    return list(first.values())


def _is_told(end: Ended, listening: Listening) -> bool:
    """Whether somebody listened before it could be known."""
    return listening.at < end.at + FINAL_MS


def _gone(history: History) -> dict[int, int]:
    return {record.line: record.at for record in history.of(Gone)}


def _known(history: History) -> dict[str, int]:
    """By payload when anybody outside is known to have heard of its end."""
    known = {each.payload: each.seen for each in history.of(Ended)}
    payloads = {STATUS + name: each.payload for each in history.of(Ended) for name in each.names}
    for told in history.of(Told):
        payload = payloads.get(told.topic)
        if payload is not None:
            known[payload] = min(known[payload], told.at)
    return known
