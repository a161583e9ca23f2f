"""The aggregator's OpenAPI document as other people's tools see it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from millrace.aggregator.openapi import document
from millrace.aggregator.settings import AggregatorSettings

HERE = Path(__file__).parent

pytestmark = pytest.mark.foreign


@pytest.fixture(scope="session")
def tools() -> Path:
    """The directory with the tools, installed the first time."""
    path = Path(os.environ.get("MILLRACE_OPENAPI_PREFIX") or HERE)
    path.mkdir(parents=True, exist_ok=True)
    if not (path / "node_modules").exists():
        if path != HERE:
            shutil.copy(HERE / "package.json", path)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--no-save"], cwd=path, check=True)
    return path / "node_modules" / ".bin"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The document in a file."""
    file = tmp_path / "openapi.json"
    file.write_bytes(msgspec.json.encode(document(AggregatorSettings())))
    return file


def run(tool: Path, *arguments: str | Path, folder: Path) -> str:
    """What a tool prints; it must end well."""
    done = subprocess.run([tool, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_linter_finds_nothing(tools: Path, written: Path) -> None:
    """Neither an error nor a warning by the recommended rules."""
    said = run(tools / "redocly", "lint", written, folder=written.parent)
    assert "is valid" in said
    assert "Warning was generated" not in said


def test_a_typescript_client_is_generated(tools: Path, written: Path) -> None:
    """The types are made, compile under strict rules, and know the fields of a quote."""
    types = written.with_name("types.ts")
    run(tools / "openapi-typescript", written, "-o", types, folder=written.parent)
    use = written.with_name("use.ts")
    use.write_text(
        'import type { components, operations } from "./types";\n'
        'type Quote = components["schemas"]["QuoteResponse"];\n'
        'type Query = operations["getQuote"]["parameters"]["query"];\n'
        'const asked: Query = { from: "EGLD", to: "USDC-c76f1f", amountIn: "1", slippage: 0.01, includePaths: true };\n'
        "export const least = (quote: Quote): bigint => BigInt(quote.amountOutMin);\n"
        "export const hops = (quote: Quote): number => (quote.paths ?? []).flatMap((path) => path.swaps).length;\n"
        "export { asked };\n"
    )
    rules = ["--noEmit", "--strict", "--target", "es2022", "--moduleResolution", "bundler", "--module", "esnext"]
    run(tools / "tsc", *rules, use, folder=written.parent)
