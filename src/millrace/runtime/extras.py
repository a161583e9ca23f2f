"""Parts of the program that are installed only where they are wanted, and what to do where one is missing."""

from __future__ import annotations

import importlib.util
from typing import Any

MODULES = {
    "aggregator": ("Crypto", "numpy", "prometheus_client", "redis", "uvloop"),
    "relayer": ("Crypto", "asyncpg", "picows", "prometheus_client", "uvloop"),
    "notifier": ("aio_pika", "asyncpg", "blake3", "isal", "picows", "prometheus_client", "redis"),
    "console": ("prometheus_client",),
    "azure": ("azure.servicebus",),
    "gossip": ("libp2p", "multiaddr", "trio"),
    "otel": ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk"),
    "localnet": (
        "Crypto",
        "aio_pika",
        "asyncpg",
        "blake3",
        "isal",
        "numpy",
        "picows",
        "prometheus_client",
        "redis",
        "uvloop",
    ),
}
"""The modules that `project.optional-dependencies` of pyproject.toml brings for each extra."""


class ExtraMissing(ImportError):
    """Packages are missing that an extra brings; the text is a line that says how to install it."""


def is_installed(extra: str) -> bool:
    """Whether all modules of an extra can be imported; none of them is."""
    return all(map(_is_there, MODULES[extra]))


def require(extra: str, who: str) -> None:
    """Raise `ExtraMissing` unless the extra is installed; `who` needs it."""
    if not is_installed(extra):
        raise ExtraMissing(f"{who} needs packages that are not installed: {remedy(extra)}")


def remedy(extra: str) -> str:
    """How an extra comes to what is installed here, for a line of text: that is on no index, so from where it is."""
    import shlex
    import sys
    from urllib.parse import unquote, urlsplit

    source = _source()
    if "url" not in source:
        return f"install the wheel of millrace once more, with the extra `{extra}`"
    if source.get("dir_info", {}).get("editable"):
        return f"`./run install` in {unquote(urlsplit(source['url']).path)} brings the extra `{extra}`"
    python = shlex.quote(sys.executable)
    # Environments that uv makes have no pip; both add to what is there.
    command = f"{python} -m pip install" if _is_there("pip") else f"uv pip install --python {python}"
    return f"{command} 'millrace[{extra}] @ {source['url']}'"


def brings(extra: str, module: str | None) -> bool:
    """Whether a module that could not be imported is one that the extra brings."""
    top = (module or "").partition(".")[0]
    return any(top == one.partition(".")[0] for one in MODULES[extra])


def _source() -> dict[str, Any]:
    """What the installer noted of where millrace came from (PEP 610); empty where an index has it, or nobody noted."""
    import json
    from importlib import metadata

    try:
        return dict(json.loads(metadata.distribution("millrace").read_text("direct_url.json") or "{}"))
    except metadata.PackageNotFoundError:
        return {}


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False
