"""A relayer's part of a policy whose keys several use: its part of every sum, so that all together keep to it."""

from __future__ import annotations

import math
from typing import TypeVar

import msgspec

from millrace.relayer.rules.policy import Budget, Person, Policy, PolicyError, Quotas

T = TypeVar("T", Budget, Person, Quotas)

_BUDGET = ("per_minute", "per_hour", "per_day", "at_risk", "at_risk_sign_only", "loss_per_hour")
_QUOTAS = (
    "sender_per_hour", "ip_per_hour", "receiver_per_hour", "sender_at_risk_sign_only", "ip_at_risk_sign_only",
    "sender_in_flight", "ip_in_flight",
)  # fmt: skip


def part_of(policy: Policy, seats: int, stale_seconds: float) -> Policy:
    """The policy of one of so many. Raises `PolicyError` for what cannot be divided.

    What a key holds is not divided: each leaves alone what the others may have signed and what they may sign in
    the time it may be without news of their fees, which is `stale_seconds`.
    """
    if seats == 1:
        return policy
    if policy.programmes:
        raise PolicyError(
            "[programmes] count what all relayers of a key paid together, which those that share claims do not know: "
            "leave them out, or set claims_seats to 1"
        )
    mine = _parts(policy.budget, _BUDGET, seats)
    minutes = math.ceil(stale_seconds / 60) + 1
    others = (seats - 1) * (mine.at_risk + minutes * mine.per_minute)
    budget = msgspec.structs.replace(mine, floor_balance=mine.floor_balance + others)
    people = {name: _parts(person, _BUDGET, seats) for name, person in policy.people.items()}
    return msgspec.structs.replace(policy, budget=budget, quotas=_parts(policy.quotas, _QUOTAS, seats), people=people)


def _parts(sums: T, names: tuple[str, ...], seats: int) -> T:
    return msgspec.structs.replace(sums, **{name: getattr(sums, name) // seats for name in names})
