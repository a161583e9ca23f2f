"""What the policy would say to a transaction, step by step, without submitting it (`millrace policy explain`)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Raw

from millrace.chain.network import NetworkProfile
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.rules import policy, stages
from millrace.relayer.rules.policy import Policy, Target
from millrace.relayer.rules.programmes import matchers
from millrace.relayer.rules.stages import Origin, Relayers
from millrace.relayer.rules.strangers import Parts


class Step(NamedTuple):
    """One check and its outcome."""

    name: str
    passed: bool
    text: str


def explain(
    text: bytes,
    rules: Policy,
    network: NetworkProfile,
    relayers: Relayers | None = None,
    p90: int | None = None,
    *,
    person: str = "",
    now_ms: int | None = None,
) -> Iterator[Step]:
    """Each check in the order the relayer makes them; the first that fails is the last.

    `relayers` are the public keys; without them the transaction's own relayer is taken to be ours. Balances,
    nonces and what is left of budgets belong to a running relayer and are not checked. `person` is one of the policy's
    people. Raises `PolicyError` where there is no such person.
    """
    if person and person not in rules.people:
        raise policy.PolicyError(f"people: there is no {person}, only {', '.join(rules.people) or 'strangers'}")
    tx = None
    try:
        parsed = stages.parse(Raw(text), Origin("relay", ""))
        tx = parsed.tx
        yield Step("parse", True, f"nonce {tx.nonce}, value {tx.value}")
        ours = relayers or Relayers({network.shard_of(tx.sender): tx.relayer})
        authenticated = stages.authenticate(parsed, network, ours)
        yield Step("authenticate", True, f"signed, for the relayer of shard {authenticated.sender_shard}")
        fee = policy.check_caps(tx, rules, network)
        yield Step("caps", True, f"costs at most {fee} of {rules.caps.fee}")
        policy.check_gas_price(tx, rules, p90)
        yield Step("gas price", True, f"{tx.gas_price} of at most {policy.gas_price_cap(rules.caps, p90)}")
        target = authenticated.target
        policy.check_lists(tx, target, rules.lists)
        yield Step("lists", True, f"function {target.function!r}")
        if not person:
            at = time.time_ns() // 1_000_000 if now_ms is None else now_ms
            yield from _programmes(rules, tx.sender, target, fee, at)
            kept = rules.strangers.sign_only_balance
            yield Step("sign only", True, f"/v1/sign wants an account that holds {tx.value + kept} atomic units")
        for name, limit in _limits(rules, person):
            yield Step(name, fee <= limit, f"{fee} of {limit} atomic units, if nothing of it is used")
            if fee > limit:
                return
    except Refused as refusal:
        detail = f": {refusal.reason.detail}" if refusal.reason.detail else ""
        yield Step("parse" if tx is None else "refused", False, refusal.reason.reason + detail)


def _programmes(rules: Policy, sender: bytes, target: Target, fee: int, now_ms: int) -> Iterator[Step]:
    """What each programme for such a transaction says; where none pays, a stranger's bounds hold."""
    for item in matchers(rules.programmes):
        if not item.matches(sender, target.receiver, target.function):
            continue
        programme = item.programme
        if now_ms >= item.until_ms:
            text = f"ended {programme.until.isoformat()}: judged as a stranger's"
        elif fee > programme.budget or not programme.per_user:
            text = f"has no room for {fee}: judged as a stranger's"
        else:
            text = (
                f"pays {fee} of {programme.budget} until {programme.until.isoformat()}, {programme.per_user} "
                "transactions of each sender, if nothing of it is used"
            )
        yield Step(f"programme {item.name}", True, text)


def _limits(rules: Policy, person: str) -> list[tuple[str, int]]:
    limits = [
        ("budget per minute", rules.budget.per_minute),
        ("budget per hour", rules.budget.per_hour),
        ("budget per day", rules.budget.per_day),
        ("budget at risk", rules.budget.at_risk),
        ("budget of losses per hour", rules.budget.loss_per_hour),
        ("quota of the sender", rules.quotas.sender_per_hour),
    ]
    if person:
        own = rules.people[person]
        return limits + [
            (f"budget of {person} per {name}", limit)
            for name, limit in (("minute", own.per_minute), ("hour", own.per_hour), ("day", own.per_day))
        ]
    parts = Parts.of(rules.budget, rules.together_percent, rules.strangers.address_percent, rules.caps.fee)
    for name, part in (("per minute", parts.spent[0]), ("at risk", parts.at_risk), ("of losses per hour", parts.lost)):
        limits += [(f"budget of all strangers {name}", part.together), (f"share of the address {name}", part.most(0))]
    return [
        *limits,
        ("quota of the address", rules.quotas.ip_per_hour),
        ("quota of the receiver", rules.quotas.receiver_per_hour),
    ]
