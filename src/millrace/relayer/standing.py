"""What `/ledger` tells operators: budgets and what is at risk, by key, person, programme and user.

Keys, people and programmes are few and read from memory. Users at risk are read from the journal in a thread, as there
may be a hundred thousand of them; what they spent is known of those who were granted something last.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from aiohttp import web

from millrace.chain import address
from millrace.relayer.journal import at_risk
from millrace.relayer.journal.at_risk import AtRisk, AtRiskError
from millrace.relayer.keys import Keys
from millrace.relayer.ledger.budget import Standing
from millrace.relayer.ledger.lifecycle import Lifecycle
from millrace.relayer.rules.policy import Budget
from millrace.runtime.http import error_response, json_response

USERS, MOST_USERS = 100, 10_000
"""Users that are told of unless more are asked for, and the most there can be."""
_OF_LATE = 1_000
"""Senders that were granted something last, and are looked at: some 0.3 ms of the event loop."""
_NOTHING = AtRisk(0, 0, 0)


class Ledger:
    """Answers `GET /ledger`; amounts are atomic units, as text."""

    def __init__(self, keys: Keys, lifecycle: Lifecycle, journal: Path) -> None:
        self._keys, self._lifecycle, self._journal = keys, lifecycle, journal

    async def get(self, request: web.Request) -> web.Response:
        """The answer to a request; its parameter `limit` says how many users."""
        text = request.query.get("limit", str(USERS))
        if not (text.isascii() and text.isdigit() and len(text) < 6 and 0 < int(text) <= MOST_USERS):
            return error_response(f"invalid limit: 1 to {MOST_USERS}", 400)
        try:
            open_fees = await asyncio.to_thread(at_risk.by_sender, self._journal)
        except AtRiskError as error:
            return error_response(f"the journal cannot be read: {error}", 503)
        return json_response(self._told(open_fees, int(text)))

    def _told(self, open_fees: dict[bytes, AtRisk], limit: int) -> dict[str, object]:
        sponsor, now = self._lifecycle.sponsor, time.monotonic()
        rules = sponsor.policy
        people = {name: sponsor.budgets.standing_of_person(name, now) for name in rules.people}
        return {
            "keys": [self._key(shard, key, now) for shard, key in sorted(self._keys.relayers.by_shard.items())],
            "people": [{"name": name} | _of(people[name], person.budget) for name, person in rules.people.items()],
            "programmes": self._programmes(time.time_ns() // 1_000_000),
            **self._users(open_fees, limit, now),
        }

    def _key(self, shard: int, key: bytes, now: float) -> dict[str, object]:
        sponsor = self._lifecycle.sponsor
        state, budget = sponsor.state_of(key), sponsor.policy.budget
        told: dict[str, object] = {"shard": shard, "address": address.encode(key), "state": state.condition}
        told |= {
            "left": str(sponsor.budgets.left(key, now, budget)),
            "spendable": None if state.spendable is None else str(state.spendable),
            "writtenOff": str(sponsor.written_off.of_key(key)),
        }
        return told | _of(sponsor.budgets.standing(key, now), budget)

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

    def _users(self, open_fees: dict[bytes, AtRisk], limit: int, now: float) -> dict[str, object]:
        """Those with most at risk, then those who spent most; of how many."""
        sponsor = self._lifecycle.sponsor
        budgets = sponsor.budgets
        known = open_fees.keys() | set(budgets.senders_of_late(_OF_LATE))

        def rank(sender: bytes) -> tuple[int, int]:
            return open_fees.get(sender, _NOTHING).fee, budgets.spent_by(sender, now)

        users = []
        for sender in heapq.nlargest(limit, known, key=rank):
            mine = open_fees.get(sender, _NOTHING)
            users.append(
                {
                    "address": address.encode(sender),
                    "atRisk": str(mine.fee),
                    "transactions": mine.transactions,
                    "oldestSeconds": mine.oldest_seconds,
                    "spentHour": str(budgets.spent_by(sender, now)),
                    "perHour": str(sponsor.policy.quotas.sender_per_hour),
                }
            )
        return {"users": users, "usersKnown": len(known)}


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
