"""What tests of the deployment share."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.operated import Operated


@pytest.fixture
def operated(tmp_path: Path) -> Operated:
    """`millrace-relayer` with stand-ins for what it calls."""
    return Operated(tmp_path)
