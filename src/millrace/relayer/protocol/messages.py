"""Wire messages of /ws and of the REST interface: requests, replies, pushes.

Replies carry `action`, pushes carry `type`. A field that does not apply is absent, except in statistics, where
an unknown number is null.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from millrace.chain.transaction import TransactionJson
from millrace.relayer.protocol import reasons, strict_json
from millrace.relayer.protocol.reasons import Reason, Refused

RequestId = str | int
SubmissionStatus = Literal["completed", "partial", "failed"]
MAX_REQUEST_ID = 256
_LONGEST_NUMBER = 10**MAX_REQUEST_ID
MAX_ECHO = 128
MAX_TOPICS_NAMED = 128
"""Topics in one subscribe or unsubscribe message; each gets an answer of its own."""
_ENVELOPE_BYTES = 6 * MAX_REQUEST_ID + 2
_MARKS_PER_TRANSACTION = 64

_encoder = msgspec.json.Encoder()
encode = _encoder.encode


# ---- requests on /ws


class _Request(msgspec.Struct, frozen=True, tag_field="action", rename="camel"):
    request_id: RequestId | None = None


class Subscribe(_Request, frozen=True, tag="subscribe"):
    """Subscribe to `topic`, to all of `topics`, or to both."""

    topic: str | None = None
    topics: list[str] | None = None


class Unsubscribe(_Request, frozen=True, tag="unsubscribe"):
    """End the subscription of `topic`, of all of `topics`, or of both."""

    topic: str | None = None
    topics: list[str] | None = None


class _Submission(_Request, frozen=True):
    tx: Raw | UnsetType = UNSET
    txs: list[Raw] | UnsetType = UNSET
    auto_subscribe: bool = False
    traceparent: Raw | UnsetType = UNSET
    """W3C trace context; one that is malformed is ignored."""

    @property
    def traceparents(self) -> tuple[str, ...]:
        """Of this submission, as far as it can be one."""
        raw = self.traceparent
        if not isinstance(raw, Raw) or len(memoryview(raw)) > MAX_REQUEST_ID:
            return ()
        try:
            return (msgspec.json.decode(raw, type=str),)
        except msgspec.DecodeError:  # another type, or a number that no float can hold
            return ()


class Relay(_Submission, frozen=True, tag="relay"):
    """Co-sign and broadcast `tx`, or each of `txs`."""


class Broadcast(_Submission, frozen=True, tag="broadcast"):
    """Broadcast the fully signed `tx`, or each of `txs`."""


Request = Subscribe | Unsubscribe | Relay | Broadcast


class RestSubmission(msgspec.Struct, frozen=True):
    """Body of `POST /v1/sign` and `POST /v1/broadcast`."""

    transactions: list[Raw]


class _Envelope(msgspec.Struct, frozen=True, rename="camel"):
    action: Raw | UnsetType = UNSET
    request_id: Raw | UnsetType = UNSET


_requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_rest_submissions = msgspec.json.Decoder(RestSubmission)
_envelopes = msgspec.json.Decoder(_Envelope)
_transactions = msgspec.json.Decoder(TransactionJson)
_OPTIONAL = frozenset(field.encode_name for field in msgspec.structs.fields(TransactionJson) if not field.required)


def decode_request(data: bytes, max_batch: int, marked: int | None = None) -> Request:
    """The request in one text message, whose `strict_json.marks` may be known already. Raises `Refused`."""
    marked = strict_json.marks(data) if marked is None else marked
    request = typed_request(data, marked, max_batch)
    strict_json.refuse_duplicate_keys(data, marked, max_marks(max_batch))
    return request


def request_to_forward(data: bytes, max_batch: int, marked: int | None = None) -> Request:
    """The same at an edge: who signs gets the same bytes, and looks for keys that stand twice in submissions."""
    marked = strict_json.marks(data) if marked is None else marked
    request = typed_request(data, marked, max_batch)
    if not isinstance(request, _Submission):
        strict_json.refuse_duplicate_keys(data, marked, max_marks(max_batch))
    return request


def typed_request(data: bytes, marked: int, max_batch: int) -> Request:
    """The same before anybody has looked for keys that stand twice."""
    request = strict_json.decode(data, _requests, marked)
    if _is_too_long(request.request_id):
        raise Refused(reasons.INVALID_MESSAGE.but(f"requestId: at most {MAX_REQUEST_ID} characters"))
    if isinstance(request, Relay | Broadcast):
        _check_batch(len(transactions_of(request)), max_batch)
    else:
        _check_control(request)
    return request


def _is_too_long(request_id: RequestId | None) -> bool:
    if isinstance(request_id, str):
        return len(request_id) > MAX_REQUEST_ID
    return request_id is not None and abs(request_id) >= _LONGEST_NUMBER


def decode_rest_submission(data: bytes, max_batch: int, marked: int | None = None) -> list[Raw]:
    """The transactions in a REST body, each still as text. Raises `Refused`."""
    marked = strict_json.marks(data) if marked is None else marked
    transactions = typed_rest_submission(data, marked, max_batch)
    strict_json.refuse_duplicate_keys(data, marked, max_marks(max_batch))
    return transactions


def typed_rest_submission(data: bytes, marked: int, max_batch: int) -> list[Raw]:
    """The same before anybody has looked for keys that stand twice."""
    body = strict_json.decode(data, _rest_submissions, marked)
    _check_batch(len(body.transactions), max_batch)
    return body.transactions


def max_marks(max_batch: int) -> int:
    """How many signs of structure a message may have."""
    return max_batch * _MARKS_PER_TRANSACTION


def decode_envelope(data: bytes) -> tuple[str | None, RequestId | None]:
    """Action and request id of a message that could not be read whole, as far as they can be."""
    try:
        envelope = _envelopes.decode(data)
        action, request_id = _small(envelope.action), _small(envelope.request_id)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None, None
    known = isinstance(request_id, str | int) and not isinstance(request_id, bool)
    if known and len(str(request_id)) > MAX_REQUEST_ID:
        known = False
    return action[:MAX_ECHO] if isinstance(action, str) else None, request_id if known else None


def _small(raw: Raw | UnsetType) -> Any:
    """What stands in `raw` unless it is larger than any action or request id."""
    return msgspec.json.decode(raw) if isinstance(raw, Raw) and len(memoryview(raw)) <= _ENVELOPE_BYTES else None


def decode_transaction(raw: Raw) -> TransactionJson:
    """The transaction object in `raw`. Raises `Refused` with the reason of the first unreadable field.

    An optional field that is null is not there, as nodes read it: some clients write all fields they know of.
    """
    try:
        return _transactions.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        fields = _fields_of(raw)
    kept = {name: value for name, value in fields.items() if name not in _OPTIONAL or bytes(value) != b"null"}
    if len(kept) == len(fields):
        raise Refused(_unreadable_field(fields))
    return decode_transaction(Raw(msgspec.json.encode(kept)))


def transactions_of(request: Relay | Broadcast) -> list[Raw]:
    """The transactions of a submission. Raises `Refused` unless exactly one of `tx` and `txs` is there."""
    if isinstance(request.txs, list) and request.tx is UNSET:
        return request.txs
    if isinstance(request.tx, Raw) and request.txs is UNSET:
        return [request.tx]
    raise Refused(reasons.INVALID_MESSAGE.but("give either tx or txs"))


def action_of(request: Relay | Broadcast) -> Literal["relay", "broadcast"]:
    """What a submission asks for."""
    return "relay" if isinstance(request, Relay) else "broadcast"


def topics_of(request: Subscribe | Unsubscribe) -> list[str]:
    """The topics of a subscription, in order, each once."""
    first = [] if request.topic is None else [request.topic]
    return list(dict.fromkeys(first + (request.topics or [])))


def _check_control(request: Subscribe | Unsubscribe) -> None:
    named = topics_of(request)
    if not named:
        raise Refused(reasons.INVALID_MESSAGE.but("name a topic, or several in topics"))
    if len(named) > MAX_TOPICS_NAMED:
        raise Refused(reasons.INVALID_MESSAGE.but(f"at most {MAX_TOPICS_NAMED} topics in one message"))


def _check_batch(size: int, max_batch: int) -> None:
    if size == 0:
        raise Refused(reasons.EMPTY_BATCH.but("send at least one transaction"))
    if size > max_batch:
        raise Refused(reasons.BATCH_TOO_LARGE.but(f"at most {max_batch} transactions, not {size}"))


def _fields_of(raw: Raw) -> dict[str, Raw]:
    try:
        return msgspec.json.decode(raw, type=dict[str, Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(reasons.INVALID_TRANSACTION.but(f"not a transaction object: {error}"[:200])) from None


def _unreadable_field(fields: dict[str, Raw]) -> Reason:
    """Which field made a transaction object unreadable: each is tried alone."""
    for field in msgspec.structs.fields(TransactionJson):
        name = field.encode_name
        if name not in fields:
            if field.required:
                return reasons.BY_FIELD[name].but(f"{name} is missing")
            continue
        try:
            msgspec.json.decode(fields[name], type=field.type)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return reasons.BY_FIELD[name].but(f"{name}: {error}"[:200])
    return reasons.INVALID_TRANSACTION


# ---- replies


class TopicReply(msgspec.Struct, frozen=True, rename="camel"):
    """A control message was carried out."""

    action: str
    status: Literal["ok"]
    topic: str
    request_id: RequestId | UnsetType = UNSET


class FailReply(msgspec.Struct, frozen=True, rename="camel"):
    """A control message or a whole submission was refused."""

    action: str | None
    status: Literal["fail"]
    reason: str
    code: str
    topic: str | UnsetType = UNSET
    request_id: RequestId | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET
    detail: str | UnsetType = UNSET


class FailedItem(msgspec.Struct, frozen=True, rename="camel"):
    """One refused transaction of a submission."""

    index: int
    reason: str
    code: str
    retry_after_ms: int | UnsetType = UNSET
    detail: str | UnsetType = UNSET


class ResultItem(msgspec.Struct, frozen=True, rename="camel"):
    """One accepted transaction of a submission: its hashes, and what was added to it."""

    index: int
    hash: str
    """The chain hash; the client hash of what is pending."""
    client_hash: str
    """Without the relayer's signature, as the official Python SDK computes it before there is one."""
    relayer_signature: str | UnsetType = UNSET
    topic: str | UnsetType = UNSET
    """The tx-status topic that `autoSubscribe` subscribed to."""
    topic_refused: str | UnsetType = UNSET
    """Why `autoSubscribe` did not subscribe to it."""
    sdk_hash: str | UnsetType = UNSET
    """With an empty field for that signature, as the official JavaScript SDK computes it; of what names a relayer."""
    state: Literal["pending"] | UnsetType = UNSET
    """`pending`: accepted, and to be co-signed and sent as soon as there is a signing process again."""


