"""Replies to submissions, from their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET

from millrace.chain.transaction import to_json
from millrace.relayer.protocol import messages
from millrace.relayer.protocol.messages import FailedItem, RequestId, ResultItem, SignReply, SubmissionReply
from millrace.relayer.protocol.reasons import Reason
from millrace.relayer.submission.batch import Accepted, Result


def submission_reply(
    action: str,
    results: Sequence[Result],
    request_id: RequestId | None = None,
    subscribed: Mapping[bytes, str | Reason] | None = None,
) -> SubmissionReply:
    """The reply to `relay` or `broadcast`."""
    items, failed = _items(results, subscribed or {})
    return SubmissionReply(
        action=action,
        status=messages.submission_status(len(items), len(failed)),
        hashes=[item.hash for item in items],
        failed=failed,
        results=items,
        request_id=UNSET if request_id is None else request_id,
    )


def sign_reply(results: Sequence[Result]) -> SignReply:
    """The reply to `POST /v1/sign`."""
    items, failed = _items(results, {})
    return SignReply([to_json(result.tx) for result in results if isinstance(result, Accepted)], failed, items)


def told_of(results: Sequence[Result]) -> dict[str, str | int]:
    """What a trace says of the results of a submission."""
    refused = [result.code for result in results if isinstance(result, Reason)]
    told: dict[str, str | int] = {"transactions": len(results), "refused": len(refused)}
    return told | {"code": refused[0]} if refused else told


def _items(
    results: Sequence[Result], subscribed: Mapping[bytes, str | Reason]
) -> tuple[list[ResultItem], list[FailedItem]]:
    accepted, failed = [], []
    for index, result in enumerate(results):
        if isinstance(result, Reason):
            failed.append(messages.failed_item(index, result))
        else:
            topic = subscribed.get(result.chain_hash or result.client_hash, UNSET)
            accepted.append(
                ResultItem(
                    index=index,
                    hash=(result.chain_hash or result.client_hash).hex(),
                    client_hash=result.client_hash.hex(),
                    relayer_signature=result.tx.relayer_signature.hex() or UNSET,
                    topic=UNSET if isinstance(topic, Reason) else topic,
                    topic_refused=topic.reason if isinstance(topic, Reason) else UNSET,
                    sdk_hash=result.sdk_hash.hex() or UNSET,
                    state=UNSET if result.chain_hash else "pending",
                )
            )
    return accepted, failed
