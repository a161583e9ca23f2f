"""Who keeps failing waits, and whose word is taken that a transaction will not."""

from __future__ import annotations

import pytest

from millrace.relayer.ledger.reputation import FOOLED_SECONDS, Reputation
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.rules.policy import CallName, Quotas

CALL = CallName(b"c" * 32, "swap")
RULES = Quotas(call_sample=1, call_failure_percent=50, failures=100)


def throttled() -> Reputation:
    """One call has failed, so that further ones want a simulation that says they run; every one says so."""
    reputation = Reputation()
    reputation.would_run = lambda client_hash: True
    reputation.learn(b"somebody", CALL, True, 0.0, RULES)
    return reputation


def lets_in(reputation: Reputation, sender: bytes, client: str, now: float, client_hash: bytes = b"h") -> bool:
    try:
        reputation.check(sender, CALL, now, RULES, client_hash, client)
    except Refused:
        return False
    return True


@pytest.mark.parametrize(("sender", "client"), [(b"sender", "another"), (b"another", "client"), (b"sender", "client")])
def test_who_fools_a_simulation_loses_that_credit_for_a_while(sender: bytes, client: str) -> None:
    """After a simulation that was wrong no other of its sender or its client is believed, until some minutes later."""
    reputation = throttled()
    assert lets_in(reputation, b"sender", "client", 1.0)
    reputation.learn(b"sender", CALL, True, 2.0, RULES, b"h")
    assert not lets_in(reputation, sender, client, 3.0)
    assert lets_in(reputation, b"another", "another", 3.0), "it says nothing of others"
    assert lets_in(reputation, sender, client, 3.0 + FOOLED_SECONDS)


def test_what_failed_without_a_simulation_costs_no_credit() -> None:
    """Only a transaction that a simulation let in can have fooled one, and one that ran did not."""
    reputation = throttled()
    reputation.learn(b"sender", CALL, True, 1.0, RULES, b"never simulated")
    assert lets_in(reputation, b"sender", "client", 2.0)
    reputation.learn(b"sender", CALL, False, 3.0, RULES, b"h")
    assert lets_in(reputation, b"sender", "client", 4.0)
