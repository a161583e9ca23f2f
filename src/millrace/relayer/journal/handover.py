"""Keys that a command holds while another folder takes them over: until it is done as who had them last.

So what fails, or is killed before that, leaves the last holder what it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from types import TracebackType

from millrace.relayer.journal.leases import Held, LeaseError, LeaseStore
from millrace.relayer.journal.set_backs import following


class Handover:
    """`take` keys, then `to` whoever goes on; at its end all are given back."""

    def __init__(self, store: LeaseStore) -> None:
        self._store = store
        self._held: dict[bytes, Held] = {}
        self._before: dict[bytes, Held] = {}

    def __enter__(self) -> Handover:
        return self

    def take(self, keys: Collection[bytes], mine: Held) -> None:
        """Hold these, too, as what their last holder goes on as. Raises `LeaseError` when it does not, or `OSError`."""
        if keys:
            mine = following(mine, self._store.remembered(keys).values())
            self._store.take(keys, mine)
            self._held |= dict.fromkeys(keys, mine)

    def to(self, mine: Held) -> None:
        """From now on `mine` is remembered of all of them. Raises `LeaseError` when another has one by now, or
        `OSError`."""
        if self._held:
            mine = following(mine, self._held.values())
            self._store.renew(mine)
            self._before = self._held
            self._held = dict.fromkeys(self._held, mine)

    def back(self) -> None:
        """It came to nothing: what was remembered before `to` is so again once they are given back."""
        self._held = self._before

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        # What went wrong before is what is told; a lease that is not given back ends with the process or its time.
        with contextlib.suppress(*((LeaseError, OSError) if error is not None else ())):
            for key, mine in self._held.items():
                self._store.give_back([key], mine)
