"""Parts of the program that are installed only where they are wanted, and what to do where one is missing."""

from __future__ import annotations

import importlib.util

MODULES = {
    "aggregator": ("Crypto", "numpy", "prometheus_client", "redis", "uvloop"),
    "relayer": ("Crypto", "asyncpg", "picows", "prometheus_client", "uvloop"),
    "notifier": ("aio_pika", "asyncpg", "picows", "prometheus_client", "redis"),
    "console": ("prometheus_client",),
    "azure": ("azure.servicebus",),
    "gossip": ("libp2p", "multiaddr", "trio"),
    "otel": ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk"),
    "localnet": ("Crypto", "aio_pika", "asyncpg", "numpy", "picows", "prometheus_client", "redis", "uvloop"),
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
    """How an extra is installed, for a line of text."""
    return f"pip install 'millrace[{extra}]' (or: uv tool install 'millrace[{extra}]')"


def brings(extra: str, module: str | None) -> bool:
    """Whether a module that could not be imported is one that the extra brings."""
    top = (module or "").partition(".")[0]
    return any(top == one.partition(".")[0] for one in MODULES[extra])


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False
