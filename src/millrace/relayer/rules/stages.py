"""The stages of a submission as types: each can be made only from what the stage before made.

parsed → examined → authenticated → approved → reserved → journalled → signed. A transaction the relayer has not
verified, approved, reserved and journalled has no type the signing process would be given.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal

import msgspec
from msgspec import Raw

from millrace.chain import address, call, keys
from millrace.chain.fees import move_gas
from millrace.chain.network import NetworkProfile
from millrace.chain.transaction import (
    Transaction,
    TransactionError,
    early_hashes,
    early_hashes_of,
    from_json,
    signing_message,
    to_proto,
)
from millrace.relayer.protocol import messages, reasons
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.rules.policy import Target, target_of
from millrace.runtime.tracing import Trace

Kind = Literal["relay", "broadcast", "sign"]

GENESIS_SUPPLY = 20_000_000 * 10**18
"""No account can hold more of the native coin; nodes refuse a larger value."""


class Origin(msgspec.Struct, frozen=True):
    """What was asked for, and from where."""

    kind: Kind
    ip: str
    person: str = ""
    """Who showed an API key, see the policy's `people`; empty for strangers."""
    is_sponsored: bool = False
    """Whether a relayer key is to sign, and so to pay; set from `kind`."""
    trace: Trace | None = None
    """What is recorded of it, if it is traced."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "is_sponsored", self.kind != "broadcast")


class Relayers(msgspec.Struct, frozen=True):
    """The public keys that pay, by shard; addresses only, the secrets live in the signing process."""

    by_shard: dict[int, bytes]
    keys: frozenset[bytes] = frozenset()
    """All of them."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "keys", frozenset(self.by_shard.values()))


class Parsed(msgspec.Struct, frozen=True, gc=False):
    """A transaction in raw values; nothing in it is believed yet."""

    tx: Transaction
    """Without a relayer's signature when one is to be made here."""
    proto: bytes
    """The same in protobuf form."""
    client_hash: bytes
    origin: Origin
    sdk_hash: bytes = b""
    """Of what names a relayer, see `early_hashes`."""

    @classmethod
    def of(cls, tx: Transaction, origin: Origin) -> Parsed:
        """A transaction with its protobuf form and the hashes its client may know it by."""
        proto = to_proto(tx)
        if tx.relayer_signature:
            client, sdk = early_hashes(tx)
        else:
            client, sdk = early_hashes_of(proto, is_relayed=bool(tx.relayer))
        return cls(tx, proto, client, origin, sdk)


class Examined(msgspec.Struct, frozen=True, gc=False):
    """Well formed for this network and for the relayer it names; whether it is signed is not known yet."""

    parsed: Parsed
    sender_shard: int
    receiver_shard: int
    target: Target | None = None
    """What it does, where a relayer key is asked to pay for that."""

    def __post_init__(self) -> None:
        if type(self.parsed) is not Parsed:
            raise _skipped(self.parsed, Parsed)


class Authenticated(msgspec.Struct, frozen=True, gc=False):
    """Examined, and signed by its sender (and guardian, and relayer if already co-signed)."""

    examined: Examined

    def __post_init__(self) -> None:
        if type(self.examined) is not Examined:
            raise _skipped(self.examined, Examined)

    @property
    def parsed(self) -> Parsed:
        return self.examined.parsed

    @property
    def tx(self) -> Transaction:
        return self.examined.parsed.tx

    @property
    def target(self) -> Target:
        """What it does: who really receives, which function is called. Known of what a relayer key is asked to pay."""
        assert self.examined.target is not None
        return self.examined.target

    @property
    def sender_shard(self) -> int:
        return self.examined.sender_shard

    @property
    def receiver_shard(self) -> int:
        return self.examined.receiver_shard


class Approved(msgspec.Struct, frozen=True, gc=False):
    """The policy and the state of the account allow it; `fee` is the most it can cost whoever pays."""

    authenticated: Authenticated
    fee: int

    def __post_init__(self) -> None:
        if type(self.authenticated) is not Authenticated:
            raise _skipped(self.authenticated, Authenticated)

    @property
    def tx(self) -> Transaction:
        return self.authenticated.parsed.tx

    @property
    def origin(self) -> Origin:
        return self.authenticated.parsed.origin


class Reserved(msgspec.Struct, frozen=True, gc=False):
    """Its (sender, nonce), its budget and its quotas are taken; nobody else can have them."""

    approved: Approved

    def __post_init__(self) -> None:
        if type(self.approved) is not Approved:
            raise _skipped(self.approved, Approved)


