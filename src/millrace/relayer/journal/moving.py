"""A move of a data directory: a copy of it, after which the old one starts no more and the copy has the keys.

The leases are asked first, as by a start: an older copy must not become the newest one by being moved.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import msgspec

from millrace.relayer.journal import backup, identity, memory
from millrace.relayer.journal.backup import BackupError
from millrace.relayer.journal.handover import Handover
from millrace.relayer.journal.identity import Identity
from millrace.relayer.journal.leases import Held, LeaseError, LeaseStore, place_of
from millrace.relayer.journal.reading import reservations


def move(
    data_dir: Path, destination: Path, keys: Collection[bytes], store: LeaseStore, mark_path: str = ""
) -> Identity:
    """Have the folder live elsewhere: the old one starts no more, the new one has a higher epoch and the keys.

    No relayer may run on it. Killed at any moment neither of both can be started twice: the new one gets its identity
    last, when the leases know of it, and the same command finishes what was begun once the old one says that it was
    moved. Its note says what was damaged and left behind. Raises `BackupError`, `LeaseError` where the old one could
    not start with these keys, or `OSError` of a server.
    """
    with backup.stopped(data_dir), Handover(store) as hands:
        ours = identity.read(data_dir)
        if ours.state != "moved":
            _set_out(data_dir, destination, keys, hands, mark_path)
        elif ours.note != str(destination.resolve()):
            raise BackupError(f"{data_dir} was moved to {ours.note} already: go on there")
        elif (destination / identity.FILE).exists():
            return _arrived(destination, ours)
        else:
            _go_on(destination, ours, keys, store, hands)
        return _arrive(destination, ours, hands)


def _set_out(data_dir: Path, destination: Path, keys: Collection[bytes], hands: Handover, mark_path: str) -> None:
    """Copy the folder while its keys are held, and have it say where it lives now."""
    ours = backup.ready(data_dir, mark_path)
    mine = _holder(data_dir, ours)
    if mine.position and not keys:
        raise LeaseError(
            f"{data_dir} has signed, and no key is named: the leases of its keys tell whether it is the newest copy. "
            "Set `key_files` (or `key_env`) as for its relayer"
        )
    hands.take(keys, mine)
    with backup.filling(destination, data_dir, lambda: identity.read(data_dir).state == "moved"):
        backup.copy(data_dir, destination, ours)
        hands.to(mine)  # a copy may take longer than a lease, and then another may have them
        identity.write(data_dir, replace(ours, state="moved", note=str(destination.resolve())))


def _go_on(destination: Path, ours: Identity, keys: Collection[bytes], store: LeaseStore, hands: Handover) -> None:
    """Hold the keys after a kill: those that were handed over already as the new folder, the others as the old one."""
    before = _holder(destination, ours)
    after = msgspec.structs.replace(before, epoch=before.epoch + 1)
    handed = {key for key, held in store.remembered(keys).items() if held.epoch == after.epoch}
    hands.take(handed, after)
    hands.take(set(keys) - handed, before)


def _arrive(destination: Path, ours: Identity, hands: Handover) -> Identity:
    """Hand the keys over, after which no copy of before can start, and give the new folder its identity."""
    manifest = backup.verified(destination)
    is_begun = memory.is_begun(destination / identity.JOURNAL)
    made = identity.raised(ours, state="ready" if is_begun else "new", note="; ".join(manifest.left_out))
    hands.to(_holder(destination, made))
    identity.write(destination, made)
    return _arrived(destination, ours)


def _arrived(destination: Path, ours: Identity) -> Identity:
    """The new folder as it is."""
    there = identity.read(destination)
    if there.id != ours.id or there.epoch <= ours.epoch:
        raise BackupError(f"{destination} is another folder's by now ({there.id}, epoch {there.epoch})")
    (destination / backup.MANIFEST).unlink(missing_ok=True)
    return there


def _holder(folder: Path, ours: Identity) -> Held:
    """What is to be remembered of the keys' holder with this folder's journal."""
    return Held(ours.id, ours.epoch, reservations(folder / identity.JOURNAL), place_of(folder))
