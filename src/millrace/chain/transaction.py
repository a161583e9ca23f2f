"""Transactions: signing bytes, protobuf form, hashes, and the JSON object of the public interfaces.

Sender, guardian and relayer all sign the same bytes, in which the three addresses stand but no signature. The hash
is BLAKE2b-256 over the canonical protobuf form with every signature; for a relayed transaction that is the chain
hash, and the same without the relayer's signature is the client hash, which its sender can compute. The official
JavaScript SDK computes a third one before the relayer has signed: it writes the missing signature as an empty field.
"""

from __future__ import annotations

import binascii
import re
from hashlib import blake2b

import msgspec
from Crypto.Hash import keccak
from google.protobuf.message import DecodeError

from millrace.chain import address, bigint
from millrace.chain.keys import SIGNATURE_SIZE
from millrace.chain.proto import outport_pb2

HASH_SIGNED = 1
"""Option bit: signatures are over the Keccak-256 of the signing bytes."""
GUARDED = 2
"""Option bit: a guardian must sign too."""

MAX_DATA = 1_048_576
MAX_USERNAME = 32
MAX_VALUE_DIGITS = 80
MAX_VALUE = 10**MAX_VALUE_DIGITS - 1
MAX_U64, MAX_U32 = 2**64 - 1, 2**32 - 1

EMPTY_RELAYER_SIGNATURE = b"\x8a\x01\x00"
"""The relayer's signature, field 17 and the last of the protobuf form, written without a byte in it."""

_VALUE = re.compile(r"0|[1-9][0-9]{0,79}", re.ASCII)
# Nothing that a JSON encoder would escape: the signing bytes hold the text as it is.
_CHAIN_ID = re.compile(r"[A-Za-z0-9 ._-]{1,64}", re.ASCII)


class TransactionError(ValueError):
    """A transaction has an impossible field; `field` is its JSON name."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")
        self.field = field


class Transaction(msgspec.Struct, frozen=True, gc=False):
    """A transaction in raw values: addresses, data and signatures are bytes, the value is in atomic units."""

    nonce: int
    value: int
    receiver: bytes
    sender: bytes
    gas_price: int
    gas_limit: int
    chain_id: str
    data: bytes = b""
    version: int = 2
    options: int = 0
    sender_username: bytes = b""
    receiver_username: bytes = b""
    guardian: bytes = b""
    relayer: bytes = b""
    signature: bytes = b""
    guardian_signature: bytes = b""
    relayer_signature: bytes = b""

    @property
    def is_guarded(self) -> bool:
        """Whether the option bit asks for a guardian's signature."""
        return bool(self.options & GUARDED)

    @property
    def is_hash_signed(self) -> bool:
        """Whether signatures are over the Keccak-256 of the signing bytes (version 2 on)."""
        return self.version >= 2 and bool(self.options & HASH_SIGNED)

    @property
    def is_relayed(self) -> bool:
        """Whether another account pays the fee: as soon as a relayer or its signature is there."""
        return bool(self.relayer or self.relayer_signature)


def signing_bytes(tx: Transaction) -> bytes:
    """The canonical JSON that is signed: fixed key order, no white space, no signatures, empty fields left out."""
    parts = [
        f'{{"nonce":{tx.nonce},"value":"{tx.value}","receiver":"{address.encode(tx.receiver)}",'
        f'"sender":"{address.encode(tx.sender)}"'
    ]
    if tx.sender_username:
        parts.append(f',"senderUsername":"{_base64(tx.sender_username)}"')
    if tx.receiver_username:
        parts.append(f',"receiverUsername":"{_base64(tx.receiver_username)}"')
    parts.append(f',"gasPrice":{tx.gas_price},"gasLimit":{tx.gas_limit}')
    if tx.data:
        parts.append(f',"data":"{_base64(tx.data)}"')
    parts.append(f',"chainID":"{tx.chain_id}","version":{tx.version}')
    if tx.options:
        parts.append(f',"options":{tx.options}')
    if tx.guardian:
        parts.append(f',"guardian":"{address.encode(tx.guardian)}"')
    if tx.relayer:
        parts.append(f',"relayer":"{address.encode(tx.relayer)}"')
    parts.append("}")
    return "".join(parts).encode()


def signing_message(tx: Transaction) -> bytes:
    """The bytes that every signer signs: the signing bytes, or their Keccak-256 when the option says so."""
    message = signing_bytes(tx)
    if tx.is_hash_signed:
        return keccak.new(digest_bits=256, data=message).digest()
    return message


def to_proto(tx: Transaction) -> bytes:
    """The canonical protobuf form: fields in order, empty ones left out, the value always there.

    Raises `ValueError` for a number that its field cannot hold, which no checked transaction has.
    """
    message = outport_pb2.Transaction(
        nonce=tx.nonce,
        value=bigint.encode(tx.value),
        receiver=tx.receiver,
        sender=tx.sender,
        gasPrice=tx.gas_price,
        gasLimit=tx.gas_limit,
        chainID=tx.chain_id.encode(),
        version=tx.version,
        signature=tx.signature,
        relayer=tx.relayer,
    )
    # Most transactions have none of these, and to set nothing takes as long as to set something.
    if tx.options:
        message.options = tx.options
    if tx.relayer_signature:
        message.relayerSignature = tx.relayer_signature
    if tx.data:
        message.data = tx.data
    if tx.receiver_username:
        message.rcvUserName = tx.receiver_username
    if tx.sender_username:
        message.sndUserName = tx.sender_username
    if tx.guardian:
        message.guardian = tx.guardian
    if tx.guardian_signature:
        message.guardianSignature = tx.guardian_signature
    return message.SerializeToString()


