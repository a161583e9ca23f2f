"""What holds for all tests."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from millrace.system.ports import confine

# Properties say nothing of time: on a busy machine an example may take as long as it likes.
settings.register_profile("millrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("millrace")

TESTS = Path(__file__).parent
LONGEST = (
    "cluster/test_cluster.py",
    "relayer/test_custody.py",
    "cli/test_terminal.py",
    "relayer/test_kill.py",
    "notifier/brokers/test_rabbitmq_torture.py",
    "e2e/test_whole_system.py",
    "notifier/brokers/test_rabbitmq.py",
    "gossip/test_handle.py",
    "notifier/journal/test_postgres_store.py",
    "notifier/brokers/test_service_bus_torture.py",
    "aggregator/test_api.py",
    "aggregator/test_crew.py",
    "routing/test_compiled.py",
    "cli/test_trade.py",
    "relayer/test_threats.py",
    "notifier/brokers/test_service_bus.py",
    "notifier/brokers/test_pair.py",
    "relayer/test_fuzz.py",
    "relayer/test_drills.py",
    "relayer/test_data_dir.py",
    "relayer/blocks/test_later_model.py",
    "e2e/test_client_swap.py",
    "e2e/test_official_sdk.py",
    "relayer/test_outage.py",
    "notifier/brokers/test_streams.py",
)
"""The files that took longest when three ran side by side, longest first."""


def pytest_configure(config: pytest.Config) -> None:
    """Where files run side by side, each process has ports of its own."""
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        confine(int(worker["workerid"].removeprefix("gw")), worker["workercount"])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where files run side by side the longest begin first, so that none is left alone at the end."""
    if hasattr(config, "workerinput"):
        turn = {TESTS / name: number for number, name in enumerate(LONGEST)}
        items.sort(key=lambda item: turn.get(item.path, len(turn)))
