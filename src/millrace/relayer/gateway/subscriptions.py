"""Who hears what: topics of each client, and the life of tx-status subscriptions. No I/O; time comes in.

A tx-status subscription ends 60 s after it began if nothing was delivered, else 60 s after its one delivery.
All lives are equally long, so two tables in order of time replace a timer per subscription; what ended early leaves
them at once.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.protocol.topics import Topic, TxStatusTopic

STATUS_SECONDS = 60.0

Client = TypeVar("Client")


class _Status:
    """One tx-status subscription."""

    __slots__ = ("delivered",)

    def __init__(self) -> None:
        self.delivered = False


class Subscriptions(Generic[Client]):
    """The subscriptions of all clients; `max_topics` each, `capacity` in total."""

    def __init__(self, max_topics: int = 64, capacity: int = 1_000_000) -> None:
        self._max_topics = max_topics
        self._capacity = capacity
        self._topics: dict[Client, dict[Topic, _Status]] = {}
        self._clients: dict[Topic, dict[Client, _Status]] = {}
        self._unanswered: OrderedDict[_Status, tuple[float, Client, TxStatusTopic]] = OrderedDict()
        self._answered: OrderedDict[_Status, tuple[float, Client, TxStatusTopic]] = OrderedDict()
        self._next_end = 0.0
        """None of them ends before."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def subscribe(self, client: Client, topic: Topic, now: float, *, again: bool = False) -> bool:
        """Add a subscription; False when it is there already, which changes nothing. Raises `Refused`.

        `again`: one that was told its end is over, and another begins.
        """
        self.expire(now)
        mine = self._topics.setdefault(client, {})
        known = mine.get(topic)
        if known is not None:
            if not (again and known.delivered):
                return False
            self._remove(client, topic)
        if len(mine) >= self._max_topics:
            raise Refused(reasons.TOPIC_LIMIT.but(f"at most {self._max_topics} topics; unsubscribe first"))
        if self._count >= self._capacity:
            raise Refused(reasons.SUBSCRIPTIONS_FULL.but("try later", 5_000))
        status = _Status()
        mine[topic] = status
        self._clients.setdefault(topic, {})[client] = status
        self._count += 1
        if isinstance(topic, TxStatusTopic):
            self._unanswered[status] = now + STATUS_SECONDS, client, topic
        return True

    def unsubscribe(self, client: Client, topic: Topic) -> None:
        """End a subscription; nothing happens when there is none."""
        self._remove(client, topic)

    def drop(self, client: Client) -> None:
        """The client is gone, and all its subscriptions with it."""
        for topic in list(self._topics.get(client, ())):
            self._remove(client, topic)
        self._topics.pop(client, None)

    def deliver(self, topic: TxStatusTopic, now: float) -> list[Client]:
        """The clients to tell the end of a transaction, each of which is told once."""
        self.expire(now)
        told = []
        for client, status in self._clients.get(topic, {}).items():
            if not status.delivered:
                status.delivered = True
                self._unanswered.pop(status, None)
                self._answered[status] = now + STATUS_SECONDS, client, topic
                told.append(client)
        return told

    def expire(self, now: float) -> None:
        """End every subscription whose time is over."""
        if now < self._next_end:
            return
        self._next_end = now + STATUS_SECONDS
        for waiting in (self._unanswered, self._answered):
            while waiting:
                due, client, topic = next(iter(waiting.values()))
                if due > now:
                    self._next_end = min(self._next_end, due)
                    break
                self._remove(client, topic)

    @property
    def timers(self) -> int:
        """Ends of subscriptions that are waited for: never more than there are subscriptions."""
        return len(self._unanswered) + len(self._answered)

    def clients(self, topic: Topic) -> list[Client]:
        """Everyone subscribed to a topic."""
        return list(self._clients.get(topic, ()))

    def is_subscribed(self, client: Client, topic: Topic) -> bool:
        """Whether a client is subscribed to a topic."""
        return client in self._clients.get(topic, ())

    def topics(self, client: Client) -> list[Topic]:
        """Everything a client is subscribed to."""
        return list(self._topics.get(client, ()))

    def has(self, topic: Topic) -> bool:
        """Whether anyone is subscribed to a topic."""
        return topic in self._clients

    def _remove(self, client: Client, topic: Topic) -> None:
        status = self._topics.get(client, {}).pop(topic, None)
        if status is None:
            return
        self._unanswered.pop(status, None)
        self._answered.pop(status, None)
        self._count -= 1
        clients = self._clients[topic]
        del clients[client]
        if not clients:
            del self._clients[topic]
