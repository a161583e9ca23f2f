"""The release: one version, whole or not at all, with checksums that `sha256sum` accepts, and notes."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def script() -> ModuleType:
    """The release script, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("release", ROOT / "deploy" / "release.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = script()
NO_PYTHON = "the compiled wheel for Python 3.12: there is no such Python"


def checkout(folder: Path, **versions: str) -> Path:
    """As much of a checkout as the script reads."""
    for name in ("", "clients/python"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        version = versions.get(name.replace("/", "_") or "root", "1.2.3")
        (folder / name / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
    (folder / "clients/typescript").mkdir()
    (folder / "clients/typescript/package.json").write_text(json.dumps({"version": versions.get("npm", "1.2.3")}))
    (folder / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3 - 2026-01-01\n\n- new\n\n## 1.2.2\n\n- old\n")
    return folder


def tool(folder: Path, name: str, body: str) -> None:
    """A stand-in for a program."""
    folder.mkdir(exist_ok=True, parents=True)
    (folder / name).write_text(f"#!/bin/sh\nset -e\n{body}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """uv and npm that make their files, and nothing else but the system's."""
    folder = tmp_path / "bin"
    find = "case $1 in python) [ $3 = 3.11 ]; exit;; esac"
    build = 'for word; do case $last in --out-dir) out=$word;; esac; last=$word; done; echo w > "$out/m.whl"'
    tool(folder, "uv", f"{find}\n{build}")
    tool(folder, "npm", 'case $1 in pack) echo n > "$4/c.tgz";; esac')
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "315532800")
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setattr(release, "BUILDERS", ("builder",))
    monkeypatch.setattr(release, "PYENV", tmp_path / "pyenv")
    monkeypatch.setattr(release, "PYTHONS", ("3.11", "3.12"))
    return folder


def test_this_checkout_has_one_version_and_notes() -> None:
    """The packages of this very checkout agree, and its changelog has something to say."""
    version = release.version_of(ROOT)
    assert len(release.notes_of((ROOT / "CHANGELOG.md").read_text(), version).splitlines()) > 10


@pytest.mark.parametrize("other", ["clients_python", "npm"])
def test_packages_of_different_versions_are_no_release(tmp_path: Path, other: str) -> None:
    """The text names each version and where it is."""
    with pytest.raises(release.ReleaseError, match=r"1\.2\.3 in pyproject\.toml.*9\.9"):
        release.version_of(checkout(tmp_path, **{other: "9.9"}))


def test_notes_are_of_the_version() -> None:
    """Its own section, or what is unreleased; nothing to say is an error."""
    text = "## Unreleased\n\n- next\n\n## [1.0.0] - 2026\n\n- first\n"
    assert release.notes_of(text, "1.0.0") == "# millrace 1.0.0\n\n- first\n"
    assert "- next" in release.notes_of(text, "1.1.0")
    with pytest.raises(release.ReleaseError, match="says nothing of 2"):
        release.notes_of("## Unreleased\n", "2")


def test_a_release(tmp_path: Path, tools: Path) -> None:
    """Packages, image, notes and checksums are in a new folder; a second one does not touch it."""
    tool(tools, "builder", 'case $1 in save) echo i > "$3";; build) [ "$2 $3" = "--build-arg BASE=mine" ];; esac')
    root, out = checkout(tmp_path / "tree"), tmp_path / "out"
    assert release.release(root, out, dirty=False, image=True, base="mine") == [NO_PYTHON]
    names = {"m.whl", "c.tgz", "millrace-1.2.3-image.tar", "RELEASE_NOTES.md", "SHA256SUMS"}
    assert {file.name for file in out.iterdir()} == names
    assert subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=out, check=True, capture_output=True)
    assert (out / "SHA256SUMS").read_text().count("\n") == len(names) - 1
    with pytest.raises(release.ReleaseError, match="exists"):
        release.release(root, out, dirty=False, image=True)


def test_a_python_of_a_version_manager(tmp_path: Path, tools: Path) -> None:
    """One that only pyenv has is found in its folder, the newest of several; else there is none."""
    assert release.python_of("uv", "3.12") is None
    for name in ("3.12.1", "3.12.4", "3.1.9"):
        tool(tmp_path / "pyenv" / name / "bin", f"python{name.rpartition('.')[0]}", "")
    assert release.python_of("uv", "3.12") == str(tmp_path / "pyenv/3.12.4/bin/python3.12")


def test_what_a_machine_cannot_make_is_said(tmp_path: Path, tools: Path) -> None:
    """Without a builder of images there is none, and that is told."""
    left_out = release.release(checkout(tmp_path / "tree"), tmp_path / "out", dirty=False, image=True)
    assert left_out == [NO_PYTHON, "the image: there is none of builder"]


def test_a_release_is_whole_or_not_there(tmp_path: Path, tools: Path) -> None:
    """Where a part fails there is no folder, and the next one begins anew."""
    root, out = checkout(tmp_path / "tree"), tmp_path / "out"
    tool(tools, "npm", "exit 3")
    with pytest.raises(release.ReleaseError, match=r"npm ci.* ended with 3"):
        release.release(root, out, dirty=False, image=False)
    assert not out.exists()
    tool(tools, "npm", "exit 0")
    assert release.release(root, out, dirty=False, image=False) == [NO_PYTHON, "the image: --no-image"]


def test_what_is_not_committed_is_no_release(tmp_path: Path, tools: Path) -> None:
    """Unless it is said to be a trial; the time of the packages is the commit's."""
    root = checkout(tmp_path / "tree")
    git = ["git", "-C", str(root), "-c", "user.name=n", "-c", "user.email=e@e"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message=m", "--date=@1700000000 +0000"]):
        subprocess.run(
            [*git, *words], check=True, env={"PATH": "/usr/bin:/bin", "GIT_COMMITTER_DATE": "@1700000000 +0000"}
        )
    assert release.made_at(root, dirty=False) == "1700000000"
    (root / "CHANGELOG.md").write_text("x")
    with pytest.raises(release.ReleaseError, match="--dirty"):
        release.made_at(root, dirty=False)
    assert release.made_at(root, dirty=True) == "1700000000"
