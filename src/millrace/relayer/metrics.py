"""Prometheus metrics, read from the parts when they are scraped: nothing is counted twice in hot paths."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from millrace.chain import address
from millrace.relayer.blocks.tracker import Tracker
from millrace.relayer.events.absent_accounts import AbsentAccounts
from millrace.relayer.events.events import Events
from millrace.relayer.events.hub_client import HubClient
from millrace.relayer.gateway.gateway import Gateway
from millrace.relayer.gateway.shared import Shared
from millrace.relayer.journal.fates import Fates
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.lease_keeper import LeaseKeeper
from millrace.relayer.ledger.accounts import AccountBook
from millrace.relayer.ledger.lifecycle import Lifecycle
from millrace.relayer.ledger.sponsor import Sponsor
from millrace.relayer.network.account_source import AccountSource
from millrace.relayer.network.broadcaster import Broadcaster
from millrace.relayer.network.chain_api import ChainApi
from millrace.relayer.network.gossip_peer import Peer
from millrace.relayer.network.simulator import Simulator
from millrace.relayer.rules.stages import Relayers
from millrace.relayer.signing.handle import SigningProcess
from millrace.relayer.statistics.streams import Statistics
from millrace.relayer.submission.admission import Admission
from millrace.runtime.doors import Doors

TOP_RECEIVERS = 20


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
    admission: Admission
    broadcaster: Broadcaster
    peer: Peer | None
    shared: Shared
    gateway: Gateway
    ws_doors: Doors
    http_doors: Doors
    is_ready: Callable[[], bool]
    leases: LeaseKeeper
    simulator: Simulator | None


def make_registry(parts: Measured) -> CollectorRegistry:
    """A registry of this service alone."""
    registry = CollectorRegistry()
    registry.register(_RelayerCollector(parts))
    return registry


class _RelayerCollector(Collector):
    def __init__(self, parts: Measured) -> None:
        self._parts = parts

    def describe(self) -> Iterator[Metric]:
        """Nothing up front: values exist only while the service runs."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        yield from self._counters()
        yield from self._gauges()
        yield from self._keys()
        yield from self._gossip()

    def _counters(self) -> Iterator[Metric]:
        parts = self._parts
        api, signer = parts.api, parts.signer()
        chains = parts.tracker.chains
        refused = CounterMetricFamily("relayer_refused", "Refusals by reason code.", labels=["code"])
        for code, count in sorted(parts.shared.refused.items()):
            refused.add_metric([code], count)
        yield refused
        simulations = CounterMetricFamily("relayer_simulations", "Simulations asked for.", labels=["answer"])
        if parts.simulator is not None:
            for answer in ("success", "fail", "unanswered", "busy"):
                simulations.add_metric([answer], parts.simulator.counts[answer])
        yield simulations
        for name, text, value in (
            ("journal_records", "Submissions written to the journal.", parts.journal.records),
            ("fates_left_out", "Ends of transactions that cannot be asked for.", parts.fates.left_out),
            (
                "first_nonces_left_out",
                "First nonces after a safe start not written down, for want of room.",
                0 if parts.lifecycle.safe_start is None else parts.lifecycle.safe_start.left_out,
            ),
            ("journal_commits", "Groups committed.", parts.journal.commits),
            ("gossip_sent", "Transactions taken by gossip peers, repeats included.", parts.broadcaster.sent),
            ("api_sent", "Transactions taken by the chain API.", parts.broadcaster.sent_to_api),
            ("overloaded", "Transactions refused as they would have waited too long.", parts.admission.refused),
            ("gossip_silences", "Times gossip answered nothing for 2 s.", parts.broadcaster.gossip.silences),
            ("untaken", "Sends nobody took; each is tried again.", parts.broadcaster.untaken),
            ("events", "Events read from the hub.", parts.events.taken),
            ("events_unreadable", "Events that could not be read.", parts.events.unreadable),
            ("events_gaps", "Gaps in the events.", parts.events.gaps),
            ("statuses_told", "Transaction statuses delivered.", parts.events.statuses_told),
            ("events_incomplete", "Events from which results are missing for good.", parts.events.incomplete),
            ("tracker_forgotten", "Blocks or transactions forgotten at a bound.", parts.tracker.forgotten),
            (
                "absent_accounts_forgotten",
                "Accounts not asked for, for want of room.",
                parts.absent_accounts.forgotten,
            ),
            ("reverted_final", "Final blocks reverted: must stay 0.", chains.reverted_final),
            (
                "connections_refused",
                "Connections beyond the bound of a client.",
                parts.shared.doors.refused + parts.ws_doors.refused + parts.http_doors.refused,
            ),
            ("connections_without_file", "Connections reset for want of a file.", parts.gateway.turned_away),
            ("disputed_blocks", "Blocks nodes tell different things of.", chains.disputed),
            ("forks", "Blocks beside another of the same height.", chains.forks),
            ("conflicting_final", "Second final blocks of a height: must stay 0.", chains.conflicting_final),
            (
                "unfinished_refused",
                "Messages thrown away unfinished, for want of room.",
                parts.shared.unfinished.refused,
            ),
            (
                "egress_skipped",
                "Statistics and requests left out for clients sent too much.",
                parts.shared.egress.skipped,
            ),
            ("conflated", "Statistics left out for readers who were behind.", parts.gateway.conflated),
            ("api_failures", "Submissions that met the chain API's own trouble.", api.failures if api else 0),
            ("api_refused", "Submissions the chain API will never take.", api.refused if api else 0),
            ("account_failures", "Questions the chain API did not answer.", parts.accounts.failures),
            ("hub_reconnects", "Connections to the hub tried again.", parts.hub.reconnects),
            ("lease_failures", "Renewals of the keys' leases that did not come through.", parts.leases.failures),
            ("signer_restarts", "Signing processes lost.", signer.restarts if signer else 0),
        ):
            yield CounterMetricFamily(f"relayer_{name}", text, value=value)

    def _gauges(self) -> Iterator[Metric]:
        parts = self._parts
        tracker = parts.tracker.sizes
        entries = parts.lifecycle.inflight.entries()
        oldest = (time.time() * 1000 - entries[0].created_ms) / 1000 if entries else 0.0
        for name, text, value in (
            ("connections", "Open WebSocket connections.", parts.gateway.connections),
            ("handshakes", "WebSocket connections without one yet.",
             max(0, parts.ws_doors.open - parts.gateway.connections)),
            ("http_connections", "Open HTTP connections.", parts.http_doors.open),
            ("unfinished_bytes", "Bytes of messages that have not wholly come.", parts.shared.unfinished.total),
            ("subscriptions", "Topics subscribed to.", len(parts.shared.subscriptions)),
            ("waiting", "Transactions submitted and not answered.", parts.admission.waiting),
            ("expected_wait_seconds", "How long what waits takes to be served.", parts.admission.expected),
            ("in_flight", "Transactions that may still run.", len(entries)),
            ("in_flight_oldest_seconds", "Age of the oldest of them.", oldest),
            ("broadcast_queue", "Transactions waiting for a batch.", parts.broadcaster.queued),
            ("journal_queue", "Changes waiting for the disk.", parts.journal.waiting),
            ("first_nonces_unwritten", "First nonces after a safe start on their way to the disk.",
             0 if parts.lifecycle.safe_start is None else parts.lifecycle.safe_start.noting),
            ("fates_unwritten", "Ends of transactions not yet in their file.", parts.fates.unwritten),
            ("fates_followed", "Transactions in flight no more and not ended.", parts.lifecycle.fates.followed),
            ("end_waiters", "Requests' waits for the end of a transaction.", parts.lifecycle.fates.waiters),
            ("accounts", "Accounts known.", len(parts.book)),
            ("held_blocks", "Saved blocks not yet final, or not yet executed.", tracker["held_blocks"]),
            ("absent_accounts", "Accounts waiting to be asked for.", len(parts.absent_accounts)),
            ("pending_transactions", "Transactions of final blocks not yet ended.", tracker["pending"]),
            ("hub_lag", "Events the hub has and this service has not read.",
             max(0, parts.hub.head - (parts.hub.last or 0))),
            ("block_lag_ms", "Milliseconds from a block's arrival to its fan-out.", parts.statistics.lag_ms or 0.0),
            ("lease_seconds_left", "For how long keys may sign without a renewal.", parts.leases.seconds_left),
            ("policy_rejected", "1 while the policy file is not the policy in force.", int(parts.policy_rejected())),
            ("ready", "1 when submissions are taken and events are read.", int(parts.is_ready())),
        ):  # fmt: skip
            yield GaugeMetricFamily(f"relayer_{name}", text, value=value)

    def _keys(self) -> Iterator[Metric]:
        sponsor = self._parts.lifecycle.sponsor
        now = time.monotonic()
        left = GaugeMetricFamily("relayer_budget_left", "EGLD a key may still reserve.", labels=["shard"])
        risk = GaugeMetricFamily("relayer_at_risk", "EGLD signed and not known to be over.", labels=["shard"])
        balance = GaugeMetricFamily("relayer_balance", "EGLD a key holds at least.", labels=["shard"])
        written_off = GaugeMetricFamily(
            "relayer_written_off", "EGLD written off that a key may still have to pay.", labels=["shard"]
        )
        pays = GaugeMetricFamily("relayer_key_pays", "1 when a key can pay for transactions.", labels=["shard"])
        empty = GaugeMetricFamily(
            "relayer_time_to_empty_seconds", "Until a key cannot pay any more, at the present rate.", labels=["shard"]
        )
        low = GaugeMetricFamily("relayer_balance_low", "1 below the alert balance.", labels=["shard"])
        for shard, key in sorted(self._parts.relayers().by_shard.items()):
            labels = [str(shard)]
            left.add_metric(labels, sponsor.budgets.left(key, now, sponsor.policy.budget) / 10**18)
            risk.add_metric(labels, sponsor.budgets.at_risk(key) / 10**18)
            written_off.add_metric(labels, sponsor.written_off.of_key(key) / 10**18)
            state, bound = sponsor.state_of(key), sponsor.balances.lower_bound(key)
            pays.add_metric(labels, int(state.condition == "ok"))
            if bound is not None:
                balance.add_metric(labels, bound / 10**18)
                low.add_metric(labels, int(state.is_low))
                empty.add_metric(labels, state.seconds_to_empty)
        yield from (left, risk, balance, low, written_off, pays, empty)
        yield from _programmes(sponsor)
        receivers = CounterMetricFamily(
            "relayer_receiver_fees", "EGLD paid for transactions to a receiver; the largest.", labels=["receiver"]
        )
        for receiver, fees in sponsor.fees_by_receiver.most_common(TOP_RECEIVERS):
            receivers.add_metric([address.encode(receiver)], fees / 10**18)
        yield receivers
        silence = GaugeMetricFamily("relayer_block_age_seconds", "Since a shard's last block.", labels=["shard"])
        for shard, seen in sorted(self._parts.events.block_at.items()):
            silence.add_metric([str(shard)], now - seen)
        yield silence
        lag = GaugeMetricFamily(
            "relayer_execution_lag_blocks", "By how many blocks a shard's execution is behind.", labels=["shard"]
        )
        for shard, blocks in sorted(self._parts.events.execution_lag.items()):
            lag.add_metric([str(shard)], blocks)
        yield lag
        lost = GaugeMetricFamily(
            "relayer_lost", "EGLD a key paid for failing transactions in an hour.", labels=["shard"]
        )
        for shard, key in sorted(self._parts.relayers().by_shard.items()):
            lost.add_metric([str(shard)], sponsor.budgets.lost(key, now) / 10**18)
        yield lost

    def _gossip(self) -> Iterator[Metric]:
        """The gossip peer, as of the last second."""
        peer = self._parts.peer
        if peer is None:
            return
        stats, observer = peer.stats, peer.observer
        for name, text, value in (
            ("delivered", "Messages heard.", stats.delivered),
            ("duplicates", "Further copies of them.", stats.duplicates),
            ("published", "Messages published.", stats.published),
            ("invalid", "Messages that break a rule.", stats.invalid),
            ("dropped_inbound", "Messages lost because this service was late.", stats.dropped_inbound),
            ("dropped_outbound", "Copies lost on the way to a remote peer.", stats.dropped_outbound),
            ("dropped_control", "Control frames lost on the way to a remote peer.", stats.dropped_control),
            ("dropped_validation", "Messages lost before their signature was checked.", stats.dropped_validation),
            ("stalled", "Publishes that no peer took in time; each is sent by another way.", stats.stalled),
            ("refused", "Publishes beyond the bound of those under way.", stats.refused),
            ("requests", "Requests of nodes for data.", stats.requests),
            ("trimmed", "Connections closed for want of a place.", stats.trimmed),
            ("connections_made", "Connections made.", stats.connections),
            ("restarts", "Gossip processes lost.", stats.restarts),
            ("heartbeats", "Heartbeats sent.", observer.heartbeats if observer else 0),
            ("announcements", "Announcements of our shard sent.", observer.announcements if observer else 0),
        ):
            yield CounterMetricFamily(f"relayer_gossip_{name}", text, value=value)
        yield GaugeMetricFamily("relayer_gossip_peers", "Connected peers.", value=stats.connected_peers)


def _programmes(sponsor: Sponsor) -> Iterator[Metric]:
    """What is left of the policy's programmes."""
    left = GaugeMetricFamily("relayer_programme_left", "EGLD a programme may still pay.", labels=["programme"])
    users = GaugeMetricFamily(
        "relayer_programme_users", "Senders a programme has paid for; 100000 at most.", labels=["programme"]
    )
    now_ms = time.time_ns() // 1_000_000
    for name, programme in sponsor.policy.programmes.items():
        left.add_metric([name], sponsor.programmes.left(name, programme, now_ms) / 10**18)
        users.add_metric([name], sponsor.programmes.users(name))
    yield from (left, users)
