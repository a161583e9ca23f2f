"""A reader of events for tests that want neither sockets nor a disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from relayer_support import NETWORK

from millrace.relayer.accounts import AccountBook
from millrace.relayer.desk import Desk
from millrace.relayer.events import Events
from millrace.relayer.journal import Journal
from millrace.relayer.statistics import Statistics
from millrace.relayer.topics import AddressTopic
from millrace.relayer.tracker import Tracker


def quiet_events() -> tuple[Events, list[AddressTopic]]:
    """The reader of events with everything behind it but sockets and disk; whose accounts it told."""
    published: list[AddressTopic] = []

    class Publisher:
        def tell_status(self, topic: Any, make: Any) -> int:
            msgspec.json.decode(make())
            return 1

        def tell_account(self, topic: AddressTopic, make: Any) -> None:
            msgspec.json.decode(make())
            published.append(topic)

        def hears(self, topic: AddressTopic) -> bool:
            return True

    journal = Journal(Path("never-opened"))
    journal.change = lambda write: None  # type: ignore[method-assign]
    desk = Desk(NETWORK, journal)
    return Events(NETWORK, Tracker(), AccountBook(), desk, Publisher(), Statistics(NETWORK)), published
