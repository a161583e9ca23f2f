"""One process at a time has a data directory: a relayer that runs on it, or a command that needs it stopped."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

LOCK = "lock"


class FolderLock:
    """Locks of the folder's file `lock`, and of the folder itself: a file may be deleted. They end with the process."""

    def __init__(self) -> None:
        self._held: list[int] = []

    def take(self, folder: Path) -> None:
        """Raises `BlockingIOError` when another process has it, or `OSError`."""
        try:
            self._lock(folder / LOCK, os.O_RDWR | os.O_CREAT)
            try:
                self._lock(folder, os.O_RDONLY | os.O_DIRECTORY)
            except BlockingIOError:
                raise
            except OSError:  # there are file systems, of a network, that lock no folders; the file is locked
                pass
        except BaseException:
            self.give_back()
            raise

    def give_back(self) -> None:
        """Have it no more."""
        while self._held:
            with contextlib.suppress(OSError):
                os.close(self._held.pop())

    def _lock(self, path: Path, flags: int) -> None:
        self._held.append(os.open(path, flags | os.O_CLOEXEC, 0o600))
        fcntl.flock(self._held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
