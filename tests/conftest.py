"""What holds for all tests."""

import pytest
from hypothesis import HealthCheck, settings

from millrace.system.ports import confine

# Properties say nothing of time: on a busy machine an example may take as long as it likes.
settings.register_profile("millrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("millrace")


def pytest_configure(config: pytest.Config) -> None:
    """Where files run side by side, each process has ports of its own."""
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        confine(int(worker["workerid"].removeprefix("gw")), worker["workercount"])
