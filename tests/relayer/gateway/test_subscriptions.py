"""Topics of clients and the life of tx-status subscriptions, also against a small model."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millrace.relayer.gateway.subscriptions import Subscriptions
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.protocol.topics import AddressTopic, StreamTopic, TxStatusTopic

TX = TxStatusTopic(b"\1" * 32)


def test_state_subscribed_to_expired_after_60_seconds() -> None:
    """Nothing delivered: the subscription ends 60 s after it began."""
    subscriptions: Subscriptions[str] = Subscriptions()
    subscriptions.subscribe("a", TX, 0.0)
    assert subscriptions.deliver(TX, 59.9) == ["a"]
    subscriptions.subscribe("b", TX, 0.0)
    assert subscriptions.deliver(TX, 60.0) == []
    assert subscriptions.clients(TX) == ["a"]


def test_state_delivered_to_expired_after_60_more() -> None:
    """Delivered once, never again; the subscription ends 60 s after that."""
    subscriptions: Subscriptions[str] = Subscriptions()
    subscriptions.subscribe("a", TX, 0.0)
    assert subscriptions.deliver(TX, 30.0) == ["a"]
    assert subscriptions.deliver(TX, 31.0) == []
    subscriptions.expire(89.9)
    assert subscriptions.topics("a") == [TX]
    subscriptions.expire(90.0)
    assert subscriptions.topics("a") == []


def test_limit_64_topics_per_connection() -> None:
    """The 65th topic is refused, one given back makes room; others are not touched."""
    subscriptions: Subscriptions[str] = Subscriptions(64)
    for number in range(64):
        subscriptions.subscribe("a", TxStatusTopic(number.to_bytes(32, "big")), 0.0)
    with pytest.raises(Refused, match="topic limit reached"):
        subscriptions.subscribe("a", TX, 0.0)
    subscriptions.subscribe("b", TX, 0.0)
    subscriptions.unsubscribe("a", TxStatusTopic(bytes(32)))
    subscriptions.subscribe("a", TX, 0.0)
    assert not subscriptions.subscribe("a", TX, 0.0), "a repeated subscription changes nothing"


def test_capacity_is_shared() -> None:
    """Beyond the total bound new subscriptions are refused and old ones stay."""
    subscriptions: Subscriptions[str] = Subscriptions(64, capacity=1)
    subscriptions.subscribe("a", TX, 0.0)
    with pytest.raises(Refused, match="too many subscriptions"):
        subscriptions.subscribe("b", TX, 0.0)
    assert subscriptions.clients(TX) == ["a"]


def test_row_28_churn_leaves_nothing_behind() -> None:
    """However often a client subscribes and gives up, only what it has now is waited for."""
    subscriptions: Subscriptions[str] = Subscriptions(64)
    for number in range(10_000):
        topic = TxStatusTopic(number.to_bytes(32, "big"))
        subscriptions.subscribe("a", topic, 0.0)
        if number % 2:
            subscriptions.deliver(topic, 0.0)
        subscriptions.unsubscribe("a", topic)
    subscriptions.subscribe("a", TX, 0.0)
    assert subscriptions.timers == len(subscriptions) == 1


def test_topics_of_different_kinds_are_different() -> None:
    """An account and a transaction of the same bytes are two subscriptions, and neither hears or ends the other."""
    subscriptions: Subscriptions[str] = Subscriptions()
    account = AddressTopic(TX.tx_hash)
    assert subscriptions.subscribe("a", account, 0.0)
    assert subscriptions.deliver(TX, 0.0) == [] and subscriptions.subscribe("a", TX, 0.0)
    assert subscriptions.topics("a") == [account, TX]
    subscriptions.unsubscribe("a", TX)
    assert subscriptions.clients(account) == ["a"] and not subscriptions.has(TX)


def test_told_once_and_asked_again() -> None:
    """What is sent anew has a new subscription where the first was told its end; one that waits goes on as it is."""
    subscriptions: Subscriptions[str] = Subscriptions(1)
    assert subscriptions.subscribe("a", TX, 0.0, again=True)
    assert not subscriptions.subscribe("a", TX, 10.0, again=True)
    assert subscriptions.deliver(TX, 20.0) == ["a"]
    assert not subscriptions.subscribe("a", TX, 30.0)
    assert subscriptions.subscribe("a", TX, 30.0, again=True) and subscriptions.timers == len(subscriptions) == 1
    assert subscriptions.deliver(TX, 89.9) == ["a"]


CLIENTS = st.sampled_from("abc")
TOPICS = st.sampled_from([TX, TxStatusTopic(b"\2" * 32), AddressTopic(b"\1" * 32), StreamTopic("gasStats")])


class Model(RuleBasedStateMachine):
    """Subscriptions against a dictionary of (began, delivered) per client and topic."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.real: Subscriptions[str] = Subscriptions(2)
        self.model: dict[tuple[str, object], list[float | None]] = {}

    def _expire(self) -> None:
        for key, (began, delivered) in list(self.model.items()):
            since = began if delivered is None else delivered
            if isinstance(key[1], TxStatusTopic) and since is not None and since + 60 <= self.now:
                del self.model[key]

    @rule(client=CLIENTS, topic=TOPICS, again=st.booleans())
    def subscribe(self, client: str, topic: TxStatusTopic, again: bool) -> None:
        self._expire()
        if again and self.model.get((client, topic), [0.0, None])[1] is not None:
            del self.model[(client, topic)]
        mine = [key for key in self.model if key[0] == client]
        if (client, topic) in self.model:
            assert not self.real.subscribe(client, topic, self.now, again=again)
        elif len(mine) >= 2:
            with pytest.raises(Refused):
                self.real.subscribe(client, topic, self.now, again=again)
        else:
            assert self.real.subscribe(client, topic, self.now, again=again)
            self.model[(client, topic)] = [self.now, None]

    @rule(client=CLIENTS, topic=TOPICS)
    def unsubscribe(self, client: str, topic: TxStatusTopic) -> None:
        self.real.unsubscribe(client, topic)
        self.model.pop((client, topic), None)

    @rule(client=CLIENTS)
    def drop(self, client: str) -> None:
        self.real.drop(client)
        self.model = {key: life for key, life in self.model.items() if key[0] != client}

    @rule(topic=TOPICS)
    def deliver(self, topic: TxStatusTopic) -> None:
        if not isinstance(topic, TxStatusTopic):
            return
        self._expire()
        told = sorted(self.real.deliver(topic, self.now))
        due = [key for key, life in self.model.items() if key[1] == topic and life[1] is None]
        assert told == sorted(key[0] for key in due)
        for key in due:
            self.model[key][1] = self.now

    @rule(seconds=st.sampled_from([1.0, 29.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def agree(self) -> None:
        self._expire()
        assert self.real.timers <= len(self.real)
        self.real.expire(self.now)
        assert len(self.real) == len(self.model)
        for client in "abc":
            assert set(self.real.topics(client)) == {key[1] for key in self.model if key[0] == client}


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_row_29_the_table_is_bounded_and_room_comes_back() -> None:
    """A full table refuses new subscriptions and keeps those it has; hashes that never appear make room after 60 s."""
    table: Subscriptions[str] = Subscriptions(capacity=3)
    topics = [TxStatusTopic(bytes([number]) * 32) for number in range(5)]
    for topic in topics[:3]:
        table.subscribe("a", topic, 0.0)
    with pytest.raises(Refused, match="too many subscriptions"):
        table.subscribe("b", topics[3], 59.9)
    assert len(table) == table.timers == 3
    assert table.subscribe("b", topics[3], 60.0)
    assert len(table) == table.timers == 1
