"""Contract calls as transaction data: `function@arg@arg`, and token payments in front of them.

Arguments are lower-case hex with an even number of digits; an empty one is nothing between two `@`.
"""

from __future__ import annotations

import binascii
from typing import NamedTuple

from millrace.chain import abi, address
from millrace.chain.token import NATIVE, NATIVE_IN_TRANSFERS
from millrace.chain.transaction import Transaction

ESDT_TRANSFER = "ESDTTransfer"
NFT_TRANSFER = "ESDTNFTTransfer"
MULTI_TRANSFER = "MultiESDTNFTTransfer"
MAX_AMOUNT_BYTES = 100
"""The longest amount that nodes accept in a token transfer (`MaxLenForESDTIssueMint`)."""
RELAYED_FUNCTIONS = frozenset({"relayedTx", "relayedTxV2", "relayedTxV3"})

_RECEIVERS = {NFT_TRANSFER: "fourth", MULTI_TRANSFER: "first"}
"""Transfers that go to the sender itself, and which argument of them is the receiver."""
_SET_GUARDIAN = b"SetGuardian@"
_NATIVE_ARGUMENT = NATIVE_IN_TRANSFERS.encode()


class CallError(ValueError):
    """Transaction data is not a call, or not a token transfer where it claims to be one."""


class Call(NamedTuple):
    """A function and its raw arguments."""

    function: str
    args: tuple[bytes, ...]


class TokenPayment(NamedTuple):
    """An amount (smallest units) of a token; the nonce is 0 for fungible tokens."""

    token: str
    nonce: int
    amount: int


class ParsedCall(NamedTuple):
    """What a transaction does: who really receives, which payments go along, which function is called."""

    receiver: bytes
    payments: tuple[TokenPayment, ...]
    function: str
    """Empty for a plain transfer."""
    args: tuple[bytes, ...]


def encode(function: str, *args: bytes) -> bytes:
    """The data field of a call."""
    return "@".join([function, *map(bytes.hex, args)]).encode()


def parse(data: bytes) -> Call:
    """The call in a data field. Raises `CallError` for arguments that are not whole hex bytes."""
    function, *args = data.split(b"@")
    try:
        return Call(function.decode(), tuple(_argument(arg) for arg in args))
    except (UnicodeDecodeError, binascii.Error) as error:
        raise CallError(f"not a call: {error}") from None


def _argument(text: bytes) -> bytes:
    return binascii.unhexlify(text)


def esdt_transfer(token: str, amount: int, function: str | None = None, *args: bytes) -> bytes:
    """The data that sends one fungible token to the transaction's receiver, and calls a function there.

    Raises `CallError` for the native coin, which travels as the transaction's value.
    """
    if token in (NATIVE, NATIVE_IN_TRANSFERS):
        raise CallError(f"{token} is no token: send it as the transaction's value")
    rest = () if function is None else (function.encode(), *args)
    return encode(ESDT_TRANSFER, token.encode(), abi.top_uint(amount), *rest)


def multi_transfer(receiver: bytes, payments: list[TokenPayment], function: str | None = None, *args: bytes) -> bytes:
    """The data that sends several tokens to `receiver`; the transaction itself goes to its own sender."""
    flat: list[bytes] = []
    for payment in payments:
        token = NATIVE_IN_TRANSFERS if payment.token == NATIVE else payment.token
        flat += [token.encode(), abi.top_uint(payment.nonce), abi.top_uint(payment.amount)]
    rest = () if function is None else (function.encode(), *args)
    return encode(MULTI_TRANSFER, receiver, abi.top_uint(len(payments)), *flat, *rest)


def payments_of(tx: Transaction) -> ParsedCall:
    """What a transaction does, see `parse_transfer`.

    A `MultiESDTNFTTransfer` goes to its own sender; to anybody else it raises `CallError`, as nodes refuse it.
    """
    if tx.receiver != tx.sender and tx.data.startswith(MULTI_TRANSFER.encode() + b"@"):
        raise CallError(_misdirected(MULTI_TRANSFER))
    return parse_transfer(tx.sender, tx.receiver, tx.value, tx.data)


def check_transfer(tx: Transaction) -> None:
    """Raise `CallError` for a token transfer that every node fails whatever its sender has.

    One with a value, of nothing, to oneself, of an NFT without its nonce, or not sent to oneself where the receiver is
    an argument.
    """
    name = tx.data.partition(b"@")[0].decode(errors="replace")
    if name not in _RECEIVERS and name != ESDT_TRANSFER:
        return
    if name in _RECEIVERS and tx.receiver != tx.sender:
        raise CallError(_misdirected(name))
    parsed = payments_of(tx)
    tokens = [payment for payment in parsed.payments if payment.token != NATIVE]
    if tokens and tx.value:
        raise CallError("built in function called with tx value is not allowed")
    if not all(payment.amount for payment in tokens):
        raise CallError("the amount of a token must be positive")
    if name == NFT_TRANSFER and not all(payment.nonce for payment in tokens):
        raise CallError(f"{NFT_TRANSFER} of a token without a nonce: NFT does not have metadata")
    if name in _RECEIVERS and tokens and parsed.receiver == tx.sender:
        raise CallError(f"{name}: can not transfer to self")


