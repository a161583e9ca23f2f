"""The relayer's metrics without labels, each with where it is read: nothing is counted twice in hot paths."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from millrace.relayer.blocks.tracker import Tracker
from millrace.relayer.events.absent_accounts import AbsentAccounts
from millrace.relayer.events.events import Events
from millrace.relayer.events.hub_client import HubClient
from millrace.relayer.forwarding.signers import Signers
from millrace.relayer.forwarding.signing_end import Edges
from millrace.relayer.gateway.gateway import Gateway
from millrace.relayer.gateway.shared import Shared
from millrace.relayer.journal.fates import Fates
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.lease_keeper import LeaseKeeper
from millrace.relayer.journal.portions import PORTIONS
from millrace.relayer.journal.sharing import Sharing
from millrace.relayer.ledger.accounts import AccountBook
from millrace.relayer.ledger.lifecycle import Lifecycle
from millrace.relayer.network.account_source import AccountSource
from millrace.relayer.network.broadcaster import Broadcaster
from millrace.relayer.network.chain_api import ChainApi
from millrace.relayer.network.gossip_peer import Peer
from millrace.relayer.network.simulator import Simulator
from millrace.relayer.rules.stages import Relayers
from millrace.relayer.signing.handle import SigningProcess
from millrace.relayer.statistics.history import History
from millrace.relayer.statistics.streams import Statistics
from millrace.relayer.submission.admission import Admission
from millrace.runtime.doors import Doors
from millrace.runtime.measures import Measure, Timings, free_bytes


@dataclass(frozen=True)
class Measured:
    """The parts of a running relayer that metrics are read from."""

    api: ChainApi | None
    journal: Journal
    policy_rejected: Callable[[], bool]
    fates: Fates
    signer: Callable[[], SigningProcess | None]
    relayers: Callable[[], Relayers]
    lifecycle: Lifecycle
    book: AccountBook
    tracker: Tracker
    events: Events
    hub: HubClient
    accounts: AccountSource
    absent_accounts: AbsentAccounts
    statistics: Statistics
    history: History
    admission: Admission
    broadcaster: Broadcaster
    peer: Peer | None
    shared: Shared
    gateway: Gateway
    ws_doors: Doors
    http_doors: Doors
    is_ready: Callable[[], bool]
    leases: LeaseKeeper
    sharing: Sharing | None
    simulator: Simulator | None
    signers: Signers | None = None
    """Of an edge: those it forwards to."""
    edges: Edges | None = None
    """Of a relayer: who forwards to it."""


Read = Callable[[Measured], float]


def _counter(name: str, text: str, read: Read) -> tuple[Measure, Read]:
    return Measure("counter", f"relayer_{name}_total", text), read


def _gauge(name: str, text: str, read: Read) -> tuple[Measure, Read]:
    return Measure("gauge", f"relayer_{name}", text), read


def _histogram(
    name: str, text: str, of: Callable[[Measured], Timings]
) -> tuple[Measure, Callable[[Measured], Timings]]:
    return Measure("histogram", f"relayer_{name}", text), of


STANDING_BY = Measure("gauge", "relayer_standing_by", "1 while it waits for a seat as others have them all")
READY = Measure("gauge", "relayer_ready", "1 when submissions are taken and events are read")
"""These two are shown before it serves, too."""


def _oldest(parts: Measured) -> float:
    entries = parts.lifecycle.inflight.entries()
    return (time.time() * 1000 - entries[0].created_ms) / 1000 if entries else 0.0


def _of_signers(read: Callable[[Signers], float]) -> Read:
    """A number of an edge; 0 of a relayer that forwards nothing."""
    return lambda parts: 0 if parts.signers is None else read(parts.signers)


def _of_edges(read: Callable[[Edges], float]) -> Read:
    """A number of a relayer that edges forward to; 0 of one that none may."""
    return lambda parts: 0 if parts.edges is None else read(parts.edges)


def _restarts(parts: Measured) -> float:
    signer = parts.signer()
    return signer.restarts if signer else 0


def _signer_running(parts: Measured) -> float:
    signer = parts.signer()
    return int(signer is not None and signer.running)


COUNTERS = (
    _counter("journal_records", "submissions written to the journal", lambda p: p.journal.records),
    _counter("journal_commits", "groups committed", lambda p: p.journal.commits),
    _counter("fates_left_out", "ends of transactions that cannot be asked for", lambda p: p.fates.left_out),
    _counter(
        "files_put_aside",
        "files that were damaged and made anew: of the history, of ends, the gossip peer's key",
        lambda p: p.history.put_aside + p.fates.put_aside + (p.peer.keys_put_aside if p.peer else 0),
    ),
    _counter(
        "damaged_rows",
        "points of the history and ends of transactions that were damaged, and not told",
        lambda p: p.history.left_out + p.fates.damaged,
    ),
    _counter(
        "first_nonces_left_out",
        "first nonces after a safe start not written down, for want of room",
        lambda p: 0 if p.lifecycle.approvals.safe_start is None else p.lifecycle.approvals.safe_start.left_out,
    ),
    _counter("gossip_sent", "transactions taken by gossip peers, repeats included", lambda p: p.broadcaster.sent),
    _counter("api_sent", "transactions taken by the chain API", lambda p: p.broadcaster.sent_to_api),
    _counter("overloaded", "transactions refused as they would have waited too long", lambda p: p.admission.refused),
    _counter("gossip_silences", "times gossip answered nothing for 2 s", lambda p: p.broadcaster.gossip.silences),
    _counter("untaken", "sends nobody took; each is tried again", lambda p: p.broadcaster.untaken),
    _counter("events", "events read from the hub", lambda p: p.events.taken),
    _counter("events_unreadable", "events that could not be read", lambda p: p.events.unreadable),
    _counter("events_gaps", "gaps in the events", lambda p: p.events.gaps),
    _counter("statuses_told", "transaction statuses delivered", lambda p: p.events.statuses_told),
    _counter("events_incomplete", "events from which results are missing for good", lambda p: p.events.incomplete),
    _counter(
        "tracker_forgotten",
        "blocks or transactions forgotten at a bound; final blocks that never came",
        lambda p: p.tracker.forgotten,
    ),
    _counter(
        "absent_accounts_forgotten", "accounts not asked for, for want of room", lambda p: p.absent_accounts.forgotten
    ),
    _counter("reverted_final", "final blocks reverted: must stay 0", lambda p: p.tracker.chains.reverted_final),
    _counter(
        "conflicting_final",
        "second final blocks of a height: must stay 0",
        lambda p: p.tracker.chains.conflicting_final,
    ),
    _counter("disputed_blocks", "blocks nodes tell different things of", lambda p: p.tracker.chains.disputed),
    _counter("forks", "blocks beside another of the same height", lambda p: p.tracker.chains.forks),
    _counter(
        "connections_refused",
        "connections beyond the bound of a client",
        lambda p: p.shared.doors.refused + p.ws_doors.refused + p.http_doors.refused,
    ),
    _counter("connections_without_file", "connections reset for want of a file", lambda p: p.gateway.turned_away),
    _counter(
        "unfinished_refused",
        "messages thrown away unfinished, for want of room",
        lambda p: p.shared.unfinished.refused,
    ),
    _counter(
        "egress_skipped",
        "statistics and requests left out for clients sent too much",
        lambda p: p.shared.egress.skipped,
    ),
    _counter("conflated", "statistics left out for readers who were behind", lambda p: p.gateway.conflated),
    _counter(
        "api_failures", "submissions that met the chain API's own trouble", lambda p: p.api.failures if p.api else 0
    ),
    _counter("api_refused", "submissions the chain API will never take", lambda p: p.api.refused if p.api else 0),
    _counter("account_failures", "questions the chain API did not answer", lambda p: p.accounts.failures),
    _counter("hub_reconnects", "connections to the hub tried again", lambda p: p.hub.reconnects),
    _counter("lease_failures", "renewals of the keys' leases that did not come through", lambda p: p.leases.failures),
    _counter(
        "claims_failures",
        "questions that the claims' server did not answer in time",
        lambda p: p.sharing.failures if p.sharing else 0,
    ),
    _counter("signer_restarts", "signing processes lost", _restarts),
    _counter("forwarded", "transactions forwarded to relayers that sign", _of_signers(lambda s: s.forwarded)),
    _counter(
        "forwarded_again", "transactions forwarded once more as a connection was lost", _of_signers(lambda s: s.again)
    ),
    _counter(
        "forward_refused", "transactions refused for want of room or of a relayer", _of_signers(lambda s: s.refused)
    ),
    _counter("forward_losses", "connections to relayers that sign lost", _of_signers(lambda s: s.losses)),
    _counter(
        "edges_turned_away",
        "connections of edges from networks that are not theirs",
        _of_edges(lambda e: e.turned_away),
    ),
)
GAUGES = (
    _gauge("connections", "open WebSocket connections", lambda p: p.gateway.connections),
    _gauge(
        "handshakes",
        "WebSocket connections without one yet",
        lambda p: max(0, p.ws_doors.open - p.gateway.connections),
    ),
    _gauge("http_connections", "open HTTP connections", lambda p: p.http_doors.open),
    _gauge("unfinished_bytes", "bytes of messages that have not wholly come", lambda p: p.shared.unfinished.total),
    _gauge("subscriptions", "topics subscribed to", lambda p: len(p.shared.subscriptions)),
    _gauge("waiting", "transactions submitted and not answered", lambda p: p.admission.waiting),
    _gauge("expected_wait_seconds", "how long what waits takes to be served", lambda p: p.admission.expected),
    _gauge("in_flight", "transactions that may still run", lambda p: len(p.lifecycle.inflight.entries())),
    _gauge("in_flight_oldest_seconds", "age of the oldest of them", _oldest),
    _gauge("broadcast_queue", "transactions waiting for a batch", lambda p: p.broadcaster.queued),
    _gauge("journal_queue", "changes waiting for the disk", lambda p: p.journal.waiting),
    _gauge("journal_failing", "1 while the journal cannot be written", lambda p: int(p.journal.failed is not None)),
    _gauge("disk_free_bytes", "room on the disk of the data directory", lambda p: free_bytes(p.journal.path.parent)),
    _gauge(
        "first_nonces_unwritten",
        "first nonces after a safe start on their way to the disk",
        lambda p: 0 if p.lifecycle.approvals.safe_start is None else p.lifecycle.approvals.safe_start.noting,
    ),
    _gauge("fates_unwritten", "ends of transactions not yet in their file", lambda p: p.fates.unwritten),
    _gauge("fates_followed", "transactions in flight no more and not ended", lambda p: p.lifecycle.fates.followed),
    _gauge("end_waiters", "requests' waits for the end of a transaction", lambda p: p.lifecycle.fates.waiters),
    _gauge("accounts", "accounts known", lambda p: len(p.book)),
    _gauge("round_seconds", "length of a round, as it is known", lambda p: p.lifecycle.rounds.seconds),
    _gauge("held_blocks", "saved blocks not yet final, or not yet executed", lambda p: p.tracker.sizes["held_blocks"]),
    _gauge("absent_accounts", "accounts waiting to be asked for", lambda p: len(p.absent_accounts)),
    _gauge("pending_transactions", "transactions of final blocks not yet ended", lambda p: p.tracker.sizes["pending"]),
    _gauge(
        "hub_lag_events",
        "events the hub has and this service has not read",
        lambda p: max(0, p.hub.head - (p.hub.last or 0)),
    ),
    _gauge("hub_ids", "ids of handled events that are kept; 8192 of each shard at most", lambda p: p.hub.ids_kept),
    _gauge("hub_connected", "1 while events are read from the hub", lambda p: int(p.hub.connected)),
    _gauge(
        "budget_portions",
        f"portions of all budgets that this relayer has; {PORTIONS} for each seat that shares them",
        lambda p: p.sharing.portions.held if p.sharing else 0,
    ),
    _gauge(
        "programme_senders_full",
        "senders that programmes shared with others do not pay for, as far as remembered; 100000 at most",
        lambda p: p.sharing.allowances.full if p.sharing else 0,
    ),
    _gauge("claims_waiting", "claims not answered yet", lambda p: p.sharing.waiting if p.sharing else 0),
    _gauge("claims_open", "claims of our seat that are not over", lambda p: p.sharing.open if p.sharing else 0),
    _gauge(
        "lease_seconds",
        "how long the keys' leases last after a renewal",
        lambda p: p.leases.seconds,
    ),
    _gauge("lease_seconds_left", "for how long keys may sign without a renewal", lambda p: p.leases.seconds_left),
    _gauge("signer_running", "1 while the signing process answers; 0 without keys", _signer_running),
    _gauge("policy_rejected", "1 while the policy file is not the policy in force", lambda p: int(p.policy_rejected())),
    _gauge("signers_up", "relayers that sign and are connected, of an edge", _of_signers(lambda s: s.up)),
    _gauge("forward_waiting", "transactions forwarded and not answered", _of_signers(lambda s: s.waiting)),
    _gauge("edges", "edges that are connected", _of_edges(len)),
    _gauge("edge_clients", "clients of edges that have submitted something", _of_edges(lambda e: e.clients)),
    _gauge("draining", "1 while clients are sent elsewhere", lambda p: int(p.gateway.drain is not None)),
    (STANDING_BY, lambda _: 0),
    (READY, lambda p: int(p.is_ready())),
)
HISTOGRAMS = (
    _histogram("answer_seconds", "from a submission's arrival to its reply", lambda p: p.shared.answers),
    _histogram(
        "final_seconds",
        "from a transaction's acceptance, or its first broadcast, to the final block of its sender's shard",
        lambda p: p.events.final_delays,
    ),
    _histogram(
        "fanout_seconds",
        "from the arrival of a block's result to the end of its fan-out to clients",
        lambda p: p.statistics.fanout,
    ),
)
