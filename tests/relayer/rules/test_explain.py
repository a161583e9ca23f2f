"""`policy explain` says what the relayer would say."""

from __future__ import annotations

from relayer_support import NETWORK, RELAYERS, raw, transfer, wallet

from millrace.relayer.rules.explain import explain
from millrace.relayer.rules.policy import Policy, loads
from millrace.relayer.rules.stages import Relayers

ALICE = wallet(1)
OURS = Relayers({shard: pair.public for shard, pair in RELAYERS.items()})


def test_all_steps_of_a_good_transaction() -> None:
    """Every step passes and says what it compared."""
    steps = list(explain(bytes(raw(transfer(ALICE))), Policy(), NETWORK, OURS))
    assert all(step.passed for step in steps)
    assert [step.name for step in steps][:5] == ["parse", "authenticate", "caps", "gas price", "lists"]
    assert "100000000000000" in steps[2].text


def test_the_first_failing_step_is_the_last() -> None:
    """A refusal ends the list with its reason."""
    rules = loads("[caps]\nfee = 1")
    last = list(explain(bytes(raw(transfer(ALICE))), rules, NETWORK, OURS))[-1]
    assert not last.passed and last.text.startswith("fee too high")
    last = list(explain(bytes(raw(transfer(ALICE))), loads("[budget]\nper_day = 1"), NETWORK))[-1]
    assert not last.passed and last.name == "budget per day"
    (only,) = explain(b"nonsense", Policy(), NETWORK)
    assert not only.passed


def test_what_strangers_have_of_the_pools_is_shown() -> None:
    """All strangers together leave known people their part, where there are any; one address has its share."""
    text = "[budget]\nper_minute = 4000000000000000\n[caps]\nfee = 100000000000000\n"
    for rules, together in ((loads(text), 4 * 10**15), (loads(text + "[people.wallet]\n"), 3 * 10**15)):
        told = {step.name: step.text for step in explain(bytes(raw(transfer(ALICE))), rules, NETWORK, OURS)}
        assert f"of {together} atomic units" in told["budget of all strangers per minute"]
        assert f"of {10**15} atomic units" in told["share of the address per minute"]
        assert told["sign only"].endswith("50000000000000 atomic units")
    known = explain(bytes(raw(transfer(ALICE))), rules, NETWORK, OURS, person="wallet")
    assert not any("stranger" in step.name or "share" in step.name for step in known)
