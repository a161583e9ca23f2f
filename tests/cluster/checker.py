"""What must hold of every history: a pure function of it, in the manner of Jepsen.

Each rule returns sentences about what breaks it. A rule may let something pass where the history does not say enough,
as who signed at what moment; it never blames a service that did right.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cluster.history import (
    Answered,
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

MINUTE_MS = 60_000
LATE_MS = 3_000
"""A claim's time is later than what it took of the budget by as much as the server took to tell its clock, which is
given up after so long: one that left the budget a minute ago seems to be in it. The server's own time of the claim
would be later still, by what the claim waited for its turn."""
LIFETIME_MS = 55_000
"""A subscription to a status lives longer, as its 60 seconds begin at the service."""
LATEST_MS = 100_000
"""Whatever was broken, what is known is told by then, on a busy machine too."""
STATUS, ACCOUNT = "tx-status/", "address/"
REFUSED_LATER = {"fail", "superseded", "dropped", "written off"}


class Limits(NamedTuple):
    """Of each key."""

    at_risk: int
    per_minute: int


def check(history: History, limits: Limits) -> list[str]:
    """Everything that is wrong, in words."""
    return [
        *one_payload(history),
        *claimed_first(history),
        *at_risk(history, limits.at_risk),
        *per_minute(history, limits.per_minute),
        *refused_in_words(history),
        *what_ran_has_not_failed(history),
        *everything_ends(history),
        *told_once(history),
        *told_the_truth(history),
        *told_at_all(history),
        *told_of_accounts(history),
        *never_backwards(history),
        *ids_once(history),
        *no_block_left_out(history),
        *published(history),
    ]


def one_payload(history: History) -> Iterator[str]:
    """No nonce of a sender has two payloads that were signed or accepted."""
    payloads: dict[tuple[str, int], set[str]] = defaultdict(set)
    asked = {record.op: record for record in history.of(Asked)}
    for signed in history.of(Signed):
        payloads[signed.sender, signed.nonce].add(signed.payload)
    for answer in history.of(Answered):
        if answer.said == "accepted":
            submitted = asked[answer.op]
            payloads[submitted.sender, submitted.nonce].add(submitted.payload)
    for (sender, nonce), found in payloads.items():
        if len(found) > 1:
            yield f"nonce {nonce} of {sender} has {len(found)} payloads: {sorted(found)}"


def claimed_first(history: History) -> Iterator[str]:
    """Whatever was signed is claimed on the database, which has survived every fail-over."""
    claims = {(each.sender, each.nonce, each.payload) for each in history.of(Signed) if each.seen == "claim"}
    for each in history.of(Signed):
        if (each.sender, each.nonce, each.payload) not in claims:
            yield f"nonce {each.nonce} of {each.sender} is signed ({each.seen}) and nobody has claimed it"


def at_risk(history: History, most: int) -> Iterator[str]:
    """Of no key more is signed and not yet executed than its policy allows.

    A signature counts from when anybody saw it to the time of the block that executed it.
    """
    ends = {ended.payload: ended.at for ended in history.of(Ended)}
    first: dict[str, Signed] = {}
    for each in history.of(Signed):
        if each.seen in ("reply", "network") and (each.payload not in first or each.at < first[each.payload].at):
            first[each.payload] = each
    steps: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for payload, each in first.items():
        end = ends.get(payload)
        if end is None or end > each.at:
            steps[each.key].append((each.at, each.fee))
            if end is not None:
                steps[each.key].append((end, -each.fee))
    for key, changes in steps.items():
        sum_, highest = 0, 0
        for _, change in sorted(changes):  # at the same moment what ended counts first
            sum_ += change
            highest = max(highest, sum_)
        if highest > most:
            yield f"key {key} had {highest} at risk, which may be {most}"


def per_minute(history: History, most: int) -> Iterator[str]:
    """What a key claims within any minute is within its budget."""
    claims: dict[str, list[Signed]] = defaultdict(list)
    for each in history.of(Signed):
        if each.seen == "claim":
            claims[each.key].append(each)
    for key, mine in claims.items():
        mine.sort(key=lambda each: each.at)
        sum_, oldest = 0, 0
        for each in mine:
            sum_ += each.fee
            while mine[oldest].at <= each.at - MINUTE_MS + LATE_MS:
                sum_ -= mine[oldest].fee
                oldest += 1
            if sum_ > most:
                yield f"key {key} signed for {sum_} within the minute before {each.at}, which may be {most}"
                break


def refused_in_words(history: History) -> Iterator[str]:
    """Who is refused is told why, and never that the service does not know itself."""
    for answer in history.of(Answered):
        if answer.said == "refused" and (not answer.words or "internal error" in answer.words):
            yield f"operation {answer.op} was refused with {answer.words!r}"


def what_ran_has_not_failed(history: History) -> Iterator[str]:
    """Nobody is told that a nonce is too low for the very bytes that used it, where a key of ours signed these.

    Of what was only broadcast only who took it knows that.
    """
    asked = {record.op: record for record in history.of(Asked)}
    executed = {ended.payload for ended in history.of(Ended)}
    claimed = {each.payload for each in history.of(Signed) if each.seen == "claim"}
    for answer in history.of(Answered):
        if answer.said == "refused" and answer.words.startswith("nonce too low"):
            operation = asked[answer.op]
            if operation.payload in executed & claimed:
                what = f"nonce {operation.nonce} of {operation.sender}"
                yield f"{what} was executed, and refused to who asked again ({operation.action}): {answer.words}"


def everything_ends(history: History) -> Iterator[str]:
    """What was accepted to be sent is on the chain in the end, or the service says what became of it."""
    asked = {record.op: record for record in history.of(Asked)}
    executed = {ended.payload for ended in history.of(Ended)}
    looked = {record.payload: record for record in history.of(Looked)}
    accepted = {asked[each.op].payload: asked[each.op] for each in history.of(Answered) if each.said == "accepted"}
    for payload, operation in accepted.items():
        if operation.action == "sign" or payload in executed:
            continue
        found = looked.get(payload)
        if found is None or found.state not in REFUSED_LATER or not found.words:
            state = "nothing is known of it" if found is None else f"it is {found.state} {found.words!r}"
            yield f"nonce {operation.nonce} of {operation.sender} was accepted ({operation.action}), and {state}"


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


def told_at_all(history: History) -> Iterator[str]:
    """Who is told of a sender's later nonce was told of the earlier ones it listens to; who is cut off knows that."""
    ended = {STATUS + name: each for each in history.of(Ended) for name in each.names}
    told: dict[int, list[Told]] = defaultdict(list)
    for each in history.of(Told):
        if each.topic in ended:
            told[each.line].append(each)
    for listening in subscriptions(history):
        end = ended.get(listening.topic)
        if end is None or end.at <= listening.at or any(each.topic == listening.topic for each in told[listening.line]):
            continue
        for each in told[listening.line]:
            is_later = ended[each.topic].sender == end.sender and ended[each.topic].nonce > end.nonce
            if is_later and listening.at < each.at < listening.at + LIFETIME_MS:
                yield f"{listening.topic} was not told on line {listening.line}, and {each.topic} was, which came later"
                break


