"""Addresses: bech32 both ways, contract addresses."""

from __future__ import annotations

import json
from pathlib import Path

import multiversx_sdk as sdk
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.chain.address import AddressError, contract_address, decode, encode, is_contract

WALLETS = json.loads((Path(__file__).parents[1] / "vectors" / "transactions.json").read_text())["wallets"]
ALICE = WALLETS["alice"]["address"]


@pytest.mark.parametrize("name", WALLETS)
def test_published_wallets(name: str) -> None:
    """The public keys of the well-known test wallets have the published addresses."""
    wallet = WALLETS[name]
    assert encode(bytes.fromhex(wallet["publicKeyHex"])) == wallet["address"]
    assert decode(wallet["address"]).hex() == wallet["publicKeyHex"]


@given(st.binary(min_size=32, max_size=32))
def test_forms_are_inverse(pubkey: bytes) -> None:
    """Any 32 bytes survive the way to text and back."""
    assert decode(encode(pubkey)) == pubkey


@given(st.text(max_size=70))
def test_any_text_is_an_address_or_an_error(text: str) -> None:
    """Arbitrary text either is the one bech32 form of its bytes or raises AddressError."""
    try:
        pubkey = decode(text)
    except AddressError:
        return
    assert encode(pubkey) == text


@given(st.integers(4, 61), st.sampled_from("qpzry9x8gf2tvdw0s3jn54khce6mua7l"))
def test_one_wrong_character_is_noticed(position: int, character: str) -> None:
    """The checksum notices every single replaced character."""
    text = ALICE[:position] + character + ALICE[position + 1 :]
    if text != ALICE:
        with pytest.raises(AddressError):
            decode(text)


@pytest.mark.parametrize(
    "text",
    ["", "erd1", ALICE.upper(), ALICE[:-1], ALICE + "q", "btc" + ALICE[3:], ALICE.replace("1", "i", 1), " " + ALICE],
)
def test_other_texts_are_refused(text: str) -> None:
    """Upper case, another prefix, another length and white space are no address."""
    with pytest.raises(AddressError):
        decode(text)


def test_the_newer_checksum_is_refused() -> None:
    """A text whose checksum is of the later variant of bech32 is no address."""
    with pytest.raises(AddressError, match="checksum"):
        decode(ALICE[:-6] + "qqqqqq")


@pytest.mark.parametrize("size", [0, 31, 33])
def test_other_lengths_are_refused(size: int) -> None:
    """Only 32 bytes have an address."""
    with pytest.raises(AddressError):
        encode(bytes(size))


@pytest.mark.parametrize("nonce", [0, 1, 255, 256, 2**40])
def test_contract_address(nonce: int) -> None:
    """A contract's address is the reference SDK's and keeps the deployer's last two bytes."""
    deployer = decode(ALICE)
    expected = sdk.AddressComputer().compute_contract_address(sdk.Address.new_from_bech32(ALICE), nonce)
    assert encode(contract_address(deployer, nonce)) == expected.to_bech32()
    assert is_contract(contract_address(deployer, nonce))
    assert not is_contract(deployer)
