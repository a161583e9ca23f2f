"""What hears a topic for a subscription."""

from __future__ import annotations

from millrace_client.errors import Refused
from millrace_client.mailbox import Mailbox, Policy
from millrace_client.messages import Missed, NetworkStats, Push


class Inbox:
    """Puts what it hears into a mailbox."""

    def __init__(self, topic: str, size: int, policy: Policy) -> None:
        self._topic = topic
        self._sequence: int | None = None
        self.mailbox: Mailbox[Push] = Mailbox(topic, size, policy)

    def heard(self, message: Push) -> None:
        """A message came; numbered ones tell what was left out before them."""
        if isinstance(message, NetworkStats):
            expected, self._sequence = self._sequence, message.sequence + 1
            if expected is not None and message.sequence > expected:
                count = message.sequence - expected
                self.mailbox.missed(Missed(topic=self._topic, why="left out by the service", count=count))
        self.mailbox.put(message)

    def lost(self, since: float, until: float) -> None:
        """The connection was away."""
        self._sequence = None
        self.mailbox.missed(Missed(topic=self._topic, why="connection lost", since=since, until=until))

    def ended(self, error: Refused) -> None:
        """The topic is refused now."""
        self.mailbox.end(error)
