"""What all sessions of the public WebSocket share: limits, subscriptions, audiences, and the way to the submitter."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from millrace.relayer.gateway.audience import Audience
from millrace.relayer.gateway.deliveries import Reader
from millrace.relayer.gateway.gathering import Gathering
from millrace.relayer.gateway.limits import (
    TOLD,
    TOLD_RATE,
    Connections,
    SlidingWindow,
    TokenBuckets,
    Wrong,
    milliseconds,
)
from millrace.relayer.gateway.subscriptions import Subscriptions
from millrace.relayer.gateway.together import Lane as Company
from millrace.relayer.gateway.together import Together
from millrace.relayer.gateway.traffic import Egress, HeldBytes
from millrace.relayer.protocol import messages, reasons, topics
from millrace.relayer.protocol.messages import Broadcast, Relay
from millrace.relayer.protocol.reasons import Reason
from millrace.relayer.settings import RelayerSettings
from millrace.relayer.submission.submitter import Submitter
from millrace.runtime import websocket
from millrace.runtime.client_address import ClientAddress, is_local
from millrace.runtime.measures import ANSWER_BUCKETS, Timings
from millrace.runtime.tracing import Tracer

WRONG_SIGNATURE = frozenset(
    reason.code
    for reason in (
        reasons.INVALID_SIGNATURE,
        reasons.INVALID_USER_SIGNATURE,
        reasons.INVALID_GUARDIAN_SIGNATURE,
        reasons.INVALID_RELAYER_SIGNATURE,
    )
)
Snapshot = Callable[[], bytes]


class Lane(Protocol):
    """Where a session's submissions go."""

    def add(self, request: Relay | Broadcast, data: bytes, marked: int, /) -> None:
        """Take a submission, read from `data`, which has so many signs of structure."""

    def read_later(self, data: bytes) -> None: ...
    def clear(self) -> None: ...


class Shared:
    """One of it for all sessions."""

    def __init__(
        self,
        settings: RelayerSettings,
        submitter: Submitter,
        snapshots: dict[str, Snapshot],
        tracer: Tracer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.tracer = Tracer(settings) if tracer is None else tracer
        self.submitter = submitter
        self.snapshots = snapshots
        """What a new subscriber of a stream gets right after the acknowledgement: joined frames."""
        self.clock = clock
        self.subscriptions: Subscriptions[Reader] = Subscriptions(settings.max_topics)
        self.submissions = TokenBuckets(settings.submit_rate, max(settings.submit_burst, settings.max_batch))
        self.bytes = TokenBuckets(settings.receive_rate, max(settings.receive_burst, settings.max_message_bytes))
        self.unfinished = HeldBytes(
            int(max(settings.receive_burst, 2 * settings.max_message_bytes)), settings.unfinished_bytes
        )
        self.gathering: Gathering[Company] = Gathering(Together(submitter).set_out, clock)
        self.wrong = Wrong()
        self.told = TokenBuckets(TOLD_RATE, TOLD)
        self.control = TokenBuckets(settings.control_rate, settings.control_burst)
        self.egress = Egress(settings.send_rate, settings.send_burst, clock())
        self.clients = ClientAddress((*settings.trusted_proxies, *settings.edges))
        self.doors = Connections(settings.max_connections_per_client, settings.connect_rate)
        self.stats_sessions: set[websocket.Session] = set()
        self.refused: dict[str, int] = {}
        self.answers = Timings(ANSWER_BUCKETS)
        """From a submission's arrival to its reply."""
        self.audiences = {name: Audience(self.egress) for name in topics.STREAMS}
        """Who hears each stream of statistics, by its topic."""
        self.decode = messages.request_to_forward if settings.forward_to else messages.decode_request
        """Reads the request in a message, given the size of the largest batch and the message's signs of structure."""
        self.forward: Callable[[Any], Lane] | None = None
        """Of an edge: makes the lane of a session, whose submissions others sign."""
        self.stopping = False
        self.under_way = 0
        """Submissions not yet answered, of all connections."""

    def judged(self, client: str, results: Sequence[object], since: float) -> None:
        """A submission that came at `since` is answered: have its client pay for wrong signatures among its results."""
        self.answers.observe(self.clock() - since)
        wrong = right = 0
        for result in results:
            if not isinstance(result, Reason):
                right += 1
            elif result.code in WRONG_SIGNATURE:
                wrong += 1
        cost = self.wrong.cost(client, wrong, right)
        if cost:
            self.submissions.charge(client, cost, self.clock())

    def over_control_limit(self, window: SlidingWindow, client: str, topics: int) -> Reason | None:
        """Why a control message of so many topics is too much, of the window's connection or of its address."""
        now = self.clock()
        wait = window.admit(now)
        if wait:
            return reasons.RATE_LIMIT.but("too many control messages", milliseconds(wait))
        wait = 0.0 if is_local(client) else self.control.take(client, topics, now)
        return reasons.RATE_LIMIT.but("too many topics from this address", milliseconds(wait)) if wait else None

    def count(self, reason: Reason) -> Reason:
        """Count a refusal by its code, which is one of a fixed set."""
        self.refused[reason.code] = self.refused.get(reason.code, 0) + 1
        return reason