class Journalled(msgspec.Struct, frozen=True, gc=False):
    """A record of it is on disk."""

    reserved: Reserved

    def __post_init__(self) -> None:
        if type(self.reserved) is not Reserved:
            raise _skipped(self.reserved, Reserved)


class Signed(msgspec.Struct, frozen=True, gc=False):
    """Every signature it needs is there: it may leave this process."""

    journalled: Journalled
    tx: Transaction

    def __post_init__(self) -> None:
        if type(self.journalled) is not Journalled:
            raise _skipped(self.journalled, Journalled)


def hash_of(proto: bytes) -> bytes:
    """The hash of a transaction in protobuf form (BLAKE2b-256)."""
    return blake2b(proto, digest_size=32).digest()


def cosigned(proto: bytes, signature: bytes) -> bytes:
    """A transaction in protobuf form with its relayer's signature, which is the last field of the form."""
    return proto + b"\x8a\x01\x40" + signature


def _skipped(value: object, kind: type) -> TypeError:
    """Somebody left out a stage."""
    return TypeError(f"needs a {kind.__name__}, not a {type(value).__name__}")


def parse(raw: Raw, origin: Origin) -> Parsed:
    """The transaction in a JSON object. Raises `Refused` with the reason of its first impossible field."""
    try:
        tx = from_json(messages.decode_transaction(raw))
    except TransactionError as error:
        reason = reasons.BY_FIELD.get(error.field, reasons.INVALID_TRANSACTION)
        raise Refused(reason.but(str(error))) from None
    if origin.is_sponsored and tx.relayer_signature:
        tx = msgspec.structs.replace(tx, relayer_signature=b"")
    return Parsed.of(tx, origin)


def authenticate(parsed: Parsed, network: NetworkProfile, relayers: Relayers) -> Authenticated:
    """Check the form against the network's rules, the relayer's address, then every signature.

    Raises `Refused`. The order follows the nodes' own (integrity, relayed rules, signatures), so that the
    reason names the first thing to mend.
    """
    return verify(examine(parsed, network, relayers), signing_message(parsed.tx))


def examine(parsed: Parsed, network: NetworkProfile, relayers: Relayers) -> Examined:
    """Check everything but signatures of the sender and guardian. Raises `Refused`."""
    tx = parsed.tx
    _check_integrity(tx, network)
    sender_shard = network.shard_of(tx.sender)
    if parsed.origin.is_sponsored:
        _check_relayer(tx, relayers.by_shard.get(sender_shard), network)
    elif tx.is_relayed:
        _check_cosigned(tx, network, sender_shard)
    target = _check_parties(tx, relayers, parsed.origin)
    return Examined(parsed, sender_shard, network.receiver_shard_of(tx.receiver, tx.sender), target)


def verify(examined: Examined, message: bytes) -> Authenticated:
    """Check the signatures over `message`, the transaction's signing message. Raises `Refused`."""
    _check_signatures(examined.parsed.tx, message)
    return Authenticated(examined)


def vouched(examined: Examined, verdict: str) -> Authenticated:
    """What the signing process, which verifies signatures too, says of a transaction. Raises `Refused`.

    `verdict` is empty, or the words of the reason why it is not signed as it should be.
    """
    if verdict:
        raise Refused(_OF_SIGNATURES.get(verdict) or reasons.SIGNER_REFUSED.but(verdict))
    return Authenticated(examined)


def _check_integrity(tx: Transaction, network: NetworkProfile) -> None:
    gas = network.gas
    if tx.chain_id != network.chain_id:
        raise Refused(reasons.INVALID_CHAIN_ID.but(f"this relayer serves chain {network.chain_id!r}"))
    if tx.value > GENESIS_SUPPLY:
        raise Refused(reasons.INVALID_VALUE.but("more than exists"))
    if tx.gas_price < gas.min_gas_price:
        raise Refused(reasons.GAS_PRICE_TOO_LOW.but(f"at least {gas.min_gas_price}"))
    if tx.gas_price > gas.max_price_set_guardian and call.names_guardian(tx):
        raise Refused(
            reasons.GAS_PRICE_TOO_HIGH.but(f"naming a guardian without one: at most {gas.max_price_set_guardian}")
        )
    needed = move_gas(tx, gas)
    if tx.gas_limit < needed:
        if tx.relayer and tx.gas_limit >= needed - gas.extra_relayed and _signed_before_relayer(tx):
            raise Refused(_SIGNED_TOO_EARLY)  # the gas for a relayer is missing as the relayer was: this comes first
        raise Refused(reasons.GAS_LIMIT_TOO_LOW.but(f"at least {needed}"))
    if tx.gas_limit > gas.max_gas_per_tx:
        raise Refused(reasons.GAS_LIMIT_TOO_HIGH.but(f"at most {gas.max_gas_per_tx}"))
    if tx.is_guarded:
        if not tx.guardian:
            raise Refused(reasons.INVALID_GUARDIAN.but("options 2 ask for a guardian, and none is set"))
    elif tx.guardian or tx.guardian_signature:
        raise Refused(reasons.INVALID_GUARDIAN.but("a guardian needs version 2 and options 2 (3: hash signed)"))


