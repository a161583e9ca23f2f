"""Wallets that sign, and what is written into the data of their transactions."""

from __future__ import annotations

import msgspec
from Crypto.Hash import keccak
from tests.foreign.node.network import CHAIN

from millrace.chain.fees import move_gas
from millrace.chain.keys import KeyPair
from millrace.chain.transaction import Transaction, signing_message

EGLD = 10**18
WASM_VM = b"\x05\x00"


class Wallet:
    """A key in one shard, and the nonce of its next transaction."""

    def __init__(self, shard: int) -> None:
        self.key = KeyPair.generate()
        while CHAIN.shard_of(self.key.public) != shard:
            self.key = KeyPair.generate()
        self.shard, self.nonce = shard, 0

    @property
    def public(self) -> bytes:
        """The address."""
        return self.key.public

    def sign(self, receiver: bytes, value: int, data: bytes, gas: int, relayer: bytes = b"") -> Transaction:
        """The next transaction; `gas` is what it may use beyond being moved."""
        tx = Transaction(
            nonce=self.nonce, value=value, receiver=receiver, sender=self.public, gas_price=CHAIN.gas.min_gas_price,
            gas_limit=0, chain_id=CHAIN.chain_id, data=data, relayer=relayer,
        )  # fmt: skip
        tx = msgspec.structs.replace(tx, gas_limit=move_gas(tx, CHAIN.gas) + gas)
        return msgspec.structs.replace(tx, signature=self.key.sign(signing_message(tx)))

    def inner(self, receiver: bytes, data: bytes) -> bytes:
        """The next transaction as another account sends it, by the second version of relayed transactions."""
        tx = msgspec.structs.replace(self.sign(receiver, 0, data, 0), gas_limit=0)
        return call("relayedTxV2", receiver, self.nonce, data, self.key.sign(signing_message(tx)))

    def contract(self) -> bytes:
        """The address of the contract that the next transaction would deploy."""
        digest = keccak.new(digest_bits=256, data=self.public + self.nonce.to_bytes(8, "little")).digest()
        return bytes(8) + WASM_VM + digest[10:30] + self.public[30:]


def call(function: str, *arguments: bytes | str | int) -> bytes:
    """A call as it is written in data."""
    return b"@".join([function.encode(), *(_hex(argument) for argument in arguments)])


def _hex(argument: bytes | str | int) -> bytes:
    if isinstance(argument, int):
        argument = argument.to_bytes((argument.bit_length() + 7) // 8, "big")
    return (argument.encode() if isinstance(argument, str) else argument).hex().encode()
