"""What `/ledger` tells operators: budgets and what is at risk, by key, person, programme and user.

Keys, people and programmes are few and read from memory. Users at risk are read from the journal in a thread, as there
may be a hundred thousand of them; what they spent is known of those who were granted something last.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from aiohttp import web

from millrace.chain import address
from millrace.relayer.journal import at_risk
from millrace.relayer.journal.at_risk import AtRisk, AtRiskError
from millrace.relayer.ledger.budget import Standing
from millrace.relayer.ledger.lifecycle import Lifecycle
from millrace.relayer.rules.policy import Budget
from millrace.relayer.rules.stages import Relayers
from millrace.runtime.http import error_response, json_response

USERS, MOST_USERS = 100, 10_000
"""Users that are told of unless more are asked for, and the most there can be."""
_OF_LATE = 1_000
"""Senders that were granted something last, and are looked at: some 0.3 ms of the event loop."""
_NOTHING = AtRisk(0, 0, 0)


class Ledger:
    """Answers `GET /ledger`; amounts are atomic units, as text."""

    def __init__(self, relayers: Callable[[], Relayers], lifecycle: Lifecycle, journal: Path) -> None:
        self._relayers, self._lifecycle, self._journal = relayers, lifecycle, journal

    async def get(self, request: web.Request) -> web.Response:
        """The answer to a request; its parameter `limit` says how many users."""
        text = request.query.get("limit", str(USERS))
        if not (text.isascii() and text.isdigit() and len(text) < 6 and 0 < int(text) <= MOST_USERS):
            return error_response(f"invalid limit: 1 to {MOST_USERS}", 400)
        try:
            users = await self._users(int(text))
        except AtRiskError as error:
            return error_response(f"the journal cannot be read: {error}", 503)
        return json_response(self._told() | users)

    def _told(self) -> dict[str, object]:
        sponsor, now = self._lifecycle.sponsor, time.monotonic()
        rules = sponsor.policy
        people = {name: sponsor.budgets.standing_of_person(name, now) for name in rules.people}
        return {
            "keys": [self._key(shard, key) for shard, key in sorted(self._relayers().by_shard.items())],
            "people": [{"name": name} | _of(people[name], person.budget) for name, person in rules.people.items()],
            "programmes": self._programmes(time.time_ns() // 1_000_000),
        }

    def _key(self, shard: int, key: bytes) -> dict[str, object]:
        sponsor = self._lifecycle.sponsor
        standing = sponsor.standing_of(key)
        spendable = standing.state.spendable
        told: dict[str, object] = {"shard": shard, "address": address.encode(key), "state": standing.state.condition}
        told |= {
            "left": str(standing.left),
            "spendable": None if spendable is None else str(spendable),
            "writtenOff": str(standing.written_off),
        }
        return told | _of(standing.used, sponsor.policy.budget)

    def _programmes(self, now_ms: int) -> list[dict[str, object]]:
        sponsor, told = self._lifecycle.sponsor, []
        for name, programme in sponsor.policy.programmes.items():
            left = sponsor.programmes.left(name, programme, now_ms)
            told.append(
                {
                    "name": name,
                    "until": datetime.fromtimestamp(programme.until_ms / 1000, UTC).isoformat(timespec="seconds"),
                    "isOver": now_ms >= programme.until_ms,
                    "budget": str(programme.budget),
                    "spent": str(sponsor.programmes.spent(name)),
                    "left": str(left),
                    "users": sponsor.programmes.users(name),
                    "perUser": programme.per_user,
                }
            )
        return told

    async def _users(self, limit: int) -> dict[str, object]:
        """Those with most at risk, then those who spent most; of how many. Raises `AtRiskError`.

        What grows with all that is at risk is done in threads; budgets are the event loop's alone.
        """
        sponsor = self._lifecycle.sponsor
        fees = await asyncio.to_thread(at_risk.by_sender, self._journal)
        spent = self._spent(sponsor.budgets.senders_of_late(_OF_LATE))
        known, chosen = await asyncio.to_thread(_chosen, fees, spent, limit)
        spent = self._spent(chosen)
        return {
            "users": await asyncio.to_thread(_rows, chosen, fees, spent, sponsor.policy.quotas.sender_per_hour),
            "usersKnown": known,
        }

    def _spent(self, senders: list[bytes]) -> dict[bytes, int]:
        """What each had sponsored in the last hour."""
        budgets, now = self._lifecycle.sponsor.budgets, time.monotonic()
        return {sender: budgets.spent_by(sender, now) for sender in senders}


def _chosen(fees: dict[bytes, AtRisk], spent: dict[bytes, int], limit: int) -> tuple[int, list[bytes]]:
    """How many users are known, and those to tell of."""
    known = fees.keys() | spent.keys()
    return len(known), heapq.nlargest(limit, known, key=lambda user: (fees.get(user, _NOTHING).fee, spent.get(user, 0)))


def _rows(
    users: list[bytes], fees: dict[bytes, AtRisk], spent: dict[bytes, int], per_hour: int
) -> list[dict[str, object]]:
    return [
        {
            "address": address.encode(user),
            "atRisk": str(fees.get(user, _NOTHING).fee),
            "transactions": fees.get(user, _NOTHING).transactions,
            "oldestSeconds": fees.get(user, _NOTHING).oldest_seconds,
            "spentHour": str(spent[user]),
            "perHour": str(per_hour),
        }
        for user in users
    ]


def _of(standing: Standing, budget: Budget) -> dict[str, object]:
    """What of a budget is used, beside the budget."""
    used = {name: str(value) for name, value in msgspec.structs.asdict(standing).items()}
    return {
        "spentMinute": used["spent_minute"],
        "perMinute": str(budget.per_minute),
        "spentHour": used["spent_hour"],
        "perHour": str(budget.per_hour),
        "spentDay": used["spent_day"],
        "perDay": str(budget.per_day),
        "atRisk": used["at_risk"],
        "mostAtRisk": str(budget.at_risk),
        "atRiskSignOnly": used["at_risk_sign_only"],
        "mostAtRiskSignOnly": str(budget.at_risk_sign_only),
        "lostHour": used["lost_hour"],
        "mostLostHour": str(budget.loss_per_hour),
    }
