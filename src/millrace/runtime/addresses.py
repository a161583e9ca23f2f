"""Addresses of other services in settings: wrong ones are told at the start, and not when they are first asked."""

from __future__ import annotations

import re
from urllib.parse import urlsplit


def check_http(name: str, url: str) -> None:
    """Raises `ValueError` that says what is wrong. It does not show the address, which may have a password in it."""
    wrong = _wrong(url)
    if wrong:
        raise ValueError(f"{name}: is no address, as {wrong}; expected http://HOST:PORT/PATH, or https://…")


def _wrong(url: str) -> str:
    """What is wrong with an address; empty: nothing."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:  # brackets that do not close, ports that are none
        text = str(error)
        return "its port is no number from 0 to 65535" if text.startswith("Port") else "it cannot be read"
    if parts.scheme not in ("http", "https"):
        return "it begins with neither http:// nor https://"
    if not host or "" in host.removesuffix(".").split("."):
        return "it names no host"
    if port == 0:
        return "its port is 0"
    if re.search(r"[\s\x00-\x1f]", url):
        return "there is a space in it"
    return ""
