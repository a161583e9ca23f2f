"""The image is built from the Containerfile and runs. Needs root, Debian's buildah and mmdebstrap, and the registries.

Where a proxy signs what registries answer, its certificates are those of `SSL_CERT_FILE`; they are in the trial's base.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[3]
MOST_MEGABYTES = 400
"""Of the image with its base."""

SLIM = ("doc", "info", "lintian", "locale", "man")
"""Folders of /usr/share that the usual slim base leaves out, too."""


class Buildah:
    """buildah with a store of its own, without a kernel that mounts layers."""

    def __init__(self, folder: Path) -> None:
        self._store = ["--root", f"{folder}/store", "--runroot", f"{folder}/run", "--storage-driver", "vfs"]

    def __call__(self, *words: str) -> str:
        result = subprocess.run(
            ["buildah", *self._store, *words], capture_output=True, text=True, timeout=3000, check=False
        )
        assert result.returncode == 0, result.stderr[-4000:]
        return result.stdout.strip()


def make_base(buildah: Buildah, folder: Path) -> None:
    """The image `localhost/base`: Debian 12 as its packages make it, since no registry of images is needed then."""
    root = folder / "root.tar"
    subprocess.run(
        [
            "mmdebstrap", "--quiet", "--variant=minbase", "--include=ca-certificates",
            *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in SLIM), "bookworm", str(root),
        ],
        check=True,
    )  # fmt: skip
    base = buildah("from", "scratch")
    buildah("add", "-q", base, str(root), "/")
    trusted = os.environ.get("SSL_CERT_FILE")
    if trusted:
        buildah("add", "-q", base, trusted, "/etc/ssl/trusted.crt")
        for name in ("PIP_CERT", "SSL_CERT_FILE"):
            buildah("config", "--env", f"{name}=/etc/ssl/trusted.crt", base)
    buildah("commit", "-q", base, "localhost/base")
    buildah("rm", base)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Buildah, str]]:
    """A container of the image that was just built."""
    for program in ("buildah", "mmdebstrap"):
        assert shutil.which(program), f"apt-get install {program}"
    folder = tmp_path_factory.mktemp("image")
    buildah = Buildah(folder)
    make_base(buildah, folder)
    buildah(
        "bud", "--isolation", "chroot", "--network", "host", "--format", "docker", "--build-arg", "BASE=localhost/base",
        "-f", str(ROOT / "deploy/Containerfile"), "-t", "localhost/millrace", str(ROOT),
    )  # fmt: skip
    container = buildah("from", "localhost/millrace")
    yield buildah, container
    buildah("rm", container)
    buildah("rmi", "--all")
    shutil.rmtree(folder, ignore_errors=True)


def test_the_program_runs_as_nobody(built: tuple[Buildah, str]) -> None:
    """The user is 10001, every part of the program is there, and no compiler."""
    buildah, container = built

    def run(*words: str) -> str:
        return buildah("run", "--isolation", "chroot", container, "--", *words)

    assert run("id", "-u") == "10001"
    assert run("millrace", "--version").startswith("millrace, version ")
    assert (
        run(
            "python3",
            "-c",
            "import millrace.gossip.host, millrace.routing._kernels, nacl, opentelemetry.sdk; print('all there')",
        )
        == "all there"
    )
    assert run("sh", "-c", "command -v gcc || echo none") == "none"
    assert "metrics_port" in run("millrace", "relayer", "--show-settings")


def test_the_demonstration_runs_in_it(built: tuple[Buildah, str]) -> None:
    """All services, the local chain and two swaps: nothing that they need was left out."""
    buildah, container = built
    told = buildah("run", "--isolation", "chroot", container, "--", "millrace", "demo")
    assert "Every check held." in told


def test_the_image_says_how_it_is_run(built: tuple[Buildah, str]) -> None:
    """User, entry point and health check are in its description, and it is no larger than it has to be."""
    buildah, container = built
    config = json.loads(buildah("inspect", container))["Docker"]["config"]
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"] == ["millrace"]
    assert config["Healthcheck"]["Test"][0] == "CMD"
    folder = buildah("mount", container)
    size = subprocess.run(["du", "-sm", folder], capture_output=True, text=True, check=True).stdout
    assert int(size.split()[0]) <= MOST_MEGABYTES
