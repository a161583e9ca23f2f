"""What must hold of the notifiers' hub and the broker: each block of the chain, once and in order, or a gap is told."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from cluster.history import History, Made, Missed, Published, Read, Struck

OF_BLOCKS = ("SaveBlock", "ExecutedBlock", "FinalizedBlock")
"""Each is told once for every block."""
NOTIFIERS = 2
BEFORE_MS, AFTER_MS = 15_000, 20_000
"""A fault may have an event published again that bears a time by so much before it, as it waited for another fault's
end, which takes 8 s, and a lease's; or by so much after it, until all is as it was, on a busy machine too."""
PUBLISHING = ("notifier", "redis", "broker")


def ids_once(history: History) -> Iterator[str]:
    """A consumer of the hub is given no event twice, whichever notifier it is with."""
    for id_, times in Counter(each.id for each in history.of(Read)).items():
        if times > 1:
            yield f"{id_} was read {times} times"


def no_block_left_out(history: History) -> Iterator[str]:
    """The consumer has all blocks that the chain made, saved, executed and final, or was told of a gap just there."""
    top = {each.shard: each.height for each in history.of(Made)}
    heights = _heights(history)
    reads: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    gaps = []
    for place, record in enumerate(history.records):
        if isinstance(record, Missed):
            gaps.append(place)
        elif isinstance(record, Read) and (height := heights.get(_block(record.id))) is not None:
            reads[_topic(record.id), _shard(record.id)].append((place, height))
    for shard in sorted({shard for _, shard in reads} - top.keys()):
        yield f"nothing is known of what shard {shard} made"
    explained = set()
    for topic in OF_BLOCKS:
        for shard, newest in top.items():
            found = reads[topic, shard]
            missing = set(range(1, newest + 1)) - {height for _, height in found}
            for gap in gaps:
                first = max((height for place, height in found if place < gap), default=0)
                last = min((height for place, height in found if place > gap), default=newest + 1)
                lost = {height for height in missing if first < height < last}
                explained |= {gap} if lost else set()
                missing -= lost
            if missing:
                yield f"{topic} of shard {shard} never came for {len(missing)} blocks: {sorted(missing)[:10]}"
    for gap in gaps:
        if gap not in explained:
            yield f"record {gap} tells of a gap, and nothing is missing there"


def block_first(history: History) -> Iterator[str]:
    """A block is saved before it is executed or final, unless a gap has swallowed it; at each height there is one."""
    saved: set[tuple[str, str]] = set()
    names: dict[tuple[str, int], str] = {}
    is_whole = True
    for each in history.records:
        is_whole &= not isinstance(each, Missed)
        if not isinstance(each, Read) or _topic(each.id) not in OF_BLOCKS:
            continue
        shard, name = block = _block(each.id)
        if each.height is not None:
            saved.add(block)
            if names.setdefault((shard, each.height), name) != name:
                yield f"shard {shard} has two blocks of height {each.height}: {name} and {names[shard, each.height]}"
        elif is_whole and block not in saved:
            yield f"{each.id} came before its block"


def published(history: History) -> Iterator[str]:
    """Whatever consumers of the hub were given comes out of the broker, too."""
    found = {each.id for each in history.of(Published)}
    for each in history.of(Read):
        if each.id not in found:
            yield f"{each.id} was not published"


def published_was_read(history: History) -> Iterator[str]:
    """What came out of the broker of blocks up to the end was given to the hub's consumer, who was told of no gap."""
    top = {each.shard: each.height for each in history.of(Made)}
    heights, read = _heights(history), {each.id for each in history.of(Read)}
    if history.of(Missed):
        return
    for id_ in dict.fromkeys(each.id for each in history.of(Published)):
        height = heights.get(_block(id_))
        if id_ not in read and height is not None and height <= top.get(_shard(id_), 0):
            yield f"{id_} was published, and never read"


def published_again(history: History) -> Iterator[str]:
    """Once by each notifier, and once more by each for every fault between them, Redis and the broker at that time."""
    made = {_block(each.id): each.made for each in history.of(Read) if each.made}
    faults = [each for each in history.of(Struck) if any(part in each.victim for part in PUBLISHING)]
    for id_, times in Counter(each.id for each in history.of(Published)).items():
        if times <= NOTIFIERS:
            continue
        at = made.get(_block(id_))
        near = sum(at is None or _is_near(fault, at) for fault in faults)
        if times > NOTIFIERS * (1 + near):
            yield f"{id_} was published {times} times, with {near} faults that explain it"


def _is_near(fault: Struck, at: int) -> bool:
    return fault.at - BEFORE_MS <= at <= fault.at + 1000 * fault.seconds + AFTER_MS


def _heights(history: History) -> dict[tuple[str, str], int]:
    """Of all blocks that anybody was given, by shard and hash."""
    saved = [*history.of(Read), *history.of(Published)]
    return {_block(each.id): each.height for each in saved if each.height is not None}


def _topic(id_: str) -> str:
    return id_.partition(":")[0]


def _shard(id_: str) -> str:
    return _block(id_)[0]


def _block(id_: str) -> tuple[str, str]:
    """Shard and hash of the block that an event is of."""
    _, shard, name, *_ = (*id_.split(":"), "", "")
    return shard, name
