"""What must hold of what clients submit: one payload for a nonce, budgets, an answer and an end for everything."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from cluster.history import Answered, Asked, Ended, History, Looked, Signed

MINUTE_MS = 60_000
LATE_MS = 3_000
"""A claim's time is later than what it took of the budget by as much as the server took to tell its clock, which is
given up after so long: one that left the budget a minute ago seems to be in it. The server's own time of the claim
would be later still, by what the claim waited for its turn."""
REFUSED_LATER = {"fail", "superseded", "dropped", "written off"}


def answered(history: History) -> Iterator[tuple[Asked, Answered]]:
    """Each operation with its answer."""
    asked = {record.op: record for record in history.of(Asked)}
    return ((asked[answer.op], answer) for answer in history.of(Answered) if answer.op in asked)


def everything_answered(history: History) -> Iterator[str]:
    """In the end nobody waits for an answer, and nobody has had two."""
    answers = Counter(answer.op for answer in history.of(Answered))
    asked = {record.op: record for record in history.of(Asked)}
    for op, operation in asked.items():
        if answers[op] != 1:
            what = f"operation {op}, {operation.action} of nonce {operation.nonce} of {operation.sender},"
            yield f"{what} was answered {answers[op]} times"
    for op in answers.keys() - asked.keys():
        yield f"operation {op} was answered, and nobody asked it"


def one_payload(history: History) -> Iterator[str]:
    """No nonce of a sender has two payloads that were signed or accepted."""
    payloads: dict[tuple[str, int], set[str]] = defaultdict(set)
    for signed in history.of(Signed):
        payloads[signed.sender, signed.nonce].add(signed.payload)
    for submitted, answer in answered(history):
        if answer.said == "accepted":
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


def acknowledged_is_claimed(history: History) -> Iterator[str]:
    """So is what a client was told that it is accepted to be signed, but for what the service says it has let go of.

    It may: what the signing process refuses later is claimed no more.
    """
    known = {each.payload for each in history.of(Signed) if each.seen == "claim"}
    known |= {each.payload for each in history.of(Looked) if each.state in REFUSED_LATER}
    for operation, answer in answered(history):
        is_ours = answer.said == "accepted" and operation.action in ("relay", "sign")
        if is_ours and operation.payload not in known:
            what = f"nonce {operation.nonce} of {operation.sender}"
            yield f"{what} was accepted ({operation.action}), and nobody has claimed it"


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
    executed = {ended.payload for ended in history.of(Ended)}
    claimed = {each.payload for each in history.of(Signed) if each.seen == "claim"}
    for operation, answer in answered(history):
        is_late = answer.said == "refused" and answer.words.startswith("nonce too low")
        if is_late and operation.payload in executed & claimed:
            what = f"nonce {operation.nonce} of {operation.sender}"
            yield f"{what} was executed, and refused to who asked again ({operation.action}): {answer.words}"


def everything_ends(history: History) -> Iterator[str]:
    """What was accepted to be sent is on the chain in the end, or the service says what became of it."""
    executed = {ended.payload for ended in history.of(Ended)}
    looked = {record.payload: record for record in history.of(Looked)}
    accepted = {asked.payload: asked for asked, answer in answered(history) if answer.said == "accepted"}
    for payload, operation in accepted.items():
        if operation.action == "sign" or payload in executed:
            continue
        found = looked.get(payload)
        if found is None or found.state not in REFUSED_LATER or not found.words:
            state = "nothing is known of it" if found is None else f"it is {found.state} {found.words!r}"
            yield f"nonce {operation.nonce} of {operation.sender} was accepted ({operation.action}), and {state}"
