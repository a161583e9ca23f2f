"""What an aggregator gives to sign is compared with what was asked: it spends that, on the known contract, for enough.

The call's route is the aggregator's business; its endpoint `xo`, its least output and its output token are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple

import msgspec

from millrace_client import address
from millrace_client.checks import MOST_TIMES_THE_PRICE
from millrace_client.errors import Mismatch, TransactionError
from millrace_client.messages import GasRules
from millrace_client.quotes import MultiSwap, Quote
from millrace_client.transaction import Transaction

MOST_UNASKED_SLIPPAGE = Decimal("0.05")
"""Where no slippage was asked for the service's own holds, 1 % by default; one above this has to be asked for."""
ANY_CONTRACT = "any"
"""In place of a contract's address: whichever contract the aggregator names is paid and called. It is trusted, then."""
_MAINNET = "erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva"
CONTRACTS = {
    "1": _MAINNET,
    "D": "erd1qqqqqqqqqqqqqpgqgvg27qrmtqslcn9jfrpsyw8j8r5e5lrjah0stwuckk",
    "local": _MAINNET,
}
"""The aggregator contract (`rs-aggregator`) of each chain by its id; the local chain has it where mainnet has it."""
_ROUNDED = Decimal("1e-9")  # what a fraction may have lost on its way through a float
NATIVE, _NATIVE_IN_TRANSFERS = "EGLD", "EGLD-000000"
_ENDPOINT, _EGLD_INDEX = "xo", 254  # of the aggregator contract, docs/pools.md
_CONTRACT_PREFIX = bytes(8)  # contracts' addresses begin so, and nobody has a key to one

Slippage = str | Decimal | float | None


_MOST_GAS = 600_000_000  # of one transaction: `erd_max_gas_per_transaction` of the network's config


class Bounds(NamedTuple):
    """What a swap must keep, whatever its quote says."""

    amount_in_max: int | None = None
    amount_out_min: int | None = None
    gas_price: int = MOST_TIMES_THE_PRICE * GasRules().min_gas_price
    """The highest that an aggregator may choose."""


_UNBOUND = Bounds()


class _Spent(NamedTuple):
    """What a transaction does: whom it pays and calls, and the payments (token, nonce, amount) that go along."""

    contract: str
    payments: list[tuple[str, int, int]]
    function: str
    arguments: list[bytes]


def checked_quote(
    answer: Quote,
    *,
    sender: str | None,
    from_token: str | None,
    to_token: str | None,
    amount_in: int | None,
    amount_out: int | None,
    slippage: Slippage,
    contract: str | None,
    bounds: Bounds = _UNBOUND,
    referral_id: int | None = 0,
) -> Quote:
    """The quote, with what it left out of the question, if its transaction may be signed. Raises `Mismatch`.

    Of a quote without a transaction, which other deployments give, tokens, amounts and bounds are compared, and what is
    enough if it is for a `sender`. `referral_id` None: anybody may be credited. Without `slippage` its own holds, up to
    `MOST_UNASKED_SLIPPAGE`. Without `contract` it is the one of its chain, see `CONTRACTS`.
    """
    whole = msgspec.structs.replace(
        answer,
        from_=answer.from_ or from_token,
        to=answer.to or to_token,
        amount_in=amount_in if answer.amount_in is None else answer.amount_in,
    )
    _require_token("from", whole.from_, from_token)
    _require_token("to", whole.to, to_token)
    sold = whole.amount_in
    is_arbitrage = _in_transfers(str(from_token)) == _in_transfers(str(to_token))
    stays = max((amount_in or 0) - sold, 0) if is_arbitrage and sold is not None else 0  # what no cycle sells
    own = max((bounds.amount_out_min or 0) - stays, 0)
    if amount_in not in (None, sold) and not stays:
        raise Mismatch("aggregator", "amountIn", sold, amount_in)
    if sold is not None and bounds.amount_in_max is not None and sold > bounds.amount_in_max:
        raise Mismatch("aggregator", "amountIn", sold, f"at most {bounds.amount_in_max}")
    if whole.amount_out is not None and whole.amount_out < (amount_out or 0):
        raise Mismatch("aggregator", "amountOut", whole.amount_out, f"at least {amount_out}")
    if whole.amount_out_min < own:
        raise Mismatch("aggregator", "amountOutMin", whole.amount_out_min, f"at least {own}")
    if answer.transaction is None and sender is None:
        return whole  # to be shown; who swaps it all the same takes tokens and amounts from here
    if sold is None:
        raise Mismatch("aggregator", "amountIn", sold, "a number")
    if whole.amount_out is None and (bounds.amount_out_min is not None or answer.transaction is None):
        least = max(own, amount_out or 0)  # who swaps has to know what is enough
    elif whole.amount_out is None:
        raise Mismatch("aggregator", "amountOut", None, f"at least {amount_out or 0}")
    else:
        least = max(_least(whole.amount_out, slippage, whole.slippage), own)
    least = max(least, sold if is_arbitrage else 0)  # nobody signs a loss by accident
    if whole.amount_out_min < least:
        raise Mismatch("aggregator", "amountOutMin", whole.amount_out_min, f"at least {least}")
    if answer.transaction is None:
        return whole
    _require_spends(
        answer.transaction,
        sender,
        [(str(from_token), sold)],
        str(to_token),
        whole.amount_out_min,
        contract,
        referral_id,
        bounds.gas_price,
    )
    return whole


