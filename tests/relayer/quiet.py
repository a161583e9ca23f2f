"""A reader of events for tests that want neither sockets nor a disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from relayer_support import NETWORK

from millrace.relayer.blocks.tracker import Tracker
from millrace.relayer.events.events import Events
from millrace.relayer.journal.journal import Journal
from millrace.relayer.ledger.accounts import AccountBook
from millrace.relayer.ledger.lifecycle import Lifecycle
from millrace.relayer.protocol.topics import AddressTopic
from millrace.relayer.statistics.streams import Statistics


def quiet_events() -> tuple[Events, list[AddressTopic]]:
    """The reader of events with everything behind it but sockets and disk; whose accounts it told."""
    published: list[AddressTopic] = []

    class Publisher:
        def tell_statuses(self, ends: Any) -> int:
            return len([msgspec.json.decode(make()) for _, make in ends])

        def tell_account(self, topic: AddressTopic, make: Any) -> None:
            msgspec.json.decode(make())
            published.append(topic)

        def when_told(self, then: Any) -> None:
            then()

        def hears(self, topic: AddressTopic) -> bool:
            return True

    journal = Journal(Path("never-opened"))
    journal.change = lambda *writes: None  # type: ignore[method-assign]
    lifecycle = Lifecycle(NETWORK, journal)
    return Events(NETWORK, Tracker(), AccountBook(), lifecycle, Publisher(), Statistics(NETWORK)), published
