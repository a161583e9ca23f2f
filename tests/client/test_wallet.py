"""Wallets of every form, against files and keys of the official SDK."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import multiversx_sdk as sdk
import pytest

from millrace_client import Transaction, Wallet, WalletError, mnemonic, sign

FILES = Path(sdk.__file__).parent / "testutils" / "testwallets"
ALICE = "erd1qyu5wthldzr8wx5c9ucg8kjagg0jfs53s8nr3zpz3hypefsdd8ssycr6th"
WORDS = "moral volcano peasant pass circle pen over picture flat shop clap goat " + (
    "never lyrics gather prepare woman film husband gravity behind test tiger improve"
)


def test_pem_files() -> None:
    """Official PEM files are read, of several keys each by its place, and ours are read by the SDK."""
    assert Wallet.from_pem(FILES / "alice.pem").address == ALICE
    for index in (0, 1):
        theirs = sdk.Account.new_from_pem(FILES / "multipleUserKeys.pem", index)
        assert Wallet.from_pem(FILES / "multipleUserKeys.pem", index).address == theirs.address.to_bech32()
    wallet = Wallet.generate()
    assert Wallet.from_pem_text(wallet.to_pem()).address == wallet.address
    assert sdk.UserPEM.from_text(wallet.to_pem()).public_key.buffer == wallet.public


def test_keystores(tmp_path: Path) -> None:
    """Official keystores are read: with a key, with a mnemonic, without a kind; ours are read by the SDK."""
    assert Wallet.from_keystore(FILES / "alice.json", "password").address == ALICE
    assert Wallet.from_keystore(FILES / "withoutKind.json", "password").address.startswith("erd1")
    for index in (0, 2):
        key = sdk.UserWallet.load_secret_key(FILES / "withDummyMnemonic.json", "password", index)
        ours = Wallet.from_keystore(FILES / "withDummyMnemonic.json", "password", index)
        assert ours.public == key.generate_public_key().buffer
    wallet = Wallet.generate()
    stored = wallet.to_keystore("a word of mine")
    assert wallet.address in stored and Wallet.from_keystore_text(stored, "a word of mine").public == wallet.public
    (tmp_path / "ours.json").write_text(stored)
    assert sdk.Account.new_from_keystore(tmp_path / "ours.json", "a word of mine").public_key.buffer == wallet.public


def test_mnemonics() -> None:
    """Keys of a mnemonic are the SDK's for every index, in whatever spacing and case; a new one is valid there."""
    for index in (0, 1, 7):
        theirs = sdk.Account.new_from_mnemonic(WORDS, index)
        assert Wallet.from_mnemonic(WORDS, index).address == theirs.address.to_bech32()
    assert Wallet.from_mnemonic("  " + WORDS.upper().replace(" ", "\n")).address == Wallet.from_mnemonic(WORDS).address
    assert len({mnemonic.generate() for _ in range(3)}) == 3
    assert sdk.Mnemonic.is_text_valid(mnemonic.generate())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (WORDS.replace("moral", "morral"), "word 1"),
        (WORDS.replace("moral volcano", "volcano moral"), "checksum"),
        (" ".join(WORDS.split()[:23]), "not 23"),
    ],
)
def test_wrong_mnemonics(words: str, said: str) -> None:
    """A typing error is found before it becomes another wallet, and the text holds no word of it."""
    with pytest.raises(WalletError, match=said) as error:
        Wallet.from_mnemonic(words)
    assert "peasant" not in str(error.value)


def test_wrong_files(tmp_path: Path) -> None:
    """Wrong passwords, other files and greedy keystores are refused with what is wrong."""
    with pytest.raises(WalletError, match="password is wrong"):
        Wallet.from_keystore(FILES / "alice.json", "passw0rd")
    with pytest.raises(WalletError, match="not a keystore"):
        Wallet.from_keystore(FILES / "alice.pem", "password")
    with pytest.raises(WalletError, match="0 keys"):
        Wallet.from_pem(FILES / "alice.json")
    with pytest.raises(WalletError, match="cannot be read"):
        Wallet.from_pem(tmp_path / "none.pem")
    greedy = json.loads((FILES / "alice.json").read_text())
    greedy["crypto"]["kdfparams"]["n"] = 1 << 24
    with pytest.raises(WalletError, match="more memory"):
        Wallet.from_keystore_text(json.dumps(greedy), "password")
    swapped = (FILES / "alice.pem").read_text().replace(ALICE, ALICE[:-1] + "g")
    with pytest.raises(WalletError, match="do not belong together"):
        Wallet.from_pem_text(swapped)


def test_a_secret_is_not_shown() -> None:
    """Neither the text of a wallet nor a pickle of it holds the key."""
    wallet = Wallet(b"\7" * 32)
    assert "0707" not in repr(wallet)
    with pytest.raises(TypeError):
        pickle.dumps(wallet)


class _Later:
    """A signer that is asked over a wire."""

    def __init__(self, wallet: Wallet) -> None:
        self._wallet = wallet
        self.address = wallet.address

    async def sign(self, data: bytes) -> bytes:
        return self._wallet.sign(data)


async def test_whatever_signs() -> None:
    """An account of the official SDK and a signer that answers later give the signature that the key gives."""
    account = sdk.Account.new_from_pem(FILES / "alice.pem")
    tx = Transaction(
        nonce=1, value="0", sender=ALICE, receiver=ALICE, gas_price=1, gas_limit=1, chain_id="D", version=2
    )
    wallet = Wallet.from_pem(FILES / "alice.pem")
    signed = await sign(tx, wallet)
    assert (await sign(tx, account)).signature == signed.signature
    assert (await sign(tx, _Later(wallet))).signature == signed.signature
    assert sdk.UserVerifier.from_address(account.address).verify(tx.signing_message(), bytes.fromhex(signed.signature))
