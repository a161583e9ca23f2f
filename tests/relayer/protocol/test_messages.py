"""Whatever bytes come in: a request, or one refusal; never another exception."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from relayer_support import NETWORK, RELAYERS, as_json, transfer, wallet

from millrace.relayer.protocol import messages, reasons, strict_json, topics
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.rules import stages
from millrace.relayer.rules.stages import Origin, Relayers

OURS = Relayers({shard: pair.public for shard, pair in RELAYERS.items()})
SEED = json.dumps({"action": "relay", "requestId": "r", "tx": as_json(transfer(wallet(1)))}).encode()
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
NAMES = st.text(max_size=8)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3))


def answer(data: bytes) -> bytes:
    """What the service would say to a message, submissions checked up to their signatures."""
    try:
        request = messages.decode_request(data, 100)
        if isinstance(request, messages.Relay | messages.Broadcast):
            for raw in messages.transactions_of(request):
                stages.authenticate(stages.parse(raw, Origin("relay", "")), NETWORK, OURS)
        else:
            for text in messages.topics_of(request):
                topics.parse(text)
    except Refused as refusal:
        action, request_id = messages.decode_envelope(data)
        return messages.fail_reply(action, refusal.reason, request_id, "t")
    return messages.topic_reply("subscribe", "t", request.request_id)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
@example(b'{"action":"subscribe","topic":"\\ud800"}')
@example(b'{"action":"\\ud800"}')
@example(b'{"action":"subscribe","topic":"x","requestId":"\\udfff"}')
@example(b"\xef\xbb\xbf{}")
def test_any_bytes(data: bytes) -> None:
    """Random bytes get one well-formed JSON answer."""
    json.loads(answer(data))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SEED) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_mutated_submission(changes: list[tuple[int, int]]) -> None:
    """A valid submission with some bytes changed gets one well-formed answer, and never passes silently."""
    data = bytearray(SEED)
    for place, value in changes:
        data[place] = value
    reply = json.loads(answer(bytes(data)))
    assert reply["status"] in ("ok", "fail")


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from([*as_json(transfer(wallet(1))), "guardian", "x"]), VALUES))
def test_any_values_in_a_transaction(fields: dict[str, Any]) -> None:
    """Any JSON value in any field of the transaction object is refused by a known reason."""
    obj = as_json(transfer(wallet(1))) | fields
    try:
        raw = msgspec.Raw(json.dumps(obj, allow_nan=False).encode())
    except ValueError:
        return
    try:
        stages.authenticate(stages.parse(raw, Origin("relay", "")), NETWORK, OURS)
    except Refused as refusal:
        assert refusal.reason.code in KNOWN


OPTIONAL = ("data", "options", "senderUsername", "guardian", "guardianSignature", "relayer", "relayerSignature")


@pytest.mark.parametrize("name", [*OPTIONAL, "signature"])
def test_null_is_nothing(name: str) -> None:
    """An optional field that is null is not there, as nodes read it: some clients write all fields they know of."""
    plain = {field: value for field, value in as_json(transfer(wallet(1), relayed=False)).items() if field != name}
    wanted = messages.decode_transaction(msgspec.Raw(json.dumps(plain).encode()))
    assert messages.decode_transaction(msgspec.Raw(json.dumps(plain | {name: None}).encode())) == wanted
    assert messages.decode_transaction(msgspec.Raw(json.dumps(plain | dict.fromkeys(OPTIONAL)).encode())).nonce == 0


@pytest.mark.parametrize("name", ["nonce", "value", "receiver", "sender", "gasPrice", "gasLimit", "chainID", "version"])
def test_null_is_no_value(name: str) -> None:
    """A field that every transaction has is not null; with nulls elsewhere it is still the one that is named."""
    fields = as_json(transfer(wallet(1))) | {"guardian": None, name: None}
    with pytest.raises(Refused) as refusal:
        messages.decode_transaction(msgspec.Raw(json.dumps(fields).encode()))
    assert refusal.value.reason == reasons.BY_FIELD[name].but(refusal.value.reason.detail or "")


KNOWN = {value.code for value in vars(reasons).values() if isinstance(value, reasons.Reason)}


@pytest.mark.parametrize("value", ["1e400", "-1E+999", "1" * 400, "[]", "{}", "null", "true", '"\\u0000"', '""'])
def test_any_traceparent(value: str) -> None:
    """Whatever JSON stands there, the message is read, and nothing but a text is a `traceparent`."""
    data = f'{{"action":"relay","tx":{{}},"traceparent":{value}}}'.encode()
    request = messages.decode_request(data, 1)
    assert isinstance(request, messages.Relay)
    assert request.traceparents == ((json.loads(value),) if value.startswith('"') else ())


def test_codes_are_unique_and_stable() -> None:
    """Each reason has a code of its own, which is its words in snake case; a detail makes no other reason of it."""
    named = [value for value in vars(reasons).values() if isinstance(value, reasons.Reason)]
    found = [value for value in named if value.detail is None]
    assert len({value.code for value in found}) == len({value.reason for value in found}) == len(found)
    assert all(value.code.split("_") == re.findall(r"[a-z0-9]+", value.reason) for value in found)


def test_batch_bounds() -> None:
    """The largest batch passes, one more is refused, and 10 000 are refused without reading them."""
    many = b'{"action":"relay","txs":[' + b",".join([b"{}"] * 100) + b"]}"
    assert isinstance(messages.decode_request(many, 100), messages.Relay)
    for count in (101, 10_000):
        with pytest.raises(Refused, match="batch too large"):
            messages.decode_request(b'{"action":"relay","txs":[' + b",".join([b"{}"] * count) + b"]}", 100)


FILLER = b"[" + b"{}," * 60_000 + b"{}]"


@pytest.mark.parametrize("place", ['{"action":"relay","tx":%s}', '{"action":"subscribe","topic":"a","x":%s}', "%s"])
@pytest.mark.parametrize("level", ["[]", ['{"a":', "}"]])
def test_row_22_depth_without_end(place: str, level: Any) -> None:
    """However deep a message is nested, and wherever, it is refused like any other that cannot be read."""
    opening, closing = level
    for depth in (2_000, 100_000):
        data = (place % (opening * depth + closing * depth)).encode()
        with pytest.raises(Refused, match="invalid message"):
            messages.decode_request(data, 100)
        assert messages.decode_envelope(data) in ((None, None), ("subscribe", None), ("relay", None))


@pytest.mark.parametrize(
    "data",
    [
        b'{"action":"subscribe","topic":"gasStats","x":' + FILLER + b"}",
        b'{"action":"subscribe","topics":[' + b'"a",' * 9_000 + b'"b"]}',
        b'{"action":"unsubscribe","topics":[' + b",".join(b'"%x"' % n for n in range(129)) + b"]}",
        b'{"action":"relay","tx":{"x":' + FILLER + b"}}",
        b'{"action":"relay","tx":{},"x":' + FILLER + b"}",
        b'{"action":' + FILLER + b"}",
        b'{"action":"relay","txs":[' + b"{}," * 200_000 + b"{}]}",
    ],
)
def test_row_22_filler_is_not_walked(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message full of values that mean nothing is refused without walking them one by one."""
    monkeypatch.setattr(strict_json, "_walker", None)
    with pytest.raises(Refused, match="invalid message"):
        messages.decode_request(data, 100)