class SubmissionReply(msgspec.Struct, frozen=True, rename="camel"):
    """The outcome of `relay`, `broadcast` and `POST /v1/broadcast`."""

    action: str
    status: SubmissionStatus
    """`completed`: all accepted; `partial`: some; `failed`: none."""
    hashes: list[str]
    failed: list[FailedItem]
    results: list[ResultItem]
    request_id: RequestId | UnsetType = UNSET


class SignReply(msgspec.Struct, frozen=True):
    """The outcome of `POST /v1/sign`; `results` links the signed transactions to their place in the request."""

    transactions: list[TransactionJson]
    failed: list[FailedItem]
    results: list[ResultItem]


def topic_reply(action: str, topic: str, request_id: RequestId | None) -> bytes:
    """A subscribe or unsubscribe was carried out."""
    return encode(TopicReply(action, "ok", topic, _or_unset(request_id)))


def fail_reply(
    action: str | None, reason: Reason, request_id: RequestId | None = None, topic: str | None = None
) -> bytes:
    """A message was refused as a whole."""
    return encode(
        FailReply(
            action,
            "fail",
            reason.reason,
            reason.code,
            _or_unset(topic[:MAX_ECHO] if topic is not None else None),
            _or_unset(request_id),
            _or_unset(reason.retry_after_ms),
            _or_unset(reason.detail),
        )
    )


