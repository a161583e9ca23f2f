"""What operators see of a running relayer beside its metrics, and the pause of a shard."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec import UNSET, UnsetType

from millrace.chain import address
from millrace.relayer.gateway.wallets import transaction_reply
from millrace.relayer.journal.fates import FatesUnavailable
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.writer import JournalError
from millrace.relayer.ledger.lifecycle import Lifecycle
from millrace.relayer.ledger.sponsor import Condition
from millrace.relayer.protocol.wallets import TransactionReply
from millrace.relayer.rules.stages import Relayers
from millrace.runtime import http

LATEST = 50
"""Transactions that are shown."""


class BudgetItem(msgspec.Struct, frozen=True, rename="camel"):
    """What a key spent in a window, and what it may; atomic units, as text."""

    window: str
    spent: str
    limit: str


class KeyItem(msgspec.Struct, frozen=True, rename="camel"):
    """A relayer key, its money in atomic units, as text."""

    shard: int
    address: str
    state: Condition
    is_low: bool
    left: str
    """What it may still reserve now, by all windows and by what is at risk."""
    at_risk: str
    """Signed, and not known to be over."""
    budget: tuple[BudgetItem, ...]
    balance: str | UnsetType = UNSET
    """At least; absent while it is not known, as the next one."""
    spendable: str | UnsetType = UNSET
    seconds_to_empty: float | UnsetType = UNSET
    """At the present rate; absent while it spends nothing."""


class StateReply(msgspec.Struct, frozen=True, rename="camel"):
    """GET /v1/state."""

    ready: bool
    sponsoring: str
    """`ok`, or why nothing is signed."""
    paused: tuple[int, ...]
    """Shards that an operator paused here; the policy may pause others."""
    in_flight: int
    refused: dict[str, int]
    """Transactions and messages since the start, by the code of their reason."""
    relayers: tuple[KeyItem, ...]


class LatestItem(msgspec.Struct, frozen=True, rename="camel"):
    """One of the latest transactions."""

    created: int
    """When it was accepted, milliseconds since the epoch."""
    transaction: TransactionReply


class LatestReply(msgspec.Struct, frozen=True):
    """GET /v1/transactions."""

    transactions: list[LatestItem]


class _Pause(msgspec.Struct, forbid_unknown_fields=True):
    shards: tuple[int, ...]


class RelayerOperators:
    """Handlers of the operators' port."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        journal: Journal,
        relayers: Callable[[], Relayers],
        refused: dict[str, int],
        is_ready: Callable[[], bool],
        why_not: Callable[[], str | None],
        shards: int,
    ) -> None:
        self._lifecycle = lifecycle
        self._journal = journal
        self._relayers = relayers
        self._refused = refused
        self._is_ready = is_ready
        self._why_not = why_not
        self._shards = shards

    def handlers(self) -> dict[str, Handler]:
        """What may be looked at, by path."""
        return {"/v1/state": self._state, "/v1/transactions": self._latest}

    def actions(self) -> dict[str, Handler]:
        """What may be done, by path."""
        return {"/control/pause": self._pause}

    async def _state(self, _: web.Request) -> web.Response:
        """GET: keys, their budgets, and what was refused."""
        sponsor = self._lifecycle.sponsor
        reply = StateReply(
            self._is_ready(),
            self._why_not() or "ok",
            tuple(sorted(sponsor.paused)),
            len(self._lifecycle.inflight),
            dict(sorted(self._refused.items())),
            tuple(self._key(shard, key) for shard, key in sorted(self._relayers().by_shard.items())),
        )
        return http.json_response(reply)

    def _key(self, shard: int, key: bytes) -> KeyItem:
        sponsor = self._lifecycle.sponsor
        standing, budget = sponsor.standing_of(key), sponsor.policy.budget
        state, used, seconds = standing.state, standing.used, standing.state.seconds_to_empty
        windows = (
            ("minute", used.spent_minute, budget.per_minute),
            ("hour", used.spent_hour, budget.per_hour),
            ("day", used.spent_day, budget.per_day),
        )
        return KeyItem(
            shard,
            address.encode(key),
            state.condition,
            state.is_low,
            str(standing.left),
            str(used.at_risk),
            tuple(BudgetItem(name, str(amount), str(limit)) for name, amount, limit in windows),
            UNSET if standing.balance is None else str(standing.balance),
            UNSET if state.spendable is None else str(state.spendable),
            round(seconds, 1) if math.isfinite(seconds) else UNSET,
        )

    async def _latest(self, _: web.Request) -> web.Response:
        """GET: the latest transactions, newest first, with what became of each."""
        found = []
        try:
            for record in await self._journal.latest(LATEST):
                fate = await self._lifecycle.fates.find(record.client_hash)
                if fate is not None:
                    shown = (record.chain_hash or record.client_hash).hex()
                    found.append(LatestItem(record.created_ms, transaction_reply(shown, *fate)))
        except (FatesUnavailable, JournalError) as error:
            return http.error_response(str(error), 503, {"Retry-After": "1"})
        return http.json_response(LatestReply(found))

    async def _pause(self, request: web.Request) -> web.Response:
        """POST {"shards": [0, 2]}: these pay for nobody until another such request, over restarts, too; [] ends it."""
        try:
            shards = frozenset(msgspec.json.decode(await request.read(), type=_Pause).shards)
        except msgspec.DecodeError:
            shards = frozenset({-1})
        if not shards <= frozenset(range(self._shards)):
            return http.error_response(f'send {{"shards": […]}} with numbers from 0 to {self._shards - 1}', 400)
        try:
            await self._lifecycle.pause(shards)
        except JournalError as error:
            text = f"the journal cannot be written, so that what was paused stays so until a restart: {error}"
            return http.error_response(text, 503)
        return http.json_response({"paused": sorted(shards)})