def checked_multi_swap(
    answer: MultiSwap,
    *,
    sender: str | None,
    inputs: Mapping[str, int] | None,
    to_token: str,
    slippage: Slippage,
    contract: str | None,
    referral_id: int | None = 0,
    gas_price: int = _UNBOUND.gas_price,
) -> MultiSwap:
    """The same of every transaction of a multi-swap; together they sell no more than the `inputs`. Raises `Mismatch`.

    `inputs` None: as the answer has them.
    """
    _require_token("to", answer.to, to_token)
    left = None if inputs is None else {_in_transfers(token): amount for token, amount in inputs.items()}
    for batch in answer.batches:
        if batch.transaction is None:
            continue
        for item in batch.inputs if left is not None else ():
            assert left is not None
            token = _in_transfers(item.token)
            left[token] = left.get(token, 0) - item.amount
            if left[token] < 0:
                raise Mismatch("aggregator", f"inputs, {item.token}", item.amount, "no more than was given")
        least = _least(batch.amount_out, slippage, answer.slippage)
        if batch.amount_out_min < least:
            raise Mismatch("aggregator", "amountOutMin", batch.amount_out_min, f"at least {least}")
        sold = [(item.token, item.amount) for item in batch.inputs]
        _require_spends(
            batch.transaction, sender, sold, to_token, batch.amount_out_min, contract, referral_id, gas_price
        )
    return answer


def _require_spends(
    tx: Transaction,
    sender: str | None,
    sold: list[tuple[str, int]],
    to_token: str,
    least: int,
    contract: str | None,
    referral_id: int | None,
    gas_price: int,
) -> None:
    """Raise `Mismatch` unless a transaction pays exactly what is sold, to the contract, which must pay `least`."""
    if sender is not None and tx.sender != sender:
        raise Mismatch("aggregator", "transaction.sender", tx.sender, sender)
    spent = _spent(tx)
    payments = [(_in_transfers(token), 0, amount) for token, amount in sold]
    if sorted(spent.payments) != sorted(payments):
        field = "value" if any(token == _NATIVE_IN_TRANSFERS for token, *_ in spent.payments + payments) else "data"
        raise Mismatch("aggregator", f"transaction.{field}", _words(spent.payments), f"payment of {_words(payments)}")
    _require_contract(spent.contract, contract, tx.chain_id)
    if spent.function != _ENDPOINT:  # other functions promise nothing, or take what the wallet owns
        raise Mismatch("aggregator", "transaction.data", spent.function or "no call", f"a call of {_ENDPOINT}")
    _require_pays(spent.arguments, to_token, least)
    credited = int.from_bytes(spent.arguments[2], "big")
    if referral_id not in (None, credited):  # who takes a fee of it
        raise Mismatch("aggregator", "transaction.data, referralId", credited, referral_id)
    for field, told, most in (("gasLimit", tx.gas_limit, _MOST_GAS), ("gasPrice", tx.gas_price, gas_price)):
        if not 0 < told <= most:
            raise Mismatch("aggregator", f"transaction.{field}", told, f"at most {most}")


