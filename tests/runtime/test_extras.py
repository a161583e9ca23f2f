"""What the extras bring, and what is said where one is missing."""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
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
    """Whoever needs an extra that is not there is told how it comes."""
    monkeypatch.setitem(extras.MODULES, "azure", ("no_such_package.inside",))
    assert not extras.is_installed("azure")
    with pytest.raises(extras.ExtraMissing, match=f"^it needs .*{re.escape(extras.remedy('azure'))}$"):
        extras.require("azure", "it")
    assert extras.brings("azure", "no_such_package") and not extras.brings("azure", "other")


@pytest.mark.parametrize(
    ("source", "has_pip", "told"),
    [
        (
            {"url": "file:///w/millrace-1-py3-none-any.whl", "archive_info": {}}, True,
            "'/the env/python' -m pip install 'millrace[azure] @ file:///w/millrace-1-py3-none-any.whl'",
        ),
        (
            {"url": "file:///w/millrace-1-py3-none-any.whl", "archive_info": {}}, False,
            "uv pip install --python '/the env/python' 'millrace[azure] @ file:///w/millrace-1-py3-none-any.whl'",
        ),
        (
            {"url": "file:///a%20checkout", "dir_info": {"editable": True}}, False,
            "`./run install` in /a checkout brings the extra `azure`",
        ),
        (None, True, "install the wheel of millrace once more, with the extra `azure`"),
    ],
)  # fmt: skip
def test_an_extra_comes_from_where_the_rest_did(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: dict[str, object] | None, has_pip: bool, told: str
) -> None:
    """What is told adds to this very installation, from its own wheel; no index is asked for `millrace`."""
    folder = tmp_path / "millrace-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: millrace\nVersion: 1\n")
    if source is not None:
        (folder / "direct_url.json").write_text(json.dumps(source))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/the env/python")
    monkeypatch.setattr(extras, "_is_there", lambda module: has_pip)
    assert extras.remedy("azure") == told
