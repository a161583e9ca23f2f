"""What settings say of leases, made into a store and into the running relayer's keeper."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from millrace.relayer.journal.identity import Identity
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.lease_keeper import LeaseKeeper
from millrace.relayer.journal.leases import FileLeases, LeaseStore, default_folder
from millrace.relayer.journal.postgres_leases import PostgresLeases
from millrace.relayer.settings import RelayerSettings

POSITION = "SELECT coalesce(max(id), 0) FROM audit"
"""How many reservations a journal has: a row is written with each, in the same commit as the claim, and none is ever
taken back."""
LEAST_TIMES = 3
"""Nothing is signed in the last third of a lease, and what was asked before takes `signer_timeout` at most."""


def store_of(settings: RelayerSettings) -> LeaseStore:
    """Where leases are kept. Raises `LeaseError`."""
    if settings.lease_url:
        return PostgresLeases(settings.lease_url, settings.lease_schema, settings.lease_seconds)
    return FileLeases(Path(settings.lease_dir) if settings.lease_dir else default_folder(os.environ))


@contextlib.contextmanager
def opened(settings: RelayerSettings) -> Iterator[LeaseStore]:
    """The store, for a command. Raises `LeaseError`."""
    store = store_of(settings)
    try:
        yield store
    finally:
        store.close()


def place_of(data_dir: Path) -> str:
    """Where a folder is, for people."""
    return f"{socket.gethostname()}:{data_dir.resolve()} (process {os.getpid()})"


def keeper_of(settings: RelayerSettings, identity: Identity, journal: Journal) -> LeaseKeeper:
    """The keeper of a running relayer. Raises `ValueError` when a lease would end under a signature's hands."""
    if settings.lease_url and settings.lease_seconds < LEAST_TIMES * settings.signer_timeout:
        raise ValueError(f"lease_seconds must be at least {LEAST_TIMES} times signer_timeout")
    return LeaseKeeper(
        lambda: store_of(settings),
        identity,
        place_of(Path(settings.data_dir)),
        lambda: int(journal.read(POSITION)[0][0]),
    )
