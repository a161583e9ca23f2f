"""The keys of a running relayer: the signing process that has them, their leases, and how they are replaced."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from millrace.relayer.journal.lease_keeper import LeaseKeeper
from millrace.relayer.journal.leases import LeaseError
from millrace.relayer.rules.stages import Relayers
from millrace.relayer.settings import RelayerSettings
from millrace.relayer.signing.handle import SignerError, SigningProcess, where_keys_are

log = logging.getLogger(__name__)


class Keys:
    """`own` them first, then `load`; `stop` the signing process before the leases are given back."""

    def __init__(self, settings: RelayerSettings, journal: Path) -> None:
        """Takes the names in `key_env` out of the environment at once."""
        self._where = where_keys_are(settings, journal)
        self._timeout = settings.signer_timeout
        self._leases: LeaseKeeper | None = None
        self.signer: SigningProcess | None = None
        self.on_return: Callable[[], None] = lambda: None
        """Told when a signing process is back that had gone away."""

    def own(self, identity: str, leases: LeaseKeeper) -> None:
        """Say whose keys they are, by the identity of the data directory, and who keeps their leases from now on."""
        self._where = msgspec.structs.replace(self._where, owner=identity)
        self._leases = leases
        leases.start()

    @property
    def relayers(self) -> Relayers:
        """The public keys that pay, by shard."""
        return Relayers(self.signer.relayers if self.signer is not None else {})

    async def load(self) -> None:
        """Read the key files in a new signing process, which takes the place of the old one. Raises `SignerError`.

        If they cannot be used, or are somebody else's, the old one stays.
        """
        assert self._leases is not None
        if not self._where.key_files and not self._where.key_env:
            log.warning("no keys are set: relay and sign are refused")
            return
        leases, signer = self._leases, SigningProcess(self._where, self._timeout)
        signer.on_return = lambda: self.on_return()
        signer.why_not = lambda: leases.why_not(signer.relayers.values())
        try:
            await signer.start()
            await self._take_leases(signer)
        except (asyncio.CancelledError, SignerError):
            await signer.stop()
            raise
        self.signer, old = signer, self.signer
        log.info("keys are loaded", extra={"shards": sorted(signer.relayers)})
        if old is not None:
            await old.stop()
            await leases.give_back(set(old.relayers.values()) - set(signer.relayers.values()))

    async def may_sign_again(self) -> bool:
        """Hold the keys that a signing process came back with, which may be others; whether that was possible."""
        if self.signer is not None:
            try:
                await self._take_leases(self.signer)
            except SignerError as error:
                log.error("a key may not be used", extra={"reason": str(error)})
                return False
        return True

    def why_not(self) -> str | None:
        """Why none of the keys may sign now, if so."""
        if self.signer is None or self._leases is None:
            return None
        return self._leases.why_not(self.signer.relayers.values())

    async def stop(self) -> None:
        """End the signing process."""
        if self.signer is not None:
            await self.signer.stop()

    async def _take_leases(self, signer: SigningProcess) -> None:
        """Become the holder of these keys before one of them signs. Raises `SignerError`."""
        assert self._leases is not None
        try:
            await self._leases.take(signer.relayers.values())
        except (LeaseError, OSError) as error:
            raise SignerError(str(error)) from error