def chain_hash(tx: Transaction) -> bytes:
    """The 32-byte hash under which the chain knows the transaction: all signatures included."""
    return blake2b(to_proto(tx), digest_size=32).digest()


def client_hash(tx: Transaction) -> bytes:
    """The 32-byte hash without the relayer's signature: what a client computes before a relayer co-signs."""
    if tx.relayer_signature:
        tx = msgspec.structs.replace(tx, relayer_signature=b"")
    return chain_hash(tx)


def early_hashes(tx: Transaction) -> tuple[bytes, bytes]:
    """The hashes a client may know before a relayer has signed: the client hash and the SDK hash.

    The latter is empty unless the transaction names a relayer: of others every SDK computes the chain hash.
    """
    if tx.relayer_signature:
        tx = msgspec.structs.replace(tx, relayer_signature=b"")
    return early_hashes_of(to_proto(tx), is_relayed=bool(tx.relayer))


def early_hashes_of(proto: bytes, *, is_relayed: bool) -> tuple[bytes, bytes]:
    """The same of the protobuf form without a relayer's signature."""
    hasher = blake2b(proto, digest_size=32)
    client = hasher.digest()
    if not is_relayed:
        return client, b""
    hasher.update(EMPTY_RELAYER_SIGNATURE)
    return client, hasher.digest()


def from_proto(data: bytes) -> Transaction:
    """The transaction in a protobuf message.

    Raises `TransactionError` for bytes that are no transaction, hold an impossible field or are not in the
    canonical form. Nodes hash the bytes as received and bear up to a tenth of padding; here one transaction has
    one form, and so one hash.
    """
    try:
        message = outport_pb2.Transaction.FromString(data)
    except DecodeError:
        raise TransactionError("transaction", "not a protobuf transaction") from None
    value = _decode_value(message.value)
    tx = Transaction(  # in order: names cost as much as the values
        message.nonce,
        value,
        message.receiver,
        message.sender,
        message.gasPrice,
        message.gasLimit,
        message.chainID.decode("latin-1"),  # `_check_numbers` refuses whatever is not ASCII
        message.data,
        message.version,
        message.options,
        message.sndUserName,
        message.rcvUserName,
        message.guardian,
        message.relayer,
        message.signature,
        message.guardianSignature,
        message.relayerSignature,
    )
    _check_numbers(tx)
    _check_sizes(tx)
    message.DiscardUnknownFields()
    if message.SerializeToString() != data or bigint.encode(value) != message.value:
        raise TransactionError("transaction", "not in the canonical protobuf form")
    return tx