def _require_contract(told: str, named: str | None, chain_id: str) -> None:
    """Raise `Mismatch` for another contract than the one that was named, or that is known on the chain."""
    if not address.decode(told).startswith(_CONTRACT_PREFIX):
        raise Mismatch("aggregator", "transaction.receiver", told, "a contract")
    if named == ANY_CONTRACT:
        return
    wanted = named or CONTRACTS.get(chain_id)
    if wanted is None:
        known = f"one that is known on chain {chain_id!r}, where none is: name it (contract), or {ANY_CONTRACT!r}"
        raise Mismatch("aggregator", "transaction.receiver", told, known)
    if told != wanted:
        raise Mismatch("aggregator", "transaction.receiver", told, wanted)


def _require_pays(arguments: list[bytes], to_token: str, least: int) -> None:
    """Raise `Mismatch` unless the contract's arguments promise the output: least, index, referral, count, tokens."""
    numbers = [int.from_bytes(argument, "big") for argument in arguments[:4]]
    if len(numbers) < 4 or numbers[0] < least:
        raise Mismatch("aggregator", "transaction.data, least output", numbers[:1], f"at least {least}")
    tokens = [_text(token) for token in arguments[4 : 4 + numbers[3]]]
    index = numbers[1]
    paid = NATIVE if index == _EGLD_INDEX else tokens[index] if index < len(tokens) else None
    if paid is None or _in_transfers(paid) != _in_transfers(to_token):
        raise Mismatch("aggregator", "transaction.data, output token", paid, to_token)


def _spent(tx: Transaction) -> _Spent:
    """What a transaction spends. Raises `Mismatch` where its data is no call."""
    name, *texts = tx.payload.split(b"@")
    function = _text(name)
    try:
        arguments = [bytes.fromhex(_text(text)) for text in texts]
        payments = [(_NATIVE_IN_TRANSFERS, 0, int(tx.value))] if tx.value != "0" else []
        if function == "MultiESDTNFTTransfer" and tx.receiver == tx.sender:
            receiver, count = address.encode(arguments[0]), int.from_bytes(arguments[1], "big")
            end = 2 + 3 * count
            flat = arguments[2:end]
            if len(flat) != 3 * count:
                raise ValueError("fewer payments than are announced")
            payments += [_payment(*flat[place : place + 3]) for place in range(0, len(flat), 3)]
        elif function == "ESDTTransfer":
            receiver, end = tx.receiver, 2
            payments.append(_payment(arguments[0], b"", arguments[1]))
        else:
            return _Spent(tx.receiver, payments, function, arguments)
    except (ValueError, IndexError, TransactionError):
        raise Mismatch("aggregator", "transaction.data", tx.payload[:100], "a payment and a call") from None
    called = _text(arguments[end]) if len(arguments) > end else ""
    return _Spent(receiver, payments, called, arguments[end + 1 :])


def _payment(token: bytes, nonce: bytes, amount: bytes) -> tuple[str, int, int]:
    return _text(token), int.from_bytes(nonce, "big"), int.from_bytes(amount, "big")


def _least(amount_out: int, asked: Slippage, told: float | None) -> int:
    """`floor(amount_out * (1 - slippage))`, exactly. Raises `Mismatch` for a slippage that nobody agreed to."""
    if asked is None:
        if told is None or not 0 <= Decimal(str(told)) <= MOST_UNASKED_SLIPPAGE:
            raise Mismatch("aggregator", "slippage", told, f"at most {MOST_UNASKED_SLIPPAGE} unless asked for")
        asked = told
    fraction = Decimal(str(asked))
    if isinstance(asked, float):
        fraction += _ROUNDED
    above, below = min(fraction, Decimal(1)).as_integer_ratio()
    return amount_out * (below - above) // below


def _require_token(field: str, told: str | None, asked: str | None) -> None:
    if told is None or asked is None or _in_transfers(told) != _in_transfers(asked):
        raise Mismatch("aggregator", field, told, asked)


def _in_transfers(token: str) -> str:
    return _NATIVE_IN_TRANSFERS if token == NATIVE else token


def _text(raw: bytes) -> str:
    return raw.decode("ascii", "replace")


def _words(payments: list[tuple[str, int, int]]) -> str:
    return ", ".join(f"{amount} {token}" for token, _, amount in payments) or "nothing"
