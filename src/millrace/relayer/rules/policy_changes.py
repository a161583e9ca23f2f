"""How two policies differ, in words, and which of the differences let through or pay for more: what is looser."""

from __future__ import annotations

from typing import NamedTuple

from millrace.relayer.rules.policy import MOST, Policy

HIGHER, LOWER, NEITHER = 1, -1, 0
"""Which change of an entry makes a policy looser."""

_ENTRIES = {
    "caps": dict.fromkeys(
        (
            "gas_price", "gas_price_floor", "gas_price_percent_of_p90", "gas_limit", "fee", "data_bytes", "value",
        ), HIGHER,
    ),
    "budget": dict.fromkeys(
        ("per_minute", "per_hour", "per_day", "at_risk", "at_risk_sign_only", "loss_per_hour"), HIGHER
    )
    | {"floor_balance": LOWER, "alert_balance": NEITHER, "alert_seconds": NEITHER},
    "quotas": dict.fromkeys(
        (
            "sender_per_hour", "ip_per_hour", "receiver_per_hour", "sender_at_risk_sign_only", "ip_at_risk_sign_only",
            "sign_only_ahead", "sender_in_flight", "ip_in_flight", "failures", "call_failure_percent", "call_sample",
        ), HIGHER,
    )
    | {"first_ban_seconds": LOWER, "longest_ban_seconds": LOWER},
    "strangers": dict.fromkeys(
        ("together_percent", "address_percent", "receiver_percent", "function_percent", "sign_only_seconds"), HIGHER
    )
    | {"sponsor_below": HIGHER, "sign_only_balance": LOWER},
}  # fmt: skip
"""Of each entry with a number; `lists` and `paused_shards` have rules of their own."""


class Change(NamedTuple):
    """One entry that differs."""

    name: str
    words: str
    is_looser: bool


def changes(old: Policy, new: Policy) -> list[Change]:
    """Every entry in which two policies differ, in the order of the file."""
    found = []
    for table, entries in _ENTRIES.items():
        for name, direction in entries.items():
            before, after = getattr(getattr(old, table), name), getattr(getattr(new, table), name)
            if name == "sponsor_below":  # 0 sponsors all
                before, after = before or MOST + 1, after or MOST + 1
            binds = before, after
            if name == "together_percent":  # without people it does not bind
                binds = old.together_percent, new.together_percent
                before, after = binds if before == after else (before, after)
            if before != after:
                found.append(Change(f"{table}.{name}", f"{before} -> {after}", (binds[1] - binds[0]) * direction > 0))
    for name in old.lists.__struct_fields__:
        found += _listed(f"lists.{name}", getattr(old.lists, name), getattr(new.lists, name), name.startswith("allow"))
    found += _people(old, new) + _programmes(old, new)
    shards = tuple(map(str, old.paused_shards)), tuple(map(str, new.paused_shards))
    return found + _listed("paused_shards", *shards, is_allowing=False)


def looser(old: Policy, new: Policy) -> list[str]:
    """The entries in which the second policy is looser than the first."""
    return [change.name for change in changes(old, new) if change.is_looser]


def _people(old: Policy, new: Policy) -> list[Change]:
    """Who was added, is gone, or has another budget or other keys."""
    found = []
    for name in sorted({*old.people, *new.people}):
        before, after = old.people.get(name), new.people.get(name)
        if before is None or after is None:
            found.append(Change(f"people.{name}", "added" if before is None else "gone", before is None))
            continue
        if before.keys != after.keys:
            found.append(Change(f"people.{name}.keys", "other keys", bool(set(after.keys) - set(before.keys))))
        for field in before.__struct_fields__[1:]:
            was, now = getattr(before, field), getattr(after, field)
            if was != now:
                found.append(Change(f"people.{name}.{field}", f"{was} -> {now}", now > was))
    return found


def _programmes(old: Policy, new: Policy) -> list[Change]:
    """Which were added, are gone, or pay for other things, for longer or for more."""
    found = []
    for name in sorted({*old.programmes, *new.programmes}):
        before, after = old.programmes.get(name), new.programmes.get(name)
        if before is None or after is None:
            found.append(Change(f"programmes.{name}", "added" if before is None else "gone", before is None))
            continue
        if before.until != after.until:
            words = f"{before.until.isoformat()} -> {after.until.isoformat()}"
            found.append(Change(f"programmes.{name}.until", words, after.until > before.until))
        for field in ("budget", "per_user"):
            was, now = getattr(before, field), getattr(after, field)
            if was != now:
                found.append(Change(f"programmes.{name}.{field}", f"{was} -> {now}", now > was))
        for field in ("receivers", "functions", "senders"):
            lists = getattr(before, field), getattr(after, field)
            found += _listed(f"programmes.{name}.{field}", *lists, is_allowing=True)
    order = [name for name in old.programmes if name in new.programmes]
    if order != (now := [name for name in new.programmes if name in old.programmes]):
        # What matches several is charged to the first: all of them together pay no more.
        found.append(Change("programmes", f"in another order: {', '.join(order)} -> {', '.join(now)}", is_looser=False))
    return found


def _listed(name: str, before: tuple[str, ...], after: tuple[str, ...], is_allowing: bool) -> list[Change]:
    """A list that changed: an empty one that allows allows all."""
    added, gone = sorted(set(after) - set(before)), sorted(set(before) - set(after))
    if not added and not gone:
        return []
    words = "; ".join(
        part for part in (f"added {', '.join(added)}" * bool(added), f"gone {', '.join(gone)}" * bool(gone)) if part
    )
    if not is_allowing:
        return [Change(name, words, bool(gone))]
    if not after:
        words += "; an empty list allows all"
    return [Change(name, words, bool(before) and (not after or bool(added)))]
