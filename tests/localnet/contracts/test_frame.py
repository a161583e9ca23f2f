"""A call's arguments and effects."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.chain.abi import top_bool, top_uint
from millrace.chain.token import NATIVE
from millrace.localnet.contracts.execution import ContractCall
from millrace.localnet.contracts.frame import Arguments, ContractError, Frame
from millrace.localnet.market.market import WRAPPED


@given(number=st.integers(0, 2**256 - 1), flag=st.booleans())
def test_arguments_come_back_as_they_were_encoded(number: int, flag: bool) -> None:
    """Numbers, truth values and identifiers survive the top encoding."""
    args = Arguments([top_uint(number), top_bool(flag), b"USDC-c76f1f", b"EGLD"])
    assert (args.number(), args.boolean(), args.token(), args.token()) == (number, flag, "USDC-c76f1f", "EGLD")
    args.end()


@pytest.mark.parametrize(
    ("method", "data"),
    [
        ("number", b"\x01" * 33),
        ("boolean", b"\x02"),
        ("token", b""),
        ("token", b"usdc-c76f1f"),
        ("token", b"\xff\xfe"),
        ("end", b"more"),
    ],
)
def test_arguments_that_are_none_are_contract_errors(method: str, data: bytes) -> None:
    """Too long, of the wrong kind, not text, or too many."""
    with pytest.raises(ContractError):
        getattr(Arguments([data]), method)()


def test_missing_arguments_are_a_contract_error() -> None:
    """Taking more than there is says so."""
    with pytest.raises(ContractError, match="wrong number of arguments"):
        Arguments([]).take()


def frame(world: Any) -> Frame:
    return Frame(world.state, ContractCall(world.alice, world.at.wrapper, 0, (), "", (), 10**6))


def test_a_payment_of_several_tokens_is_one_transfer_event(world: Any) -> None:
    """EGLD and tokens paid together give one event each kind; zeros are left out; every token is a transfer."""
    run = frame(world)
    world.ledger.credit(world.at.wrapper, WRAPPED, 10)
    world.ledger.credit(world.at.wrapper, "USDC-c76f1f", 10)
    assets = ((NATIVE, 3), (WRAPPED, 4), ("USDC-c76f1f", 5), ("UTK-2f80e9", 0))
    before = [world.held(token) for token, _ in assets]
    run.pay(world.at.wrapper, world.alice, *assets)
    assert [event.identifier for event in run.events] == ["transferValueOnly", "MultiESDTNFTTransfer"]
    assert run.events[0].topics == (b"\x03", world.alice)
    assert [world.held(token) for token, _ in assets] == [b + a for b, (_, a) in zip(before, assets, strict=True)]
    assert [(t.token, t.amount, t.delivered) for t in run.transfers] == [
        (NATIVE, 3, True),
        (WRAPPED, 4, True),
        ("USDC-c76f1f", 5, True),
    ]


def test_payments_between_contracts_are_no_transfers_of_the_chain(world: Any) -> None:
    """What moves between contracts is settled here and needs nothing from the chain."""
    run = frame(world)
    run.pay(world.at.wrapper, world.at.aggregator, (NATIVE, 3))
    assert run.transfers == []
    assert world.held(NATIVE, world.at.aggregator) == 3


def test_minting_and_burning_are_logged_and_zero_is_nothing(world: Any) -> None:
    """`ESDTLocalMint` and `ESDTLocalBurn`: token, nonce, amount; the contract is the address."""
    run = frame(world)
    run.mint(world.at.wrapper, WRAPPED, 256)
    run.burn(world.at.wrapper, WRAPPED, 255)
    run.mint(world.at.wrapper, WRAPPED, 0)
    assert [(event.identifier, event.topics[2]) for event in run.events] == [
        ("ESDTLocalMint", b"\x01\x00"),
        ("ESDTLocalBurn", b"\xff"),
    ]
    assert world.held(WRAPPED, world.at.wrapper) == 1
