"""What a submission's reply says of each transaction."""

from __future__ import annotations

import msgspec

from millrace_client.errors import Refused
from millrace_client.handle import Handle
from millrace_client.link import Reply

_LATER = frozenset({"rate_limit_exceeded", "relayer_busy", "account_state_unavailable", "not_ready"})


class Submitted(msgspec.Struct, frozen=True):
    """What became of several transactions: `handles` of those accepted, and why the others were `refused`."""

    handles: list[Handle]
    refused: list[Refused]


def only(submitted: Submitted) -> Handle:
    if submitted.refused and not submitted.handles:
        raise submitted.refused[0]
    return submitted.handles[0]


def accepted_of(handles: list[Handle], refused: list[Refused], reply: Reply) -> list[Handle]:
    """The handles of what was accepted, each with its chain hash."""
    indices = {error.index for error in refused}
    accepted = [handle for index, handle in enumerate(handles) if index not in indices]
    hashes = {item.index: item.hash for item in reply.results}
    if not hashes:  # of a deployment that does not link them: they are in the order of what was accepted
        places = [index for index in range(len(handles)) if index not in indices]
        hashes = dict(zip(places, reply.hashes, strict=False))
    for index, handle in enumerate(handles):
        if index not in indices:
            if reply.status != "failed":  # else it contradicts itself: nothing is known of this one
                handle.accepted = True
            handle.hash = hashes.get(index, handle.hash)
    return accepted


def refused_for_now(reply: Reply) -> Refused | None:
    """The refusal, if all of it was refused for reasons that pass."""
    whole = reply.refusal()
    if whole is not None:
        return whole if whole.code in _LATER and whole.retry_after is not None else None
    if reply.status == "failed" and reply.failed and all(item.code in _LATER for item in reply.failed):
        waits = [item.retry_after_ms for item in reply.failed if item.retry_after_ms is not None]
        return Refused(reply.failed[0].reason, retry_after=max(waits) / 1000) if waits else None
    return None
