"""Batches for several relayers: divided in order, and answered as if one had answered all of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.relayer.forwarding import parts
from millrace.relayer.forwarding.parts import Piece, Routed
from millrace.relayer.protocol import messages, reasons


def accepted(positions: list[int], kind: str = "relay") -> bytes:
    """How a relayer answers a part whose transactions it all accepts; hashes say their places in the whole."""
    results = [{"index": index, "hash": f"h{place}"} for index, place in enumerate(positions)]
    body: dict[str, Any] = {"failed": [], "results": results}
    if kind == "sign":
        body["transactions"] = [{"nonce": place} for place in positions]
    else:
        body |= {"action": kind, "status": "completed", "hashes": [f"h{place}" for place in positions]}
    return msgspec.json.encode(body)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=30))
def test_a_batch_is_one_again(targets: list[str]) -> None:
    """Whoever takes which transaction, the answer has all of them, by their places in the batch."""
    items = [Routed(name) for name in targets]
    divided = parts.divided(items, lambda item: item.sender)
    assert sorted(place for positions in divided.values() for place in positions) == list(range(len(targets)))
    for positions in divided.values():
        assert positions == sorted(positions)
    whole = msgspec.json.decode(parts.joined([Piece(each, accepted(each)) for each in divided.values()], "relay"))
    assert whole == msgspec.json.decode(accepted(list(range(len(targets)))))


def test_signed_ones_are_in_order_too() -> None:
    """Of /v1/sign the transactions come in the order of the batch, and no more than a relayer says."""
    whole = msgspec.json.decode(parts.joined([Piece(each, accepted(each, "sign")) for each in ([1, 2], [0, 3])], None))
    assert whole["transactions"] == [{"nonce": place} for place in range(4)]
    assert set(whole) == {"transactions", "failed", "results"}


def test_what_an_answer_says_is_taken() -> None:
    """All that is sent, with whether a block is still to name it by that hash; nothing that is only signed."""
    hashes = [bytes([number]) * 32 for number in range(4)]
    names = [name.hex() for name in hashes]
    results: list[dict[str, Any]] = [{"index": index, "hash": name} for index, name in enumerate(names)]
    results[1]["state"] = "pending"
    results[2]["transaction"] = {"state": "success", "nonce": 1}
    results[3]["transaction"] = {"state": "pending"}
    answer = {"action": "relay", "status": "completed", "hashes": names, "failed": [], "results": results}
    assert parts.taken(msgspec.json.encode(answer)) == [
        (hashes[0], True), (hashes[1], False), (hashes[2], False), (hashes[3], True),
    ]  # fmt: skip
    assert parts.taken(accepted([0, 1], "sign")) == []
    assert parts.taken(messages.fail_reply("relay", reasons.BUSY)) == []
    no_hex = b'{"hashes":["a"],"results":[{"hash":"no"}]}'
    for odd in (b"", b"[]", no_hex, b'{"hashes":[1]}', b"\xff", b'{"a":' * 9_000):
        assert parts.taken(odd) == []


def test_a_part_refused_has_failed() -> None:
    """Where one relayer refuses its part as a whole, each of its transactions failed for that reason."""
    refused = messages.fail_reply("relay", reasons.BUSY.but("later", 500))
    whole = msgspec.json.decode(parts.joined([Piece([0, 2], refused), Piece([1], accepted([1]))], "relay"))
    assert whole["status"] == "partial" and whole["hashes"] == ["h1"]
    assert whole["failed"] == [
        {"index": place, "reason": "relayer busy", "code": "relayer_busy", "retryAfterMs": 500, "detail": "later"}
        for place in (0, 2)
    ]


@pytest.mark.parametrize("request_id", ["a", 'quoted "x"', 7, -1, 10**30])
def test_the_client_gets_its_own_request_id(request_id: str | int) -> None:
    """A reply that comes without one leaves with the client's."""
    body = parts.with_request_id(accepted([0]), request_id)
    assert msgspec.json.decode(body)["requestId"] == pytest.approx(request_id) if isinstance(request_id, int) else True
    assert b'"requestId":' + msgspec.json.encode(request_id) in body
    assert parts.with_request_id(body, None) is body


def test_who_a_transaction_is_of() -> None:
    """Sender and relayer are read; of what cannot be read nothing is said."""
    assert parts.routed(msgspec.Raw(b'{"sender":"s","relayer":"r","nonce":1}')) == ("s", "r")
    assert parts.routed(msgspec.Raw(b'{"sender":"s","relayer":null}')) == ("s", "")
    for text in (b"7", b'{"sender":7}', b'{"sender":"\xff"}', b"[" * 2000 + b"]" * 2000):
        assert parts.routed(msgspec.Raw(text)) == ("", "")


def test_topics_that_were_refused_say_so() -> None:
    """A reply tells why the edge did not subscribe to what was accepted, and leaves the others as they are."""
    one, two = "1" * 64, "2" * 64
    results = [{"index": place, "hash": name, "topic": f"tx-status/{name}"} for place, name in enumerate((one, two))]
    body = msgspec.json.encode({"action": "relay", "status": "completed", "hashes": [one, two], "results": results})
    refusals = {one: reasons.TOPIC_LIMIT}
    found = msgspec.json.decode(parts.with_refused_topics(body, refusals))["results"]
    assert found == [{"index": 0, "hash": one, "topicRefused": "topic limit reached"}, results[1]]
    assert refusals == {}