def _misdirected(name: str) -> str:
    return f"{name} goes to the sender itself, with the receiver as its {_RECEIVERS[name]} argument"


def names_guardian(tx: Transaction) -> bool:
    """Whether it names a guardian, and none signs it: nodes have rules of their own for that."""
    return not tx.is_guarded and tx.data.startswith(_SET_GUARDIAN)


def parse_transfer(sender: bytes, receiver: bytes, value: int, data: bytes) -> ParsedCall:
    """What a transaction from `sender` to `receiver` with this value and data does.

    Data that is no call, or whose call is no token transfer, pays the value (EGLD) to the receiver. Raises
    `CallError` for a token transfer with missing or impossible arguments.
    """
    native = (TokenPayment(NATIVE, 0, value),) if value else ()
    try:
        call = parse(data)
    except CallError:
        return ParsedCall(receiver, native, "", ())
    if call.function == ESDT_TRANSFER:
        return _parse_esdt(receiver, native, call)
    if call.function == NFT_TRANSFER and receiver == sender:
        return _parse_nft(native, call)
    if call.function == MULTI_TRANSFER:
        # To oneself the real receiver is the first argument; at the real receiver that argument is gone.
        to = _receiver(call.args[0]) if receiver == sender and call.args else receiver
        return _parse_multi(to, native, call.args[1:] if receiver == sender else call.args)
    return ParsedCall(receiver, native, call.function, call.args)


def _parse_esdt(receiver: bytes, native: tuple[TokenPayment, ...], call: Call) -> ParsedCall:
    if len(call.args) < 2:
        raise CallError(f"{ESDT_TRANSFER} takes a token and an amount")
    payment = TokenPayment(_token(call.args[0]), 0, _amount(call.args[1]))
    return _with_function(receiver, (*native, payment), call.args[2:])


def _parse_nft(native: tuple[TokenPayment, ...], call: Call) -> ParsedCall:
    if len(call.args) < 4:
        raise CallError(f"{NFT_TRANSFER} takes a token, a nonce, an amount and a receiver")
    token, nonce, amount, receiver, *rest = call.args
    payment = TokenPayment(_token(token), _u64(nonce), _amount(amount))
    return _with_function(_receiver(receiver), (*native, payment), tuple(rest))


def _parse_multi(receiver: bytes, native: tuple[TokenPayment, ...], args: tuple[bytes, ...]) -> ParsedCall:
    count = _u64(args[0]) if args else 0
    end = 1 + 3 * count
    if count == 0 or end > len(args):
        raise CallError(f"{MULTI_TRANSFER} names {count} payments and holds {max(0, len(args) - 1) // 3}")
    payments = tuple(_one_of_many(*args[at : at + 3]) for at in range(1, end, 3))
    return _with_function(receiver, (*native, *payments), args[end:])


def _one_of_many(token: bytes, nonce: bytes, amount: bytes) -> TokenPayment:
    number = _u64(nonce)
    if token != _NATIVE_ARGUMENT:
        return TokenPayment(_token(token), number, _amount(amount))
    if number:
        raise CallError(f"{NATIVE_IN_TRANSFERS} has no nonce")
    return TokenPayment(NATIVE, 0, _amount(amount))


def _with_function(receiver: bytes, payments: tuple[TokenPayment, ...], rest: tuple[bytes, ...]) -> ParsedCall:
    if not rest:
        return ParsedCall(receiver, payments, "", ())
    try:
        return ParsedCall(receiver, payments, rest[0].decode(), rest[1:])
    except UnicodeDecodeError:
        raise CallError("the function's name is no text") from None


def _token(raw: bytes) -> str:
    try:
        token = raw.decode("ascii")
    except UnicodeDecodeError:
        raise CallError("a token identifier is ASCII text") from None
    if token in (NATIVE, NATIVE_IN_TRANSFERS):
        # Taken for a token it would pass for the native coin itself, which a transfer names in one way only.
        raise CallError(f"{token} is no token; only {MULTI_TRANSFER} sends the native coin, as {NATIVE_IN_TRANSFERS}")
    return token


def _amount(raw: bytes) -> int:
    if len(raw) > MAX_AMOUNT_BYTES:
        raise CallError(f"an amount has at most {MAX_AMOUNT_BYTES} bytes")
    return abi.decode_uint(raw)


def _u64(raw: bytes) -> int:
    try:
        return abi.decode_uint(raw, 8)
    except abi.AbiError as error:
        raise CallError(str(error)) from None


def _receiver(raw: bytes) -> bytes:
    if len(raw) != address.SIZE:
        raise CallError("the receiver is not an address of 32 bytes")
    return raw
