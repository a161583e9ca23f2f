"""What only some tests of the notifier need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
