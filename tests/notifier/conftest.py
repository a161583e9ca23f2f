"""What only some tests of the notifier need: servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.postgres import Postgres
from servers.rabbitmq import Broker


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for a module; a test may kill it."""
    broker = Broker(tmp_path_factory.mktemp("rabbitmq"))
    try:
        yield broker
    finally:
        broker.close()


@pytest.fixture
def broker(rabbitmq: Broker) -> Broker:
    """The broker, running."""
    rabbitmq.ensure()
    return rabbitmq


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server for the whole run; every test uses a schema of its own."""
    server = Postgres()
    try:
        server.start()
        yield server
    finally:
        server.close()
