"""A relayer's part of a policy whose keys several use: its part of every sum, so that all together keep to it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias, TypeVar

import msgspec

from millrace.relayer.rules.policy import SUMS, Budget, Person, Policy

T = TypeVar("T", Budget, Person)
Sums: TypeAlias = Mapping[str, list[str]]
"""Of a policy by the names of people, and of keys under the empty name: in the order of `SUMS`, each as text, as they
are beyond what JSON's readers take for integers."""

_QUOTAS = (
    "sender_per_hour", "ip_per_hour", "receiver_per_hour", "sender_at_risk_sign_only", "ip_at_risk_sign_only",
)  # fmt: skip
_NUMBERS = ("sender_in_flight", "ip_in_flight")


def part_of(policy: Policy, seats: int, stale_seconds: float, held: int, portions: int) -> Policy:
    """The policy of one of so many, who holds some of all portions.

    Budgets of keys and people are divided by portions, which move; quotas by seats, but for what one transaction takes,
    as whoever may have one may ask anywhere. What a key holds is not divided: each leaves alone what the others may
    have signed and what they may sign in the time it may be without news of their fees, which is `stale_seconds`; what
    they wrote off is told, and taken off beside that. What programmes pay is counted together with the claims.
    """
    if seats == 1:
        return policy
    whole, mine = policy.budget, _part(policy.budget, held, portions)
    minutes = math.ceil(stale_seconds / 60) + 1
    others = whole.at_risk - mine.at_risk + minutes * (whole.per_minute - mine.per_minute)
    budget = msgspec.structs.replace(mine, floor_balance=mine.floor_balance + others)
    people = {name: _part(person, held, portions) for name, person in policy.people.items()}
    least = dict.fromkeys(_QUOTAS, policy.caps.fee) | dict.fromkeys(_NUMBERS, 1)
    parts = {name: _quota(getattr(policy.quotas, name), seats, one) for name, one in least.items()}
    quotas = msgspec.structs.replace(policy.quotas, **parts)
    return msgspec.structs.replace(policy, budget=budget, quotas=quotas, people=people)


def too_small(policy: Policy, seats: int) -> list[str]:
    """The sums of which an equal part does not pay for a transaction that the whole pays for: nobody gets it."""
    budgets: list[tuple[str, Budget | Person]] = [("budget", policy.budget)]
    budgets += [(f"people.{name}", person) for name, person in policy.people.items()]
    return [
        f"{table}.{name}"
        for table, sums in budgets
        for name in SUMS
        if getattr(sums, name) // seats < policy.caps.fee <= getattr(sums, name)
    ]


def sums_of(policy: Policy) -> str:
    """The sums of a policy's budgets, for those who share them."""
    told = {"": _texts(policy.budget)} | {name: _texts(person) for name, person in sorted(policy.people.items())}
    return msgspec.json.encode(told).decode()


def read_sums(text: str) -> Sums:
    """What `sums_of` gave. Raises `ValueError` for anything else."""
    return msgspec.json.decode(text, type=dict[str, list[str]])


def least(policy: Policy, others: Iterable[Sums]) -> Policy:
    """The policy with the smallest of each sum, as others say of theirs: else all parts are more than any whole."""
    for sums in others:
        people = {name: _least(person, sums.get(name)) for name, person in policy.people.items()}
        policy = msgspec.structs.replace(policy, budget=_least(policy.budget, sums.get("")), people=people)
    return policy


def _quota(whole: int, seats: int, one: int) -> int:
    return max(whole // seats, min(whole, one))


def _texts(sums: Budget | Person) -> list[str]:
    return [str(getattr(sums, name)) for name in SUMS]


def _least(sums: T, other: list[str] | None) -> T:
    """Whom the other one does not know spends nothing there."""
    if other is None:
        return sums
    smaller = {name: int(text) for name, text in zip(SUMS, other, strict=True) if int(text) < getattr(sums, name)}
    return msgspec.structs.replace(sums, **smaller) if smaller else sums


def _part(sums: T, held: int, portions: int) -> T:
    return msgspec.structs.replace(sums, **{name: getattr(sums, name) * held // portions for name in SUMS})
