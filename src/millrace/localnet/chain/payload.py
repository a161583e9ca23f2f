"""The data of results: how tokens and calls that travel between shards are written."""

from __future__ import annotations

from millrace.chain import call as calls
from millrace.chain.call import TokenPayment
from millrace.localnet.contracts.calls import Transfer


def token_data(receiver: bytes, tokens: list[TokenPayment], code: bytes | None) -> bytes:
    """The data of a result that carries tokens, with a return code behind them if there is one."""
    suffix = b"" if code is None else b"@" + code.hex().encode()
    if not tokens:
        return suffix
    if len(tokens) == 1:
        return calls.esdt_transfer(tokens[0].token, tokens[0].amount) + suffix
    name, _, rest = calls.multi_transfer(receiver, tokens).split(b"@", 2)
    return name + b"@" + rest + suffix


def call_data(receiver: bytes, tokens: list[TokenPayment], function: str, args: tuple[bytes, ...]) -> bytes:
    """The data of a result that brings tokens (EGLD is its value) and calls a function, if one is named."""
    if not function:
        return token_data(receiver, tokens, None)
    call = calls.encode(function, *args)
    if not tokens:
        return call
    name, *rest = call.split(b"@")
    return b"@".join([token_data(receiver, tokens, None), name.hex().encode(), *rest])


def by_receiver(transfers: tuple[Transfer, ...]) -> dict[tuple[bytes, bytes, bool], tuple[TokenPayment, ...]]:
    """A contract's payments together per receiver: one result carries all that goes to one account."""
    grouped: dict[tuple[bytes, bytes, bool], tuple[TokenPayment, ...]] = {}
    for transfer in transfers:
        key = (transfer.sender, transfer.receiver, transfer.delivered)
        payment = TokenPayment(transfer.token, transfer.nonce, transfer.amount)
        grouped[key] = (*grouped.get(key, ()), payment)
    return grouped