def _check_relayer(tx: Transaction, expected: bytes | None, network: NetworkProfile) -> None:
    """The relayer to be is ours, and the one of the sender's shard. Details begin with the words clients know."""
    if not tx.relayer:
        raise Refused(reasons.RELAYER_FIELD_MISSING.but("missing relayer: set relayer before the user signs"))
    if tx.relayer == expected:
        return
    shard, named = network.shard_of(tx.sender), network.shard_of(tx.relayer)
    what = "unknown relayer" if named == shard else f"shard mismatch: the relayer is of shard {named}"
    ours = f"name {address.encode(expected)}" if expected else "this service has no relayer there"
    raise Refused(reasons.INVALID_RELAYER_ADDRESS.but(f"{what}; the sender is of shard {shard}: {ours}"))


def _check_cosigned(tx: Transaction, network: NetworkProfile, sender_shard: int) -> None:
    """A relayed transaction that comes to be broadcast already carries its relayer's signature."""
    if not tx.relayer:
        raise Refused(reasons.RELAYER_FIELD_MISSING.but("missing relayer: there is only a relayer signature"))
    if network.shard_of(tx.relayer) != sender_shard:
        raise Refused(reasons.INVALID_RELAYER_ADDRESS.but("shard mismatch: use a relayer of the sender's shard"))
    if tx.relayer == tx.guardian:
        raise Refused(reasons.INVALID_RELAYER_ADDRESS.but("a guardian cannot be the relayer"))
    if not keys.verify(tx.relayer, signing_message(tx), tx.relayer_signature):
        raise Refused(reasons.INVALID_RELAYER_SIGNATURE.but("use relay to have it co-signed"))


def _check_parties(tx: Transaction, relayers: Relayers, origin: Origin) -> Target | None:
    """No relayer key is a party: its co-signature would be the party's own signature over the same bytes.

    What the transaction does, if it is to be sponsored.
    """
    keys = relayers.keys
    if tx.sender in keys or tx.guardian in keys:
        raise Refused(reasons.RELAYER_AS_PARTY)
    if not tx.is_relayed:
        return None
    if tx.data and tx.data.split(b"@", 1)[0].decode("latin-1") in call.RELAYED_FUNCTIONS:
        raise Refused(reasons.NESTED_RELAYED)
    if not origin.is_sponsored:
        return None
    try:
        call.check_transfer(tx)
        target = target_of(tx)
    except call.CallError as error:
        raise Refused(reasons.INVALID_DATA.but(str(error))) from None
    if tx.receiver in keys or target.receiver in keys:
        raise Refused(reasons.RELAYER_AS_PARTY)
    if target.function in call.RELAYED_FUNCTIONS:
        raise Refused(reasons.NESTED_RELAYED)
    return target


_SIGNED_TOO_EARLY = reasons.INVALID_USER_SIGNATURE.but("set relayer first, then let the user sign")
_NOT_SIGNED = reasons.INVALID_SIGNATURE.but("not the sender's of these very fields: set all of them, then sign")
_NOT_GUARDED = reasons.INVALID_GUARDIAN_SIGNATURE.but("not the guardian's, who signs what the sender signs")
_OF_SIGNATURES = {reason.reason: reason for reason in (_SIGNED_TOO_EARLY, _NOT_SIGNED, _NOT_GUARDED)}


def _check_signatures(tx: Transaction, message: bytes) -> None:
    if not keys.verify(tx.sender, message, tx.signature):
        if tx.relayer and _signed_before_relayer(tx):
            raise Refused(_SIGNED_TOO_EARLY)
        raise Refused(_NOT_SIGNED)
    if tx.is_guarded and not keys.verify(tx.guardian, message, tx.guardian_signature):
        raise Refused(_NOT_GUARDED)


def _signed_before_relayer(tx: Transaction) -> bool:
    without = msgspec.structs.replace(tx, relayer=b"")
    return keys.verify(tx.sender, signing_message(without), tx.signature)
