"""What a running relayer does every second or minute beside its work: the policy file, write-offs, forgetting."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from millrace.relayer.journal.fates import Fates
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.writer import JournalError
from millrace.relayer.ledger.lifecycle import Lifecycle
from millrace.relayer.network.account_source import AccountSource
from millrace.relayer.network.expired_senders import ExpiredSenders
from millrace.relayer.rules.policy import Policy, PolicyError
from millrace.relayer.rules.policy_file import PolicyFile
from millrace.relayer.submission.cosigner import Cosigner
from millrace.relayer.submission.overdue import Overdue
from millrace.runtime.clocks import UnhurriedClock

log = logging.getLogger(__name__)

POLICY_SECONDS = 1.0
PATIENCE = 5.0
"""Seconds that a new policy waits for the journal: what pays for less holds then all the same."""
WRITE_OFFS_AT_ONCE = 200
TIDY_SECONDS = 60.0
TIDY_ACCOUNTS = 64


class PolicyKeeper:
    """Takes over the policy file when it changes, and writes off what an operator asked for."""

    def __init__(
        self,
        file: PolicyFile,
        name: str,
        lifecycle: Lifecycle,
        journal: Journal,
        part_of: Callable[[Policy], Policy] = lambda policy: policy,
    ) -> None:
        """`name`: of the file, as it is set; empty without one. `part_of`: what of it is this relayer's."""
        self._part_of = part_of
        self.on_taken: Callable[[], None] = lambda: None
        """Told when another policy holds."""
        self._taken: Policy | None = None
        """Of the file, as it was taken over last."""
        self._file = file
        self._name = name
        self._lifecycle = lifecycle
        self._journal = journal

    @property
    def rejected(self) -> str:
        """Why the file as it is now is not the policy, if so."""
        return self._file.rejected

    @property
    def whole(self) -> Policy:
        """All of the policy that is in force, of which ours may be a part."""
        return self._file.policy

    def again(self) -> None:
        """Our part of the policy is another one now."""
        self._lifecycle.sponsor.policy = self._part_of(self._file.policy)

    async def begin(self) -> None:
        """The policy of the file, or the last good one where that cannot be used. Raises `PolicyError` without one.

        The journal remembers which one that is: its file may be lost.
        """
        loop = asyncio.get_running_loop()

        def remember(checksum: str) -> None:
            """From another thread."""
            try:
                asyncio.run_coroutine_threadsafe(self._journal.keep_policy(checksum), loop).result(PATIENCE)
            except (JournalError, TimeoutError) as error:
                raise OSError(f"the journal does not take it: {error}") from error

        self._file.remember = remember
        await asyncio.to_thread(self._file.begin, self._journal.kept_policy())
        if self._file.lost:
            log.error("the last good policy is lost: the policy file holds", extra={"error": self._file.lost})
        if self._file.rejected:
            log.error("the policy file is not used: the last good one holds", extra={"error": self._file.rejected})
        self._take()

    async def read(self) -> None:
        """Take over the policy file if it changed. Raises `PolicyError` when it cannot be used."""
        try:
            await asyncio.to_thread(self._file.refresh)
        finally:
            if self._taken is not self._file.policy:
                self._take()

    def write_off(self) -> None:
        """Write off what an operator asked for by `millrace policy write-off`."""
        done = 0
        for client_hash in self._journal.write_offs():
            if self._lifecycle.write_off(client_hash):
                log.warning("written off", extra={"client_hash": client_hash.hex()})
                done += 1
            if done == WRITE_OFFS_AT_ONCE:
                return  # the next second goes on

    async def run(self) -> None:
        """Look at both every second, for ever."""
        wrong = self._file.rejected
        while True:
            await asyncio.sleep(POLICY_SECONDS)
            try:
                self.write_off()
            except JournalError as error:  # the next second asks again
                log.error("what is to be written off cannot be read", extra={"error": str(error)})
            failure = ""
            try:
                if self._file.is_changed:
                    await asyncio.to_thread(self._file.refresh)
            except PolicyError as refused:
                failure = str(refused)
            if self._taken is not self._file.policy:
                self._take()
            elif failure and failure != wrong:
                log.error("the policy file is not used: the last good one holds", extra={"error": failure})
            wrong = failure

    def _take(self) -> None:
        self._taken = self._file.policy
        self.again()
        self.on_taken()
        if self._name:
            log.info("policy read", extra={"file": self._name, "rejected": self._file.rejected})


class Tidier:
    """Forgets what is long over, finds out what became of what was given up, and has signed what is not."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        journal: Journal,
        fates: Fates,
        accounts: AccountSource,
        cosigner: Cosigner,
        *,
        retention_ms: int,
        lifetime_ms: int,
    ) -> None:
        """`retention_ms`: for how long what is over is kept; `lifetime_ms`: for how long what no block has is sent."""
        self._lifecycle = lifecycle
        self._journal = journal
        self._fates = fates
        self._cosigner = cosigner
        self._retention_ms = retention_ms
        self._lifetime_ms = lifetime_ms
        self._given_up = ExpiredSenders(lifecycle.inflight, accounts, lifecycle.sponsor.written_off.senders)
        self._now_ms = UnhurriedClock()
        self.overdue = Overdue(lifecycle, accounts, cosigner.send, self._now_ms)

    async def run(self) -> None:
        """Once a minute, for ever."""
        while True:
            kept_since = self._now_ms() - self._retention_ms
            self._journal.prune(kept_since)
            await self._fates.prune(kept_since)
            self._lifecycle.sponsor.prune()
            self._lifecycle.drop_given_up(self._now_ms() - self._lifetime_ms)
            await self._given_up.ask(TIDY_ACCOUNTS)
            await self._cosigner.sign_missed()
            await asyncio.sleep(TIDY_SECONDS)
