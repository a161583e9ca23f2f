"""What settings say of leases, made into a store and into the running relayer's keeper."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from millrace.relayer.journal.identity import SHARES, Identity, IdentityError, shares
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.lease_keeper import LeaseKeeper
from millrace.relayer.journal.leases import FileLeases, LeaseError, LeaseStore, default_folder, place_of
from millrace.relayer.journal.postgres_leases import PostgresLeases
from millrace.relayer.journal.seats import Seats
from millrace.relayer.journal.sharing import Sharing
from millrace.relayer.settings import RelayerSettings
from millrace.runtime.postgres import ANSWER_SECONDS

LEAST_TIMES = 3
"""Nothing is signed in the last third of a lease, and what was asked before takes `signer_timeout` at most."""


def store_of(settings: RelayerSettings, shared: str = "", folder: str = "") -> LeaseStore:
    """Where leases are kept; `shared`: by all together who share their claims under this id. Raises `LeaseError`."""
    if shared:
        return PostgresLeases(
            settings.claims_url, settings.lease_schema, settings.lease_seconds, shared=shared, before=folder
        )
    if settings.lease_url:
        return PostgresLeases(settings.lease_url, settings.lease_schema, settings.lease_seconds)
    return FileLeases(Path(settings.lease_dir) if settings.lease_dir else default_folder(os.environ))


@contextlib.contextmanager
def opened(settings: RelayerSettings) -> Iterator[LeaseStore]:
    """The store, for a command. Raises `LeaseError`."""
    try:
        if settings.claims_url or shares(Path(settings.data_dir)):
            raise LeaseError(SHARES)
    except IdentityError as error:
        raise LeaseError(str(error)) from None
    store = store_of(settings)
    try:
        yield store
    finally:
        store.close()


def sharing_of(settings: RelayerSettings, identity: Identity, journal: Journal) -> Sharing:
    """The side of a running relayer that shares its claims. Raises `ValueError` when its seat would end too soon."""
    if settings.lease_seconds <= ANSWER_SECONDS:
        raise ValueError(
            f"lease_seconds must be more than {ANSWER_SECONDS:.0f} with claims_url, and better twice that: a server "
            "that says nothing is asked anew after so long, and by then the seat would be another's"
        )
    seats = Seats(
        settings.claims_url,
        settings.claims_schema,
        settings.claims_seats,
        settings.lease_seconds,
        needs_standby=settings.claims_standby,
    )
    place = place_of(Path(settings.data_dir))
    of_journal = journal.reservations, journal.written, journal.known_commits, journal.keep_commits
    return Sharing(seats, identity.id, place, *of_journal, stale_seconds=settings.stale_seconds)


def keeper_of(settings: RelayerSettings, identity: Identity, journal: Journal, shared: str = "") -> LeaseKeeper:
    """The keeper of a running relayer, of which there are several where they share their claims under an id.

    Raises `ValueError` when a lease would end under a signature's hands.
    """
    if (settings.lease_url or shared) and settings.lease_seconds < LEAST_TIMES * settings.signer_timeout:
        raise ValueError(f"lease_seconds must be at least {LEAST_TIMES} times signer_timeout")
    place = place_of(Path(settings.data_dir))
    if shared:  # what is remembered lies in the claims, whoever holds the keys
        return LeaseKeeper(lambda: store_of(settings, shared, identity.id), Identity(shared, 0), place, lambda: 0)
    return LeaseKeeper(lambda: store_of(settings), identity, place, journal.reservations)
