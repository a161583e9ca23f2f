"""The compose file by the library that Docker's own program loads it with."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.foreign
HERE = Path(__file__).parent
DEPLOY = HERE.parents[2] / "deploy"
SECRETS = '{"observer-0": "a secret"}'
GIVEN = {
    "KEYS_FOLDER": "/etc/millrace/keys",
    "NODE_SECRETS": SECRETS,
    "CONSOLE_HOSTS": '["console.example"]',
    "OPERATORS_TOKEN": "a token of operators",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library's loader, built with Go."""
    go = shutil.which("go")
    assert go, "Go is needed, and the module proxy the first time"
    built = tmp_path_factory.mktemp("compose") / "load"
    subprocess.run([go, "build", "-o", built, "."], cwd=HERE, check=True)
    return built


def loaded(program: Path, environment: Path) -> subprocess.CompletedProcess[str]:
    """What it says of the compose file with these variables."""
    words = program, DEPLOY / "compose.yml", environment
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, env={"HOME": "/nonexistent"})


def test_compose_loads_the_file(program: Path, tmp_path: Path) -> None:
    """With every variable of the example filled in it is a project, and what is JSON arrives as it was written."""
    text = (DEPLOY / "env.example").read_text()
    filled = re.sub(
        r"^(?:# )?(\w+)=(.*)$", lambda line: f"{line[1]}={GIVEN.get(line[1], line[2] or 'x1')}", text, flags=re.M
    )
    (tmp_path / "env").write_text(filled)
    done = loaded(program, tmp_path / "env")
    assert done.returncode == 0, done.stderr
    services: Any = json.loads(done.stdout)["services"]
    assert services["notifier"]["environment"]["MILLRACE_NOTIFIER__NODE_SECRETS"] == SECRETS
    console = services["console"]["environment"]
    assert console["MILLRACE_CONSOLE__ALLOWED_HOSTS"] == GIVEN["CONSOLE_HOSTS"]
    assert console["MILLRACE_CONSOLE__OPERATORS_TOKEN"] == GIVEN["OPERATORS_TOKEN"]
    for name, service in services.items():
        assert set(service.get("depends_on", {})) <= set(services), name


def test_compose_asks_for_what_is_missing(program: Path) -> None:
    """The example as it is has no passwords: nothing starts, and what to set is said."""
    done = loaded(program, DEPLOY / "env.example")
    assert done.returncode == 1 and "set it in .env" in done.stderr
