"""What a wallet asks for over HTTP before and after it signs: relayers, a transaction to sign, what became of it."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from millrace.chain.transaction import TransactionJson
from millrace.relayer.protocol import messages, reasons, strict_json
from millrace.relayer.protocol.messages import FailedItem, ResultItem
from millrace.relayer.protocol.reasons import Refused

# ---- GET /v1/relayers


class RelayerItem(msgspec.Struct, frozen=True, rename="camel"):
    """Whom senders of a shard name as `relayer`."""

    shard: int
    address: str
    state: Literal["ready", "paused", "short of funds", "not ready"]
    """`ready`: it pays; `paused` by its operator; `short of funds`: its balance does not do; `not ready`: the service
    is not, or hears no blocks of the shard."""
    max_gas_price: int
    """The highest gas price sponsored now."""


class SponsorCaps(msgspec.Struct, frozen=True, rename="camel"):
    """The most one sponsored transaction may ask for; amounts in atomic units."""

    gas_price: int
    gas_limit: int
    fee: str
    value: str
    data_bytes: int


class GasRules(msgspec.Struct, frozen=True, rename="camel"):
    """What the network charges; extra gas comes on top for naming a relayer, and for a guardian."""

    min_gas_price: int
    min_gas_limit: int
    gas_per_data_byte: int
    extra_gas_relayed: int
    extra_gas_guarded: int


class RelayersReply(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of `GET /v1/relayers`."""

    profile: str
    chain_id: str
    shard_rule: Literal["modulo", "mask"]
    """How the shard follows from the last byte of an address: modulo `shards`, or by the bit mask of live nodes."""
    shards: int
    relayers: list[RelayerItem]
    """None of a service without keys: it broadcasts only."""
    caps: SponsorCaps
    gas: GasRules
    max_nonce_gap: int
    """How far a nonce may be above the next one."""


# ---- GET /v1/transactions/{hash}


class BlockItem(msgspec.Struct, frozen=True, rename="camel"):
    """The block that executed the transaction in its sender's shard."""

    shard: int
    nonce: int
    hash: str
    timestamp: int
    """Milliseconds since the epoch."""


class TransactionReply(msgspec.Struct, frozen=True, rename="camel"):
    """What is known of a transaction that was accepted here. Amounts in atomic units."""

    hash: str
    """The one that was asked for."""
    state: Literal["pending", "included", "success", "fail", "superseded", "dropped", "written off"]
    """`pending`: no final block has executed it; `included`: its sender's shard has, its end is still to come;
    `superseded`: its nonce was used by another, or with a `reason` maybe by itself; `dropped`: sent no more, no block
    had it; `written off`: given up by the operator."""
    client_hash: str
    sender: str
    nonce: int
    action: Literal["relay", "broadcast", "sign"]
    payer: str
    """Who pays the fee."""
    max_fee: str
    fee: str | UnsetType = UNSET
    """What was paid, once a block says so."""
    reason: str | UnsetType = UNSET
    chain_hash: str | UnsetType = UNSET
    """Absent while it has not every signature."""
    sdk_hash: str | UnsetType = UNSET
    block: BlockItem | UnsetType = UNSET
    sending: bool = False
    """Whether the service still sends it to the network."""


# ---- POST /v1/relay


class RelayedItem(ResultItem, frozen=True, rename="camel"):
    """One accepted transaction, and with `wait=final` what is known of it."""

    transaction: TransactionReply | UnsetType = UNSET


class RelayReply(msgspec.Struct, frozen=True, rename="camel"):
    """The outcome of `POST /v1/relay`, as that of `relay`."""

    action: str
    status: messages.SubmissionStatus
    hashes: list[str]
    failed: list[FailedItem]
    results: list[RelayedItem]


# ---- POST /v1/prepare


class PrepareTransaction(msgspec.Struct, frozen=True, rename="camel"):
    """A transaction as far as the wallet knows it, see `TransactionJson`; it is not signed yet."""

    sender: str
    receiver: str
    value: str = "0"
    data: str = ""
    nonce: int | None = None
    """The next one, when left out."""
    gas_price: int | None = None
    """What half of the shard's transactions pay, when left out."""
    gas_limit: int | None = None
    """Without `relayer` what the transaction needs without one: the gas for a relayer is added. Left out: the least."""
    options: int = 0
    guardian: str = ""
    relayer: str = ""
    sender_username: str = ""
    receiver_username: str = ""


class PrepareRequest(msgspec.Struct, frozen=True):
    """Body of `POST /v1/prepare`."""

    transaction: PrepareTransaction


class PrepareReply(msgspec.Struct, frozen=True, rename="camel"):
    """Whether a transaction would be sponsored now; nothing is reserved."""

    sponsored: bool
    shard: int
    """Of the sender."""
    extra_gas: int
    """Part of the gas limit: what naming a relayer costs."""
    transaction: TransactionJson | UnsetType = UNSET
    """To be signed as it is, where it would be sponsored."""
    max_fee: str | UnsetType = UNSET
    """The most its relayer can pay, atomic units."""
    until: int | UnsetType = UNSET
    """Milliseconds since the epoch; ask again after that."""
    reason: str | UnsetType = UNSET
    """Why not, in the words of a submission, and so for the fields below."""
    code: str | UnsetType = UNSET
    detail: str | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET


_prepare: msgspec.json.Decoder[PrepareRequest] = msgspec.json.Decoder(PrepareRequest)


def decode_prepare(data: bytes, marked: int) -> PrepareTransaction:
    """The transaction in a body of `POST /v1/prepare`. Raises `Refused`."""
    request = strict_json.decode(data, _prepare, marked)
    strict_json.refuse_duplicate_keys(data, marked, messages.max_marks(1))
    if request.transaction.nonce is not None and request.transaction.nonce < 0:
        raise Refused(reasons.INVALID_NONCE.but("not below 0"))
    return request.transaction
