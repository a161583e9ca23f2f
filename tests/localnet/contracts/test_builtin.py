"""Token transfers between accounts, and their events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.chain.call import TokenPayment
from millrace.localnet.contracts import builtin
from millrace.localnet.contracts.ledger import Ledger, LedgerError

ALICE, BOB = b"a" * 32, b"b" * 32
TOKENS = st.sampled_from(["EGLD-000000", "USDC-c76f1f", "UTK-2f80e9"])
PAYMENTS = st.lists(st.builds(TokenPayment, TOKENS, st.sampled_from([0, 0, 0, 0, 1]), st.integers(-1, 60)), max_size=5)


@given(payments=PAYMENTS)
def test_a_transfer_takes_all_or_nothing_and_arrives_in_full(payments: list[TokenPayment]) -> None:
    """What leaves the sender reaches the receiver; a transfer that fails takes nothing."""
    source, target = Ledger(), Ledger()
    for token in ("EGLD", "USDC-c76f1f", "UTK-2f80e9"):
        source.credit(ALICE, token, 100)
    sums: dict[str, int] = {}
    for payment in payments:
        sums[payment.token] = sums.get(payment.token, 0) + payment.amount
    valid = bool(payments) and all(p.amount > 0 and not p.nonce for p in payments)
    possible = valid and all(amount <= 100 for amount in sums.values())
    try:
        builtin.send(source, ALICE, payments)
    except LedgerError:
        assert not possible
        assert all(source.balance_of(ALICE, token) == 100 for token in ("EGLD", "USDC-c76f1f", "UTK-2f80e9"))
        return
    assert possible
    builtin.receive(target, BOB, payments)
    for token, amount in sums.items():
        assert source.balance_of(ALICE, token) == 100 - amount
        assert target.balance_of(BOB, token) == amount


def test_the_event_of_one_token_has_the_live_chains_shape() -> None:
    """`ESDTTransfer`: token, nonce, amount, receiver; the sender is the address."""
    event = builtin.event(ALICE, BOB, [TokenPayment("USDC-c76f1f", 0, 256)])
    assert (event.address, event.identifier) == (ALICE, "ESDTTransfer")
    assert event.topics == (b"USDC-c76f1f", b"", b"\x01\x00", BOB)


def test_the_event_of_several_tokens_carries_a_triple_for_each() -> None:
    """`MultiESDTNFTTransfer`: a triple per token, then the receiver; also for one token if it was sent so."""
    event = builtin.event(ALICE, BOB, [TokenPayment("USDC-c76f1f", 0, 1), TokenPayment("EGLD", 0, 2)])
    assert event.identifier == "MultiESDTNFTTransfer"
    assert event.topics == (b"USDC-c76f1f", b"", b"\x01", b"EGLD-000000", b"", b"\x02", BOB)
    assert builtin.event(ALICE, BOB, [TokenPayment("X-000000", 0, 1)], multi=True).identifier == event.identifier


def test_a_full_target_receives_nothing() -> None:
    """A transfer that cannot be credited leaves the target as it was."""
    target = Ledger(max_accounts=0)
    with pytest.raises(LedgerError):
        builtin.receive(target, BOB, [TokenPayment("USDC-c76f1f", 0, 1)])
    assert target.accounts == {}