class TransactionJson(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The JSON object of the public interfaces: texts as they come, not checked beyond their type."""

    nonce: int
    value: str
    receiver: str
    sender: str
    gas_price: int
    gas_limit: int
    version: int
    chain_id: str = msgspec.field(name="chainID")
    sender_username: str = ""
    receiver_username: str = ""
    data: str = ""
    options: int = 0
    guardian: str = ""
    guardian_signature: str = ""
    relayer: str = ""
    relayer_signature: str = ""
    signature: str = ""


def from_json(obj: TransactionJson) -> Transaction:
    """The transaction in a JSON object, with every text checked and turned into its raw value.

    Raises `TransactionError`, which names the first impossible field. A missing signature is no error here:
    whoever verifies will miss it.
    """
    if not _VALUE.fullmatch(obj.value):
        raise TransactionError("value", f"smallest units, as 1 to {MAX_VALUE_DIGITS} digits without leading zeros")
    tx = Transaction(  # in order: names cost as much as the values
        obj.nonce,
        int(obj.value),
        _address("receiver", obj.receiver),
        _address("sender", obj.sender),
        obj.gas_price,
        obj.gas_limit,
        obj.chain_id,
        _decode_base64("data", obj.data, MAX_DATA) if obj.data else b"",
        obj.version,
        obj.options,
        _username("senderUsername", obj.sender_username) if obj.sender_username else b"",
        _username("receiverUsername", obj.receiver_username) if obj.receiver_username else b"",
        _address("guardian", obj.guardian) if obj.guardian else b"",
        _address("relayer", obj.relayer) if obj.relayer else b"",
        _signature("signature", obj.signature) if obj.signature else b"",
        _signature("guardianSignature", obj.guardian_signature) if obj.guardian_signature else b"",
        _signature("relayerSignature", obj.relayer_signature) if obj.relayer_signature else b"",
    )
    _check_numbers(tx)  # of bytes every text was checked above
    return tx


def to_json(tx: Transaction) -> TransactionJson:
    """The JSON object of a transaction; empty fields are left out when it is encoded."""
    return TransactionJson(  # in order: names cost as much as the values
        tx.nonce,
        str(tx.value),
        address.encode(tx.receiver),
        address.encode(tx.sender),
        tx.gas_price,
        tx.gas_limit,
        tx.version,
        tx.chain_id,
        _base64(tx.sender_username) if tx.sender_username else "",
        _base64(tx.receiver_username) if tx.receiver_username else "",
        _base64(tx.data) if tx.data else "",
        tx.options,
        address.encode(tx.guardian) if tx.guardian else "",
        tx.guardian_signature.hex(),
        address.encode(tx.relayer) if tx.relayer else "",
        tx.relayer_signature.hex(),
        tx.signature.hex(),
    )


def _address(field: str, text: str) -> bytes:
    try:
        return address.decode(text)
    except address.AddressError as error:
        raise TransactionError(field, str(error)) from None


def _check_numbers(tx: Transaction) -> None:
    """What must hold of every transaction's numbers and chain id, wherever it comes from. Raises `TransactionError`.

    Every transaction comes by here two or three times: one plain condition a line costs a quarter of calls or loops.
    """
    # A truth value is an int to Python, and a float compares like one.
    if type(tx.nonce) is not int or not 0 <= tx.nonce <= MAX_U64:
        raise _beyond("nonce", MAX_U64)
    if type(tx.value) is not int or not 0 <= tx.value <= MAX_VALUE:
        raise _beyond("value", MAX_VALUE)
    if type(tx.gas_price) is not int or not 0 <= tx.gas_price <= MAX_U64:
        raise _beyond("gasPrice", MAX_U64)
    if type(tx.gas_limit) is not int or not 0 <= tx.gas_limit <= MAX_U64:
        raise _beyond("gasLimit", MAX_U64)
    if not _CHAIN_ID.fullmatch(tx.chain_id):
        raise TransactionError("chainID", "1 to 64 letters, digits, spaces, dots, underscores or hyphens")
    if type(tx.version) is not int or not 0 <= tx.version <= MAX_U32:
        raise _beyond("version", MAX_U32)
    if type(tx.options) is not int or not 0 <= tx.options <= MAX_U32:
        raise _beyond("options", MAX_U32)
    if tx.version < 1 or (tx.version == 1 and tx.options):
        raise TransactionError("version", "invalid transaction version: at least 1, and 2 with options")


def _check_sizes(tx: Transaction) -> None:
    """What must hold of every transaction's addresses, names and signatures. Raises `TransactionError`."""
    if len(tx.receiver) != address.SIZE:
        raise _missized("receiver", tx.receiver, address.SIZE)
    if len(tx.sender) != address.SIZE:
        raise _missized("sender", tx.sender, address.SIZE)
    if len(tx.sender_username) > MAX_USERNAME:
        raise TransactionError("senderUsername", f"at most {MAX_USERNAME} bytes")
    if len(tx.receiver_username) > MAX_USERNAME:
        raise TransactionError("receiverUsername", f"at most {MAX_USERNAME} bytes")
    if tx.guardian and len(tx.guardian) != address.SIZE:
        raise _missized("guardian", tx.guardian, address.SIZE)
    if tx.relayer and len(tx.relayer) != address.SIZE:
        raise _missized("relayer", tx.relayer, address.SIZE)
    if tx.signature and len(tx.signature) != SIGNATURE_SIZE:
        raise _missized("signature", tx.signature, SIGNATURE_SIZE)
    if tx.guardian_signature and len(tx.guardian_signature) != SIGNATURE_SIZE:
        raise _missized("guardianSignature", tx.guardian_signature, SIGNATURE_SIZE)
    if tx.relayer_signature and len(tx.relayer_signature) != SIGNATURE_SIZE:
        raise _missized("relayerSignature", tx.relayer_signature, SIGNATURE_SIZE)


def _beyond(field: str, highest: int) -> TransactionError:
    return TransactionError(field, f"an integer from 0 to {highest}")


def _missized(field: str, raw: bytes, size: int) -> TransactionError:
    return TransactionError(field, f"{size} bytes, not {len(raw)}")


def _decode_value(data: bytes) -> int:
    try:
        value = bigint.decode(data)
    except ValueError as error:
        raise TransactionError("value", str(error)) from None
    if value is None:
        raise TransactionError("value", "absent")
    return value


def _decode_base64(field: str, text: str, longest: int) -> bytes:
    """Standard base64 with padding; a lenient form would mean other signing bytes than the text suggests."""
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        raise TransactionError(field, "standard base64 with padding") from None
    if _base64(data) != text:
        raise TransactionError(field, "standard base64 with padding")
    if len(data) > longest:
        raise TransactionError(field, f"at most {longest} bytes")
    return data


def _username(field: str, text: str) -> bytes:
    return _decode_base64(field, text, MAX_USERNAME)


def _signature(field: str, text: str) -> bytes:
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) != SIGNATURE_SIZE or raw.hex() != text:  # other texts have the same bytes: white space, capitals
        raise TransactionError(field, "128 lower-case hex digits")
    return raw


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()
