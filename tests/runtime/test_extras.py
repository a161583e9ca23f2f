"""What the extras bring, and what is said where one is missing."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

from millrace.runtime import extras

ROOT = Path(__file__).parents[2]
OPTIONAL: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]


def _distributions(extra: str) -> set[str]:
    found = set()
    for line in OPTIONAL[extra]:
        inner = re.fullmatch(r"millrace\[(.*)\]", line)
        if inner:
            found |= {name for one in inner[1].split(",") for name in _distributions(one)}
        else:
            found.add(re.split(r"[<>=]", line)[0])
    return found


@pytest.mark.parametrize("extra", [name for name in OPTIONAL if name != "all"])
def test_the_modules_of_an_extra(extra: str) -> None:
    """Each distribution of an extra is looked for by a module of its own, and no module is of another distribution."""
    homes = importlib.metadata.packages_distributions()
    wanted = _distributions(extra)
    of = {
        module: wanted & {home.replace("_", "-") for home in homes[module.partition(".")[0]]}
        for module in extras.MODULES[extra]
    }
    assert all(of.values()), of
    assert set().union(*of.values()) == wanted
    assert extras.is_installed(extra)


def test_all_is_everything() -> None:
    """The extra `all` has what any other has."""
    assert set(extras.MODULES) == set(OPTIONAL) - {"all"}
    assert _distributions("all") == {name for extra in extras.MODULES for name in _distributions(extra)}


def test_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever needs an extra that is not there is told how to install it."""
    monkeypatch.setitem(extras.MODULES, "azure", ("no_such_package.inside",))
    assert not extras.is_installed("azure")
    with pytest.raises(extras.ExtraMissing, match=r"^it needs .*pip install 'millrace\[azure\]'"):
        extras.require("azure", "it")
    assert extras.brings("azure", "no_such_package") and not extras.brings("azure", "other")
