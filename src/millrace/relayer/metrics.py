"""Prometheus metrics, read from the parts when they are scraped: nothing is counted twice in hot paths."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from millrace.chain import address
from millrace.relayer.ledger.sponsor import Sponsor
from millrace.relayer.measures import COUNTERS, GAUGES, HISTOGRAMS, Measured
from millrace.relayer.network.gossip_peer import Peer
from millrace.relayer.protocol import reasons
from millrace.runtime.measures import Measure, registry_of
from millrace.runtime.tracing import Tracer

TOP_RECEIVERS = 20
MOST_SHARDS = 16
"""Shown; what is beyond comes of a hub that invents them."""
ALWAYS_SHOWN = tuple(
    reason.code for reason in (reasons.CONFLICTING, reasons.SIGNER_REFUSED, reasons.SIGNER_UNAVAILABLE)
)
"""Codes that are shown before the first refusal: of a series that begins with 1 an alert sees no increase."""
ATOMIC = 10**18
"""Atomic units of one EGLD."""


def _gauge(name: str, text: str, *labels: str) -> Measure:
    return Measure("gauge", f"relayer_{name}", text, labels)


REFUSED = Measure("counter", "relayer_refused_total", "refusals by reason code", ("code",))
BUDGET_LEFT = _gauge("budget_left_egld", "EGLD that is left of a limit of a key's budget", "shard", "limit")
BUDGET = _gauge("budget_egld", "each limit itself, in EGLD, by the policy in force", "shard", "limit")
AT_RISK = _gauge("at_risk_egld", "EGLD signed and not known to be over", "shard")
BALANCE = _gauge("balance_egld", "EGLD a key holds at least", "shard")
BALANCE_LOW = _gauge("balance_low", "1 below the alert balance", "shard")
WRITTEN_OFF = _gauge("written_off_egld", "EGLD written off that a key may still have to pay", "shard")
KEY_PAYS = _gauge("key_pays", "1 when a key can pay for transactions", "shard")
TIME_TO_EMPTY = _gauge("time_to_empty_seconds", "until a key cannot pay any more, at the present rate", "shard")
LOST = _gauge("lost_egld", "EGLD a key paid for failing transactions in an hour", "shard")
PROGRAMME_LEFT = _gauge("programme_left_egld", "EGLD a programme may still pay", "programme")
PROGRAMME_USERS = _gauge("programme_users", "senders a programme has paid for; 100000 at most", "programme")
SIMULATIONS = Measure("counter", "relayer_simulations_total", "simulations asked for, by answer", ("answer",))
RECEIVER_FEES = Measure(
    "counter",
    "relayer_receiver_fees_egld_total",
    f"EGLD paid for transactions to a receiver; the {TOP_RECEIVERS} largest",
    ("receiver",),
)
BLOCK_AGE = _gauge("block_age_seconds", "since a shard's last block", "shard")
EXECUTION_LAG = _gauge("execution_lag_blocks", "by how many blocks a shard's execution is behind", "shard")
EXECUTION_LATE = _gauge("execution_late", "1 from when that is more than execution_lag until half of it", "shard")
GOSSIP_PEERS = _gauge("gossip_peers", "connected peers")


def _gossip(name: str, text: str, read: Callable[[Peer], float]) -> tuple[Measure, Callable[[Peer], float]]:
    return Measure("counter", f"relayer_gossip_{name}_total", text), read


GOSSIP = (
    _gossip("delivered", "messages heard", lambda peer: peer.stats.delivered),
    _gossip("duplicates", "further copies of them", lambda peer: peer.stats.duplicates),
    _gossip("published", "messages published", lambda peer: peer.stats.published),
    _gossip("invalid", "messages that break a rule", lambda peer: peer.stats.invalid),
    _gossip("dropped_inbound", "messages lost because this service was late", lambda peer: peer.stats.dropped_inbound),
    _gossip("dropped_outbound", "copies lost on the way to a remote peer", lambda peer: peer.stats.dropped_outbound),
    _gossip(
        "dropped_control", "control frames lost on the way to a remote peer", lambda peer: peer.stats.dropped_control
    ),
    _gossip(
        "dropped_validation",
        "messages lost before their signature was checked",
        lambda peer: peer.stats.dropped_validation,
    ),
    _gossip("stalled", "publishes that no peer took in time; each is sent by another way", lambda p: p.stats.stalled),
    _gossip("refused", "publishes beyond the bound of those under way", lambda peer: peer.stats.refused),
    _gossip("requests", "requests of nodes for data", lambda peer: peer.stats.requests),
    _gossip("trimmed", "connections closed for want of a place", lambda peer: peer.stats.trimmed),
    _gossip("connections_made", "connections made", lambda peer: peer.stats.connections),
    _gossip("restarts", "gossip processes lost", lambda peer: peer.stats.restarts),
    _gossip("heartbeats", "heartbeats sent", lambda peer: peer.observer.heartbeats if peer.observer else 0),
    _gossip(
        "announcements",
        "announcements of our shard sent",
        lambda peer: peer.observer.announcements if peer.observer else 0,
    ),
)
DECLARED: tuple[Measure, ...] = (
    REFUSED, *(measure for measure, _ in (*COUNTERS, *GAUGES)), *(measure for measure, _ in HISTOGRAMS),
    BUDGET_LEFT, BUDGET, AT_RISK, BALANCE, BALANCE_LOW, WRITTEN_OFF, KEY_PAYS, TIME_TO_EMPTY, LOST, PROGRAMME_LEFT,
    PROGRAMME_USERS, SIMULATIONS, RECEIVER_FEES, BLOCK_AGE, EXECUTION_LAG, EXECUTION_LATE,
    *(measure for measure, _ in GOSSIP), GOSSIP_PEERS,
)  # fmt: skip
"""All of them; those of the process apart."""


def make_registry(parts: Measured, tracer: Tracer | None = None) -> CollectorRegistry:
    """A registry of this service alone."""
    registry = registry_of("relayer", tracer)
    registry.register(_RelayerCollector(parts))
    return registry


class _RelayerCollector(Collector):
    def __init__(self, parts: Measured) -> None:
        self._parts = parts

    def describe(self) -> Iterator[Metric]:
        """Families without values, for the registry: values exist only while the service runs."""
        return (measure.described() for measure in DECLARED)

    def collect(self) -> Iterator[Metric]:
        parts = self._parts
        refused = REFUSED.family()
        for code, count in sorted((dict.fromkeys(ALWAYS_SHOWN, 0) | parts.shared.refused).items()):
            refused.add_metric([code], count)
        yield refused
        simulations = SIMULATIONS.family()
        for answer in ("success", "fail", "unanswered", "busy"):
            simulations.add_metric([answer], parts.simulator.counts[answer] if parts.simulator is not None else 0)
        yield simulations
        for measure, read in (*COUNTERS, *GAUGES):
            yield measure.single(read(parts))
        for measure, of in HISTOGRAMS:
            yield of(parts).family(measure)
        yield from self._keys()
        yield from _programmes(parts.lifecycle.sponsor)
        yield from self._shards()
        peer = parts.peer
        if peer is not None:  # as of the last second
            for measure, count_of in GOSSIP:
                yield measure.single(count_of(peer))
            yield GOSSIP_PEERS.single(peer.stats.connected_peers)

    def _keys(self) -> Iterator[Metric]:
        """Money."""
        sponsor = self._parts.lifecycle.sponsor
        measures = (BUDGET_LEFT, BUDGET, AT_RISK, BALANCE, BALANCE_LOW, WRITTEN_OFF, KEY_PAYS, TIME_TO_EMPTY, LOST)
        left, budget, risk, balance, low, written_off, pays, empty, lost = families = [
            each.family() for each in measures
        ]
        for shard, key in sorted(self._parts.relayers().by_shard.items()):
            labels = [str(shard)]
            standing = sponsor.standing_of(key)
            state, used = standing.state, standing.used
            for limit, room in sponsor.rooms_of(key).items():
                left.add_metric([*labels, limit], room / ATOMIC)
                budget.add_metric([*labels, limit], getattr(sponsor.policy.budget, limit) / ATOMIC)
            risk.add_metric(labels, used.at_risk / ATOMIC)
            written_off.add_metric(labels, standing.written_off / ATOMIC)
            lost.add_metric(labels, used.lost_hour / ATOMIC)
            pays.add_metric(labels, int(state.condition == "ok"))
            if standing.balance is not None:
                balance.add_metric(labels, standing.balance / ATOMIC)
                low.add_metric(labels, int(state.is_low))
                empty.add_metric(labels, state.seconds_to_empty)
        yield from families
        receivers = RECEIVER_FEES.family()
        for receiver, fees in sponsor.fees_by_receiver.most_common(TOP_RECEIVERS):
            receivers.add_metric([address.encode(receiver)], fees / ATOMIC)
        yield receivers

    def _shards(self) -> Iterator[Metric]:
        events = self._parts.events
        silence, lag, late = BLOCK_AGE.family(), EXECUTION_LAG.family(), EXECUTION_LATE.family()
        for shard, seconds in sorted(events.silence().items())[:MOST_SHARDS]:
            silence.add_metric([str(shard)], seconds)
        for shard, blocks in sorted(events.execution.blocks.items())[:MOST_SHARDS]:
            lag.add_metric([str(shard)], blocks)
            late.add_metric([str(shard)], int(shard in events.execution.late))
        yield from (silence, lag, late)


def _programmes(sponsor: Sponsor) -> Iterator[Metric]:
    """What is left of the policy's programmes."""
    left, users = PROGRAMME_LEFT.family(), PROGRAMME_USERS.family()
    now_ms = time.time_ns() // 1_000_000
    for name, programme in sponsor.policy.programmes.items():
        left.add_metric([name], sponsor.programmes.left(name, programme, now_ms) / ATOMIC)
        users.add_metric([name], sponsor.programmes.users(name))
    yield from (left, users)
