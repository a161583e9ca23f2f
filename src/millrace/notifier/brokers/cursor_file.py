"""How far a sink has come, on disk."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from millrace.runtime import files

_TEXT = re.compile(rb"(\d{1,19})(?: ([0-9a-f]{16}))?\n")


class CursorUnusable(OSError):
    """The file holds no cursor; the text says what an operator can do."""


class Cursor(NamedTuple):
    """How far a sink has come."""

    sequence: int
    run: str
    """Name of the run of the journal whose sequence it is; empty: an earlier version, or an operator, did not say."""


class CursorFile:
    """A cursor in a small file of its own, replaced as a whole.

    Not in the journal's database: writing there would make the journal's commits, and so the nodes, wait. A cursor
    that is behind does no harm, its events are delivered again under the same message ids.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Cursor | None:
        """The cursor, or `None` when this sink is new. Raises `CursorUnusable`."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return None
        found = _TEXT.fullmatch(text)
        if found is None:
            raise CursorUnusable(
                f"{self.path} is damaged. Write the last sequence that the sink has into it, on a line; or remove it:"
                " then everything in the journal is published again, under the same message ids."
            )
        return Cursor(int(found[1]), (found[2] or b"").decode())

    def save(self, cursor: Cursor) -> None:
        """Return once it is on disk. Raises `OSError`; the file then still holds the earlier one."""
        with files.replacing(self.path, 0o644) as file:
            file.write(f"{cursor.sequence} {cursor.run}\n".encode())