def test_row_22_filler_in_a_rest_body_is_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same holds for the body of a REST submission."""
    monkeypatch.setattr(strict_json, "_walker", None)
    with pytest.raises(Refused, match="invalid message"):
        messages.decode_rest_submission(b'{"transactions":[{"x":' + FILLER + b"}]}", 100)


def test_large_values_are_not_echoed() -> None:
    """An action or request id too large to be one is not even built to be echoed."""
    assert messages.decode_envelope(b'{"action":' + FILLER + b',"requestId":' + FILLER + b"}") == (None, None)


def test_the_largest_honest_batch_passes() -> None:
    """A hundred transactions with all their fields and 40 000 bytes of data each are within the bounds."""
    one = json.dumps(as_json(transfer(wallet(1))) | {"data": "A" * 40_000}).encode()
    data = b'{"action":"relay","txs":[' + b",".join([one] * 100) + b"]}"
    assert isinstance(messages.decode_request(data, 100), messages.Relay)


@pytest.mark.parametrize("number", ["9" * 256, "-" + "9" * 256, '"%s"' % ("x" * 256)])
def test_request_ids_are_bounded(number: str) -> None:
    """A request id of 256 characters is echoed, whether it is text or a number; a longer one is refused."""
    message = '{"action":"subscribe","topic":"x","requestId":%s}'
    assert messages.decode_request((message % number).encode(), 1).request_id is not None
    longer = number.replace("9", "99", 1).replace("x", "xx", 1)
    with pytest.raises(Refused, match="invalid message"):
        messages.decode_request((message % longer).encode(), 1)
    assert messages.decode_envelope((message % longer).encode())[1] is None
