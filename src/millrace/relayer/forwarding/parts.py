"""A submission for several relayers: divided by whom each transaction is for, and the answers made one again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from millrace.relayer.protocol import messages
from millrace.relayer.protocol.reasons import Reason

Target = TypeVar("Target", bound=Hashable)


class Routed(NamedTuple):
    """What of a transaction says who takes it; empty where it cannot be read."""

    sender: str = ""
    relayer: str = ""


class _Parties(msgspec.Struct, frozen=True):
    sender: str = ""
    relayer: str | None = None


class _Anything(msgspec.Struct):
    """An object: its fields are looked over, and left."""


class Answer(msgspec.Struct, rename="camel", omit_defaults=True):
    """The answer to a submission or to a part of it, over either interface; a refused whole has a `reason`."""

    action: str | None = None
    status: str | None = None
    hashes: list[str] | UnsetType = UNSET
    transactions: list[Raw] | UnsetType = UNSET
    failed: list[dict[str, Any]] | UnsetType = UNSET
    results: list[dict[str, Any]] | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    code: str | UnsetType = UNSET
    detail: str | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET


class Piece(NamedTuple):
    """The positions of transactions that went to one relayer, and its answer."""

    positions: Sequence[int]
    answer: bytes


class Taken(NamedTuple):
    """A transaction that a relayer has accepted and sends."""

    tx_hash: bytes
    waits: bool
    """Whether a block is still to name it by this hash, as far as the answer says."""


class _State(msgspec.Struct, frozen=True):
    state: str


class _Result(msgspec.Struct):
    hash: str
    state: str = ""
    """Not empty of what has no chain hash yet."""
    transaction: _State = _State("pending")
    """What became of it, where a client waited for that."""


class _Results(msgspec.Struct):
    """What of an answer says which transactions are sent; of those that are only signed there are no `hashes`."""

    hashes: list[str] = []
    results: list[_Result] = []


_parties = msgspec.json.Decoder(_Parties)
_answers = msgspec.json.Decoder(Answer)
_objects = msgspec.json.Decoder(_Anything)
_results = msgspec.json.Decoder(_Results)
UNREADABLE = (ValueError, IndexError, KeyError, TypeError, msgspec.DecodeError)
"""What reading an answer raises that no relayer gives."""


def routed(raw: Raw) -> Routed:
    """Who sends a transaction, and who pays. What is unreadable any relayer refuses in the right words."""
    try:
        parties = _parties.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Routed()
    return Routed(parties.sender, parties.relayer or "")


def divided(items: Sequence[Routed], choose: Callable[[Routed], Target]) -> dict[Target, list[int]]:
    """The positions of transactions by whom each is for, in their order."""
    found: dict[Target, list[int]] = {}
    for position, item in enumerate(items):
        found.setdefault(choose(item), []).append(position)
    return found


def read_answer(body: bytes) -> Answer:
    """Raises `msgspec.DecodeError` for what is no answer to a submission."""
    return _answers.decode(body)


def checked(body: bytes) -> bytes:
    """The same, if it is an object that is not empty: the rest is between the relayer and the client. Raises
    `UNREADABLE`."""
    if not body.startswith(b'{"') or not body.endswith(b"}"):
        raise ValueError("it is no answer")
    _objects.decode(body)
    return body


def taken(body: bytes) -> list[Taken]:
    """The transactions that an answer says are accepted and sent; none where that cannot be read."""
    try:
        answer = _results.decode(body)
        if not answer.hashes:
            return []
        return [Taken(bytes.fromhex(item.hash), _waits(item)) for item in answer.results]
    except (*UNREADABLE, RecursionError):
        return []


def joined(pieces: Sequence[Piece], action: str | None) -> bytes:
    """One answer of several, by the positions in the whole; a part that was refused has failed item by item.

    Raises `UNREADABLE`.
    """
    done: list[tuple[int, dict[str, Any], str | None, Raw | None]] = []
    failed: list[dict[str, Any]] = []
    signs = False
    for piece in pieces:
        answer = read_answer(piece.answer)
        signs = signs or isinstance(answer.transactions, list)
        if isinstance(answer.reason, str):
            failed += [_failed(position, answer) for position in piece.positions]
            continue
        failed += [item | {"index": piece.positions[item["index"]]} for item in answer.failed or []]
        for place, item in enumerate(answer.results or []):
            tx_hash = answer.hashes[place] if isinstance(answer.hashes, list) else None
            signed = answer.transactions[place] if isinstance(answer.transactions, list) else None
            position = piece.positions[item["index"]]
            done.append((position, item | {"index": position}, tx_hash, signed))
    done.sort(key=lambda one: one[0])
    failed.sort(key=lambda item: int(item["index"]))
    whole = Answer(failed=failed, results=[item for _, item, _, _ in done])
    if signs or action is None:
        whole.transactions = [signed for _, _, _, signed in done if signed is not None]
    else:
        whole.action, whole.status = action, messages.submission_status(len(done), len(failed))
        whole.hashes = [tx_hash for _, _, tx_hash, _ in done if tx_hash is not None]
    return messages.encode(whole)


def _failed(position: int, answer: Answer) -> dict[str, Any]:
    item: dict[str, Any] = {"index": position, "reason": answer.reason, "code": answer.code or ""}
    if isinstance(answer.retry_after_ms, int):
        item["retryAfterMs"] = answer.retry_after_ms
    if isinstance(answer.detail, str):
        item["detail"] = answer.detail
    return item


def _waits(item: _Result) -> bool:
    return not item.state and item.transaction.state == "pending"


def with_refused_topics(body: bytes, refusals: dict[str, Reason]) -> bytes:
    """A reply in which topics that the edge could not subscribe to are refused, by hash."""
    answer = read_answer(body)
    for item in answer.results or []:
        reason = refusals.pop(str(item.get("topic", "")).removeprefix("tx-status/"), None)
        if reason is not None:
            del item["topic"]
            item["topicRefused"] = reason.reason
    return messages.encode(answer)


def with_request_id(body: bytes, request_id: messages.RequestId | None) -> bytes:
    """An answer, which is an object and not empty, with the client's own request id."""
    if request_id is None:
        return body
    return b"".join((body[:-1], b',"requestId":', messages.encode(request_id), b"}"))
