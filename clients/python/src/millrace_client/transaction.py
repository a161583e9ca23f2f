"""Transactions as the services take them: the JSON object, the bytes that are signed, and the hashes.

The hash is BLAKE2b-256 over the canonical protobuf form. A relayed transaction has three: of the form without the
relayer's signature, with that field empty (as the JavaScript SDK has it), and with the signature, which the chain uses.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from millrace_client import address
from millrace_client.errors import TransactionError

HASH_SIGNED, GUARDED = 1, 2
"""Option bits: signatures are over the Keccak-256 of the signing bytes; a guardian signs, too."""
_EMPTY_RELAYER_SIGNATURE = b"\x8a\x01\x00"


class Transaction(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A transaction as in JSON: addresses as bech32, `value` as digits, `data` in base64, signatures in hex."""

    nonce: int | None = None
    """None: not known yet."""
    value: str
    receiver: str
    sender: str
    gas_price: int
    gas_limit: int
    data: str = ""
    chain_id: str = msgspec.field(name="chainID")
    version: int
    options: int = 0
    sender_username: str = ""
    receiver_username: str = ""
    guardian: str = ""
    guardian_signature: str = ""
    relayer: str = ""
    relayer_signature: str = ""
    signature: str = ""

    @property
    def payload(self) -> bytes:
        """The bytes of `data`."""
        return from_base64("data", self.data)

    def signing_message(self) -> bytes:
        """What sender, guardian and relayer sign. Raises `TransactionError` for a transaction that nobody can sign."""
        message = _signing_json(self)
        if self.options & HASH_SIGNED and self.version >= 2:
            from millrace_client.keccak import keccak256

            return keccak256(message)
        return message

    def client_hash(self) -> str:
        """The hash without the relayer's signature, known before anybody co-signs; hex."""
        return blake2b(_proto(self, b""), digest_size=32).hexdigest()

    def sdk_hash(self) -> str:
        """The hash with that signature empty; of a transaction without a relayer the same as `client_hash`."""
        ending = _EMPTY_RELAYER_SIGNATURE if self.relayer else b""
        return blake2b(_proto(self, b"") + ending, digest_size=32).hexdigest()

    def chain_hash(self) -> str:
        """The hash with all signatures that are there."""
        return blake2b(_proto(self, bytes.fromhex(self.relayer_signature)), digest_size=32).hexdigest()


def replaced(tx: Transaction, **fields: object) -> Transaction:
    """The same transaction with other fields."""
    return msgspec.structs.replace(tx, **fields)


def _signing_json(tx: Transaction) -> bytes:
    """Canonical JSON: a fixed order, no white space, no signatures, empty fields left out."""
    _check(tx)
    head: dict[str, object] = {"nonce": tx.nonce, "value": tx.value, "receiver": tx.receiver, "sender": tx.sender}
    names = {"senderUsername": tx.sender_username, "receiverUsername": tx.receiver_username}
    gas = {"gasPrice": tx.gas_price, "gasLimit": tx.gas_limit}
    tail = {"options": tx.options, "guardian": tx.guardian, "relayer": tx.relayer}
    body = head | _present(names) | gas | _present({"data": tx.data})
    body |= {"chainID": tx.chain_id, "version": tx.version} | _present(tail)
    return msgspec.json.encode(body)


def _present(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value}


def _check(tx: Transaction) -> None:
    if tx.nonce is None:
        raise TransactionError("nonce: it has none yet; `Relayer.prepare` finds it")
    for field, number in (("nonce", tx.nonce), ("gasPrice", tx.gas_price), ("gasLimit", tx.gas_limit)):
        if not 0 <= number < 1 << 64:
            raise TransactionError(f"{field}: an integer from 0 to 2^64 - 1")
    if not (tx.value.isascii() and tx.value.isdigit()) or str(int(tx.value)) != tx.value:
        raise TransactionError("value: digits without a leading zero, in atomic units")
    for text in (tx.receiver, tx.sender, tx.guardian, tx.relayer):
        if text:
            address.decode(text)
    if not tx.receiver or not tx.sender or not tx.chain_id:
        raise TransactionError("receiver, sender and chainID must be there")
    from_base64("data", tx.data)


def from_base64(field: str, text: str) -> bytes:
    """The bytes of a field in base64. Raises `TransactionError` for another form than the canonical one."""
    try:
        raw = binascii.a2b_base64(text, strict_mode=True) if text else b""
    except (binascii.Error, ValueError):
        raise TransactionError(f"{field}: standard base64 with padding") from None
    if binascii.b2a_base64(raw, newline=False).decode() != text:
        raise TransactionError(f"{field}: standard base64 with padding")
    return raw


def _proto(tx: Transaction, relayer_signature: bytes) -> bytes:
    """The canonical protobuf form: fields in their order, empty ones left out, the value always there."""
    _check(tx)
    value = int(tx.value)
    fields: list[int | bytes] = [
        tx.nonce or 0,
        b"\0" + (value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")),
        address.decode(tx.receiver),
        from_base64("receiverUsername", tx.receiver_username),
        address.decode(tx.sender),
        from_base64("senderUsername", tx.sender_username),
        tx.gas_price,
        tx.gas_limit,
        from_base64("data", tx.data),
        tx.chain_id.encode(),
        tx.version,
        _signature(tx.signature),
        tx.options,
        address.decode(tx.guardian) if tx.guardian else b"",
        _signature(tx.guardian_signature),
        address.decode(tx.relayer) if tx.relayer else b"",
        relayer_signature,
    ]
    return b"".join(field(number, content) for number, content in enumerate(fields, 1))


def _signature(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise TransactionError("signatures are hex digits") from None


def varint(number: int) -> bytes:
    """A protobuf varint."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, content: int | bytes) -> bytes:
    """A protobuf field, nothing at all for 0 and for no bytes."""
    if not content:
        return b""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content