def failed_item(index: int, reason: Reason) -> FailedItem:
    """The entry of a refused transaction."""
    return FailedItem(index, reason.reason, reason.code, _or_unset(reason.retry_after_ms), _or_unset(reason.detail))


def submission_status(accepted: int, refused: int) -> SubmissionStatus:
    """`completed`, `partial` or `failed`."""
    if not refused:
        return "completed"
    return "partial" if accepted else "failed"


def _or_unset(value: Any) -> Any:
    return UNSET if value is None else value


# ---- pushes


class StatusData(msgspec.Struct, frozen=True, rename="camel"):
    """The fate of a transaction; `hash` is the one subscribed to, `chainHash` the other one if they differ."""

    hash: str
    status: Literal["success", "fail"]
    reason: str | UnsetType = UNSET
    chain_hash: str | UnsetType = UNSET


class StatusMessage(msgspec.Struct, frozen=True, tag_field="type", tag="tx-status"):
    """Pushed once to each subscription of `tx-status/{hash}`."""

    data: StatusData


class AccountData(msgspec.Struct, frozen=True, rename="camel"):
    """The state of an account after a block; `balances` holds EGLD and the tokens this block changed."""

    address: str
    shard_id: int
    timestamp: int
    balances: dict[str, str]
    nonce: int
    block_hash: str
    block_nonce: int | UnsetType = UNSET
    """Of that block; absent, as the hash is empty, where an account is told beside the blocks."""


class AccountMessage(msgspec.Struct, frozen=True, tag_field="type", tag="accountDelta"):
    """Pushed to `address/{bech32}` and `accounts`."""

    data: AccountData


class ShutdownMessage(msgspec.Struct, frozen=True, tag_field="type", tag="serverShutdown", rename="camel"):
    """The service is about to end. With `afterMs` it serves on until then; else the connection is closed at once."""

    move_to: list[str] | UnsetType = UNSET
    """WebSocket addresses to go to, best first; absent: the one that the client has leads elsewhere then."""
    after_ms: int | UnsetType = UNSET
    """When to go: each client is told another moment."""