def told_of_accounts(history: History) -> Iterator[str]:
    """Who goes on listening to an account hears of every nonce, or of a later one."""
    used: dict[str, list[Ended]] = defaultdict(list)
    for ended in history.of(Ended):
        used[ended.sender].append(ended)
    known = _known(history)
    gone = {record.line: record.at for record in history.of(Gone)}
    heard: dict[tuple[int, str], int] = defaultdict(lambda: -1)
    for told in history.of(Told):
        heard[told.line, told.topic] = max(told.number, heard[told.line, told.topic])
    for each in history.of(Listening):
        if each.topic.startswith(ACCOUNT) and each.line in gone:
            latest = gone[each.line] - LATEST_MS
            of_it = used[each.topic.removeprefix(ACCOUNT)]
            mine = [ended.nonce for ended in of_it if each.at < ended.at and known[ended.payload] < latest]
            newest = heard[each.line, each.topic]
            if mine and newest <= max(mine):
                yield f"{each.topic} used nonce {max(mine)} and line {each.line} heard of {newest}"


def never_backwards(history: History) -> Iterator[str]:
    """On one connection an account's nonce and the sequence of statistics do not fall."""
    newest: dict[tuple[int, str], int] = {}
    for each in history.of(Told):
        if not each.topic.startswith(STATUS):
            before = newest.get((each.line, each.topic), -1)
            if each.number < before:
                yield f"{each.topic} went back from {before} to {each.number} on line {each.line}"
            newest[each.line, each.topic] = each.number


def ids_once(history: History) -> Iterator[str]:
    """A consumer of the hub is given no event twice, whichever notifier it is with."""
    for id_, times in Counter(each.id for each in history.of(Read)).items():
        if times > 1:
            yield f"{id_} was read {times} times"


def no_block_left_out(history: History) -> Iterator[str]:
    """Blocks of a shard come without holes, but for where their consumer was told of one."""
    stretches: list[dict[str, list[int]]] = [defaultdict(list)]
    for each in history.records:
        if isinstance(each, Missed):
            stretches.append(defaultdict(list))
        elif isinstance(each, Read) and each.height is not None:
            stretches[-1][each.id.split(":")[1]].append(each.height)
    for heights in stretches:
        for shard, found in heights.items():
            for missing in _holes(found):
                yield f"block {missing} of shard {shard} was never read"


def published(history: History) -> Iterator[str]:
    """Whatever consumers of the hub were given comes out of the broker, too."""
    found = {each.id for each in history.of(Published)}
    for each in history.of(Read):
        if each.id not in found:
            yield f"{each.id} was not published"


def subscriptions(history: History) -> list[Listening]:
    """Each as it began: who subscribes again meanwhile changes nothing, and does not make it last longer."""
    first: dict[tuple[int, str], Listening] = {}
    for each in history.of(Listening):
        first.setdefault((each.line, each.topic), each)
    return list(first.values())


def _known(history: History) -> dict[str, int]:
    """By payload when anybody outside is known to have heard of its end."""
    known = {each.payload: each.seen for each in history.of(Ended)}
    payloads = {STATUS + name: each.payload for each in history.of(Ended) for name in each.names}
    for told in history.of(Told):
        payload = payloads.get(told.topic)
        if payload is not None:
            known[payload] = min(known[payload], told.at)
    return known


def _holes(numbers: Iterable[int]) -> list[int]:
    found = set(numbers)
    return [number for number in range(min(found), max(found)) if number not in found]
