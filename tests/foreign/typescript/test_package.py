"""The TypeScript client by itself: its own tests, and that what is generated is what the tools make."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from servers.typescript_client import node, npm

pytestmark = pytest.mark.foreign


def test_types_hold_and_are_those_of_the_documents(client: Path) -> None:
    """`npm run check`: generated files are what openapi-typescript makes, and sources and examples compile strictly."""
    npm("run", "check", folder=client)


async def test_its_own_tests(client: Path) -> None:
    """`node --test`: bytes, waits, lost connections, gaps, refusals, wallets, size."""
    code, output = await node(["--test", "--test-reporter=spec", "test/"], client)
    assert code == 0, output.partition("failing tests:")[2] or output
    passed = re.search(r"pass (\d+)", output)
    assert passed is not None and int(passed[1]) >= 200


async def test_an_installation_is_one_package(installed: Path) -> None:
    """Whoever installs the packed client gets it alone, and can import each entry."""
    assert [entry.name for entry in (installed / "node_modules").iterdir() if entry.name[0] != "."] == ["@millrace"]
    entries = '["", "/ed25519", "/hub"].map((entry) => import("@millrace/client" + entry))'
    code, output = await node(["--input-type=module", "--eval", f"await Promise.all({entries})"], installed)
    assert code == 0, output
