"""What a relayer prepares is compared with what was asked, before anybody signs it.

A service that was broken into, or an address with a typing error, must not get a signature for anything else.
"""

from __future__ import annotations

from millrace_client import address
from millrace_client.errors import Mismatch
from millrace_client.messages import GasRules
from millrace_client.transaction import GUARDED, Transaction, replaced

MOST_TIMES_THE_PRICE = 10
"""A prepared gas price is at most so many times what was asked for, or the network's least if that is more: ten times
the least is what relayers pay by default (`caps.gas_price` of the sponsoring policy), whatever others pay."""
_KEPT = {
    "sender": "sender",
    "receiver": "receiver",
    "value": "value",
    "data": "data",
    "chain_id": "chainID",
    "version": "version",
    "options": "options",
    "sender_username": "senderUsername",
    "receiver_username": "receiverUsername",
}
"""Fields that no relayer has anything to change in."""


def checked_prepared(
    asked: Transaction, told: Transaction, gas: GasRules, max_gas_price: int | None = None
) -> Transaction:
    """What was asked with the nonce, relayer, gas and price that were told. Raises `Mismatch`.

    Nothing else is taken over; a relayer that is no address is a `TransactionError`. In the rules of `gas` the relayer
    must have no say.
    """
    guardian = asked.guardian if asked.options & GUARDED else ""
    for name, field in _KEPT.items():
        _require_same(field, getattr(told, name), getattr(asked, name))
    _require_same("guardian", told.guardian, guardian)
    if not told.relayer:
        raise Mismatch("relayer", "relayer", "none", "one that pays")
    address.decode(told.relayer)
    if told.relayer in (asked.sender, guardian):  # whose own signature would be the one that pays
        raise Mismatch("relayer", "relayer", told.relayer, "neither the sender nor its guardian")
    if asked.relayer:
        _require_same("relayer", told.relayer, asked.relayer)
    if told.nonce is None:
        raise Mismatch("relayer", "nonce", "none", "a number")
    if asked.nonce is not None:
        _require_same("nonce", told.nonce, asked.nonce)
    most = most_gas(asked, gas)
    if not asked.gas_limit <= told.gas_limit <= most:
        raise Mismatch("relayer", "gasLimit", told.gas_limit, f"{asked.gas_limit} to {most}")
    price = most_price(asked, gas) if max_gas_price is None else max_gas_price
    if not 0 < told.gas_price <= price:
        raise Mismatch("relayer", "gasPrice", told.gas_price, f"at most {price}")
    return replaced(
        asked,
        nonce=told.nonce,
        relayer=told.relayer,
        gas_limit=told.gas_limit,
        gas_price=told.gas_price,
        guardian=guardian,
        signature="",
        guardian_signature="",
        relayer_signature="",
    )


def most_gas(asked: Transaction, gas: GasRules) -> int:
    """The highest gas limit that naming a relayer, and having a guardian, can make of what was asked."""
    needed = asked.gas_limit or gas.min_gas_limit + gas.gas_per_data_byte * len(asked.payload)
    return needed + gas.extra_gas_relayed + (gas.extra_gas_guarded if asked.options & GUARDED else 0)


def most_price(asked: Transaction, gas: GasRules) -> int:
    """The highest gas price that is signed unless another limit is given."""
    return MOST_TIMES_THE_PRICE * max(asked.gas_price, gas.min_gas_price)


def _require_same(field: str, told: object, asked: object) -> None:
    if told != asked:
        raise Mismatch("relayer", field, told, asked)
