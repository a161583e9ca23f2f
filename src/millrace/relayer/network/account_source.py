"""Accounts on demand: from the book when known, else from the chain API, each question asked once at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from millrace.relayer.ledger.accounts import Account, AccountBook
from millrace.relayer.network.chain_api import ChainApi, ChainApiError, NotToldError
from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Refused

REFRESH_SECONDS = 0.1
"""An answer younger than this is not asked for again."""
PAYER_SECONDS = 10.0
"""What is known of an account that pays for others is asked for again after so long: no event tells of such fees."""
GUARDED_SECONDS = 60.0
"""The same of a guarded account: a new guardian becomes the active one with an epoch, of which no event tells."""
LAG_SECONDS = 10.0
"""So long behind a final block the chain API may still speak of an account as it was before: a time of caches and
indexers, not of rounds."""
SILENT_SECONDS = 0.5
"""After a failure nothing is asked for so long; after one that came sooner and concerns one account, nothing of it."""
MAX_SILENT = 1_000
"""Accounts that are not asked for; beyond, the one that failed first is asked again, which costs a question."""


class AccountSource:
    """The book and the way to fill it."""

    def __init__(self, book: AccountBook, api: ChainApi | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.book = book
        self._api = api
        self._clock = clock
        self._asking: dict[bytes, asyncio.Task[None]] = {}
        self._silent_until = 0.0
        self._silent: dict[bytes, float] = {}
        """The same of accounts, those that failed first in front."""
        self.on_nonce: Callable[[bytes, int], None] = lambda pubkey, nonce: None
        """Told of every answer's nonce."""
        self.failures = 0

    @property
    def is_silent(self) -> bool:
        """Whether the chain API failed a moment ago, so that nothing is asked for."""
        return self._clock() < self._silent_until

    async def know(self, pubkey: bytes) -> Account:
        """The state of an account. Raises `Refused` when it is unknown and cannot be asked for."""
        account = self.book.get(pubkey)
        if account is None or self._is_old(pubkey, account):
            await self._ask(pubkey)
            account = self.book.get(pubkey)
        if account is None or self._is_doubtful(pubkey, account):
            raise Refused(reasons.ACCOUNT_UNAVAILABLE.but("the chain API does not answer; try again", 1_000))
        return account

    def known(self, pubkey: bytes) -> Account | None:
        """The state of an account, as far as it can be relied on without asking anybody."""
        account = self.book.get(pubkey)
        if account is None or self.book.doubted_since(pubkey) is not None:
            return None
        return None if account.guardian and self._is_old(pubkey, account) else account

    def _is_old(self, pubkey: bytes, account: Account) -> bool:
        """Whether to ask again because its guardian may be another one now."""
        since = self.book.doubted_since(pubkey)
        if since is not None:
            if account.fetched < since + LAG_SECONDS:
                return self._clock() - account.fetched >= REFRESH_SECONDS
            self.book.settle(pubkey)
        lasts = REFRESH_SECONDS if account.pending else GUARDED_SECONDS  # an epoch may have made him the active one
        return bool(account.guardian) and self._clock() - account.fetched >= lasts

    def _is_doubtful(self, pubkey: bytes, account: Account) -> bool:
        """Whether the chain API has not spoken since the guardian changed."""
        since = self.book.doubted_since(pubkey)
        return since is not None and account.fetched < since

    async def know_payer(self, pubkey: bytes) -> Account:
        """The state of a relayer's account, not older than `PAYER_SECONDS` while the chain API answers."""
        account = self.book.get(pubkey)
        if account is not None and self._clock() - account.fetched >= PAYER_SECONDS:
            await self._ask(pubkey)
        return await self.know(pubkey)

    async def refresh(self, pubkey: bytes) -> bool:
        """Ask again unless the last answer is fresh; whether something newer may be known now.

        Before a transaction is refused for its nonce or balance: the chain may be ahead of the events.
        """
        account = self.book.get(pubkey)
        if self._api is None or (account is not None and self._clock() - account.fetched < REFRESH_SECONDS):
            return False
        await self._ask(pubkey)
        return True

    async def _ask(self, pubkey: bytes) -> None:
        if self._api is None or self.is_silent or self._clock() < self._silent.get(pubkey, 0.0):
            return
        task = self._asking.get(pubkey)
        if task is None:
            task = self._asking[pubkey] = asyncio.create_task(self._fetch(self._api, pubkey))
            task.add_done_callback(lambda _: self._asking.pop(pubkey, None))
        await asyncio.shield(task)

    async def _fetch(self, api: ChainApi, pubkey: bytes) -> None:
        asked, began = self.book.get(pubkey), self._clock()
        try:
            nonce, balance, guardian, pending = await api.account(pubkey)
        except ChainApiError as error:
            self.failures += 1
            self._note(pubkey, error, began)
            return
        self._silent.pop(pubkey, None)
        self.book.learn_from_api(pubkey, nonce, balance, asked, self._clock(), guardian, pending=pending)
        self.on_nonce(pubkey, nonce)

    def _note(self, pubkey: bytes, error: ChainApiError, began: float) -> None:
        """Ask for nothing for a moment, as whole batches would wait for timeouts one by one; or for one account alone,
        where a quick answer says no more than that."""
        now = self._clock()
        if not isinstance(error, NotToldError) or now - began >= SILENT_SECONDS:
            self._silent_until = now + SILENT_SECONDS
            return
        self._silent.pop(pubkey, None)
        self._silent[pubkey] = now + SILENT_SECONDS
        if len(self._silent) > MAX_SILENT:
            del self._silent[next(iter(self._silent))]
