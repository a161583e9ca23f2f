"""What hears a topic for a subscription."""

from __future__ import annotations

import logging

from millrace_client.errors import Refused
from millrace_client.mailbox import Mailbox, Policy
from millrace_client.messages import Missed, NetworkStats, Push

log = logging.getLogger(__name__)
_SCHEMA_MAJOR = 1


class Inbox:
    """Puts what it hears into a mailbox."""

    def __init__(self, topic: str, size: int, policy: Policy) -> None:
        self._topic = topic
        self._sequence: int | None = None
        self._is_warned = False
        self.mailbox: Mailbox[Push] = Mailbox(topic, size, policy)

    def heard(self, message: Push) -> None:
        """A message came; numbered ones tell what was left out before them."""
        if isinstance(message, NetworkStats):
            self._warn_of_schema(message.schema_version)
            expected, self._sequence = self._sequence, message.sequence + 1
            if expected is not None and message.sequence > expected:
                count = message.sequence - expected
                self.mailbox.missed(Missed(topic=self._topic, why="left out by the service", count=count))
        self.mailbox.put(message)

    def _warn_of_schema(self, version: str) -> None:
        """Say once that fields may mean something else: those of a higher major version are others."""
        major = version.partition(".")[0]
        if major.isdecimal() and int(major) > _SCHEMA_MAJOR and not self._is_warned:
            self._is_warned = True
            text = "%s has schema %.20s, this client knows %d: install a newer one, as fields may mean something else"
            log.warning(text, self._topic, version, _SCHEMA_MAJOR)

    def lost(self, since: float, until: float) -> None:
        """The connection was away."""
        self._sequence = None
        self.mailbox.missed(Missed(topic=self._topic, why="connection lost", since=since, until=until))

    def ended(self, error: Refused) -> None:
        """The topic is refused now."""
        self.mailbox.end(error)
