"""What goes into a contract call and what comes out of it: values shared by contracts and chain."""

import msgspec

from millrace.chain.call import TokenPayment
from millrace.localnet.contracts.meter import Usage


class Event(msgspec.Struct, frozen=True):
    """One entry of a transaction's log."""

    address: bytes
    identifier: str
    topics: tuple[bytes, ...] = ()
    data: bytes = b""


class Transfer(msgspec.Struct, frozen=True):
    """One payment a contract made to an account outside the contracts. `token` is `EGLD` for the coin.

    `delivered`: the receiver lives in this shard and has been credited. Otherwise the amount has left the
    contract and it is for the chain to credit it in the receiver's shard.
    """

    sender: bytes
    receiver: bytes
    token: str
    nonce: int
    amount: int
    delivered: bool


class ContractCall(msgspec.Struct, frozen=True):
    """One call as it arrives at the contract's shard.

    `payments` is all that came with it, as `chain.call.parse_transfer` lists it. `value` is the transaction's
    own EGLD; it is counted once, whether `payments` names it or not. `gas_limit` is what is left for
    execution after the transaction's own cost.
    """

    sender: bytes
    receiver: bytes
    value: int
    payments: tuple[TokenPayment, ...]
    function: str
    args: tuple[bytes, ...]
    gas_limit: int


class CallResult(msgspec.Struct, frozen=True):
    """What a call did. When not `ok`, `return_message` says why and nothing but `gas_used` has effect.

    A failed call uses its whole gas limit. `transfers` are in order of payment. `results` are the values
    the endpoint returned, for the `writeLog` data. `usage` is what was counted against the limits of a transaction,
    up to the failure if there was one.
    """

    ok: bool
    return_code: str
    return_message: str
    gas_used: int
    events: tuple[Event, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    results: tuple[bytes, ...] = ()
    usage: Usage = Usage()


class BlockInfo(msgspec.Struct, frozen=True):
    """The block being made, as contracts see it. `timestamp` in seconds."""

    nonce: int = 0
    round: int = 0
    epoch: int = 0
    timestamp: int = 0
