"""How far a sink has come, on disk."""

from __future__ import annotations

from pathlib import Path

from millrace.runtime import files


class CursorUnusable(OSError):
    """The file holds no cursor; the text says what an operator can do."""


class CursorFile:
    """One sequence in a small file of its own, replaced as a whole.

    Not in the journal's database: writing there would make the journal's commits, and so the nodes, wait. A cursor
    that is behind does no harm, its events are delivered again under the same message ids.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> int | None:
        """The sequence, or `None` when this sink is new. Raises `CursorUnusable`."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return None
        if not (text.endswith(b"\n") and text[:-1].isdigit() and len(text) <= 20):
            raise CursorUnusable(
                f"{self.path} is damaged. Write the last sequence that the sink has into it, on a line; or remove it:"
                " then everything in the journal is published again, under the same message ids."
            )
        return int(text)

    def save(self, sequence: int) -> None:
        """Return once it is on disk. Raises `OSError`; the file then still holds the earlier sequence."""
        with files.replacing(self.path, 0o644) as file:
            file.write(b"%d\n" % sequence)
