"""Which transactions are followed, how many at most, and what is said of them."""

from __future__ import annotations

from typing import Any

from millrace.relayer.ledger import followed as module
from millrace.relayer.ledger.followed import MOST, PER_TRACE, Followed
from millrace.runtime.spans import Span
from millrace.runtime.tracing import Trace, Tracer, TracingSettings

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class _Entry:
    """Of an entry only its hash matters."""

    def __init__(self, number: int) -> None:
        self.chain_hash = number.to_bytes(32, "big")


def _trace(spans: list[Span]) -> Trace:
    trace = Tracer(TracingSettings(tracing="log", trace_rate=1e9), spans.append).begin("relay", (PARENT,))
    assert trace is not None
    return trace


def entries(*numbers: int) -> list[Any]:
    return [_Entry(number) for number in numbers]


def test_the_way_of_one() -> None:
    """Sent once however often it is sent again, seen in blocks, and told once; then it is forgotten."""
    spans: list[Span] = []
    followed, trace = Followed(), _trace(spans)
    (entry,) = entries(1)
    followed.begin(entry, trace)
    followed.begin(entry, trace)
    followed.sent([entry], "gossip")
    followed.sent([entry], "api")
    assert followed.in_block([b"another", entry.chain_hash]) == (str(trace.context),)
    followed.ended(entry.chain_hash, "success")
    followed.ended(entry.chain_hash, "success")
    assert [(span.name, span.attributes) for span in spans] == [
        ("send", {"tx": entry.chain_hash.hex(), "way": "gossip"}),
        ("status", {"tx": entry.chain_hash.hex(), "status": "success"}),
    ]
    assert not followed and followed.in_block([entry.chain_hash]) == ()


def test_a_batch_is_one_trace_in_a_block() -> None:
    """A block with many transactions of a submission belongs to its trace once; of a large one some are followed."""
    followed, trace = Followed(), _trace([])
    many = entries(*range(PER_TRACE + 10))
    for entry in many:
        followed.begin(entry, trace)
    assert len(followed) == PER_TRACE
    assert followed.in_block(entry.chain_hash for entry in many) == (str(trace.context),)


def test_the_oldest_gives_way(monkeypatch: Any) -> None:
    """What never ends does not stay for ever."""
    monkeypatch.setattr(module, "MOST", 8)
    followed = Followed()
    for entry in entries(*range(20)):
        followed.begin(entry, _trace([]))
    assert len(followed) == 8 < MOST
    assert followed.in_block(entry.chain_hash for entry in entries(*range(12))) == ()
