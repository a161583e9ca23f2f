"""Where a connection goes: to the address it was made with, or to where a service that ends sends it."""

from __future__ import annotations

from urllib.parse import urlsplit

MOST = 16
"""Places that are remembered of one word."""


class Places:
    """Addresses in the order in which they are tried; the client's own is the last of them."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._urls = [home]
        self._at = 0
        self._moved = False

    @property
    def url(self) -> str:
        """Where to connect now."""
        return self._urls[self._at]

    def send_to(self, bases: list[str]) -> None:
        """A service says where to go: bases without the path. A connection that is encrypted stays so."""
        path = "/ws/stats" if urlsplit(self._home).path.endswith("/ws/stats") else "/ws"
        allowed = ("wss",) if self._home.startswith("wss:") else ("ws", "wss")
        moved = [base.rstrip("/") + path for base in bases[:MOST] if _is_place(base, allowed)]
        self._urls, self._at, self._moved = [*moved, self._home], 0, True

    def has_moved(self) -> bool:
        """Whether there is another address since this was last asked: it need not be waited for."""
        moved, self._moved = self._moved, False
        return moved

    def failed(self) -> None:
        """Nobody was there: the next one is tried."""
        self._at = (self._at + 1) % len(self._urls)


def _is_place(base: str, allowed: tuple[str, ...]) -> bool:
    """Whether a word that came over the network is an address that can be tried."""
    try:
        parts = urlsplit(base)
        return parts.scheme in allowed and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
