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
ALPHABET = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
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


@pytest.mark.parametrize("position", range(4, 62))
def test_one_wrong_character_is_noticed(position: int) -> None:
    """The checksum notices every single replaced character, at every place."""
    for character in set(ALPHABET) - {ALICE[position]}:
        with pytest.raises(AddressError):
            decode(ALICE[:position] + character + ALICE[position + 1 :])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "erd1",
        ALICE.upper(),
        ALICE[:-1],
        ALICE + "q",
        "btc" + ALICE[3:],
        ALICE.replace("1", "i", 1),
        " " + ALICE,
        ALICE[:-1] + "é",
        ALICE[:-1] + "٣",
        ALICE[:-1] + "1",
        ALICE[:-1] + "_",
        ALICE[:-2] + "\n" + ALICE[-1],
        ALICE[:-1] + "?",
        ALICE[:10] + ALICE[10].upper() + ALICE[11:],
        ALICE[:-1] + "\ud800",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    """Upper case, another prefix or length, white space and characters outside the alphabet are no address."""
    with pytest.raises(AddressError):
        decode(text)


def slow_checksum(hrp: str, groups: list[int]) -> int:
    """The checksum as BIP-173 spells it out, over the expanded prefix and groups of five bits."""
    state = 1
    for value in [*(ord(c) >> 5 for c in hrp), 0, *(ord(c) & 31 for c in hrp), *groups]:
        top = state >> 25
        state = (state & 0x1FFFFFF) << 5 ^ value
        for bit, generator in enumerate((0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)):
            state ^= generator if top >> bit & 1 else 0
    return state


@given(st.binary(min_size=32, max_size=32), st.sampled_from(["erd", "vibe", "x", "test1hrp"]))
def test_the_checksum_is_the_standards(pubkey: bytes, hrp: str) -> None:
    """Under any prefix our texts satisfy the standard's own checksum, and read back."""
    text = encode(pubkey, hrp)
    assert slow_checksum(hrp, [ALPHABET.index(c) for c in text[len(hrp) + 1 :]]) == 1
    assert decode(text, hrp) == pubkey


@given(st.binary(min_size=32, max_size=32))
def test_the_newer_checksum_is_refused(pubkey: bytes) -> None:
    """A text whose checksum is of the later variant of bech32 (bech32m) is no address."""
    text = encode(pubkey)
    groups = [ALPHABET.index(c) for c in text[4:]]
    for place in range(6):
        groups[-1 - place] ^= (1 ^ 0x2BC830A3) >> 5 * place & 31
    assert slow_checksum("erd", groups) == 0x2BC830A3
    with pytest.raises(AddressError, match="checksum"):
        decode("erd1" + "".join(ALPHABET[group] for group in groups))


@pytest.mark.parametrize("padding", range(1, 16))
def test_padding_bits_are_zero(padding: int) -> None:
    """A text with a right checksum but padding bits that are not zero would be a second form: refused."""
    groups = [ALPHABET.index(c) for c in ALICE[4:-6]]
    groups[-1] |= padding
    state = slow_checksum("erd", [*groups, 0, 0, 0, 0, 0, 0]) ^ 1
    groups += [state >> 5 * place & 31 for place in range(5, -1, -1)]
    assert slow_checksum("erd", groups) == 1
    with pytest.raises(AddressError, match="padding"):
        decode("erd1" + "".join(ALPHABET[group] for group in groups))


def test_caches_are_bounded() -> None:
    """Whoever sends ever new addresses fills a cache of a fixed size."""
    assert encode.cache_info().maxsize == decode.cache_info().maxsize == 65_536


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
