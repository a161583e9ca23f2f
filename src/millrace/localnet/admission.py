"""What a node checks before it keeps a transaction, in its order and in its words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from millrace.chain.call import RELAYED_FUNCTIONS
from millrace.chain.fees import initially_paid_fee, move_gas
from millrace.chain.keys import SIGNATURE_SIZE, verify
from millrace.chain.network import NetworkProfile
from millrace.chain.transaction import (
    MAX_DATA,
    MAX_USERNAME,
    Transaction,
    signing_message,
)
from millrace.localnet.ledger import Account

MAX_NONCE_DELTA: Final = 100
"""How far above the account's nonce a waiting transaction may be."""
GENESIS_SUPPLY: Final = 2 * 10**25

AccountOf = Callable[[bytes], Account]


class Refused(Exception):
    """The transaction is not kept; the text is the node's."""


def check_form(tx: Transaction, profile: NetworkProfile) -> None:
    """Everything that needs no account: integrity, gas, relayed rules, signatures. Raises `Refused`."""
    _check_integrity(tx, profile)
    _check_gas(tx, profile)
    _check_relayed(tx, profile)
    _check_signatures(tx)


def check_account(tx: Transaction, profile: NetworkProfile, account_of: AccountOf) -> None:
    """Everything that depends on the accounts: nonce window, fee payer's balance, guardians. Raises `Refused`."""
    sender = account_of(tx.sender)
    low, high = tx.nonce < sender.nonce, tx.nonce > sender.nonce + MAX_NONCE_DELTA
    if low or high:
        raise Refused(f"invalid transaction lowerNonceInTx: {str(low).lower()}, veryHighNonceInTx: {str(high).lower()}")
    payer = fee_payer(tx)
    fee, balance = initially_paid_fee(tx, profile.gas), account_of(payer).balance
    if balance < fee:
        raise Refused(f"insufficient funds, for address: {payer.hex()}, wanted {fee}, have {balance}")
    check_guardians(tx, account_of)


def check_guardians(tx: Transaction, account_of: AccountOf) -> None:
    """A guarded account's transactions carry its active guardian, others none. Raises `Refused`."""
    guardian = account_of(tx.sender).guardian
    if guardian != (tx.guardian if tx.is_guarded else b""):
        raise Refused(
            "transaction is not executable and gas will not be consumed, "
            + ("not signed by the active guardian" if guardian else "the account is not guarded")
        )
    if tx.is_relayed and account_of(tx.relayer).guardian:
        raise Refused("guarded relayer not allowed")


def fee_payer(tx: Transaction) -> bytes:
    """Who pays the fee: the relayer of a relayed transaction, else the sender."""
    return tx.relayer or tx.sender


def _check_integrity(tx: Transaction, profile: NetworkProfile) -> None:
    if tx.version < 1 or (tx.version == 1 and tx.options):
        raise Refused("invalid transaction version")
    if not tx.signature:
        raise Refused("nil signature")
    if tx.value < 0:
        raise Refused("negative value")
    if len(tx.sender_username) > MAX_USERNAME or len(tx.receiver_username) > MAX_USERNAME:
        raise Refused("invalid user name length")
    if tx.chain_id != profile.chain_id:
        raise Refused("invalid chain ID")
    if len(tx.receiver) != 32:
        raise Refused("invalid receiver address")
    if len(tx.sender) != 32:
        raise Refused("invalid sender address")
    if tx.value > GENESIS_SUPPLY:
        raise Refused("tx value is too big")
    if len(tx.data) > MAX_DATA:
        raise Refused("data field too big")


def _check_gas(tx: Transaction, profile: NetworkProfile) -> None:
    gas = profile.gas
    if tx.gas_price < gas.min_gas_price:
        raise Refused("insufficient gas price in tx")
    if tx.gas_limit < move_gas(tx, gas):
        raise Refused("insufficient gas limit in tx")
    if tx.gas_limit > gas.max_gas_per_tx:
        raise Refused("more gas was provided than gas limit per mini block for safe cross shard")


def _check_relayed(tx: Transaction, profile: NetworkProfile) -> None:
    function = tx.data.split(b"@", 1)[0].decode("latin-1")
    if function in RELAYED_FUNCTIONS:
        # Calls of the older relayed versions are switched off, alone and nested.
        raise Refused("recursive relayed tx is not allowed" if tx.is_relayed else "relayed tx v1 and v2 are disabled")
    if not tx.is_relayed:
        return
    if len(tx.relayer) != len(tx.sender) or len(tx.relayer_signature) != SIGNATURE_SIZE:
        raise Refused("invalid relayed transaction")
    if profile.shard_of(tx.relayer) != profile.shard_of(tx.sender):
        raise Refused("shard ID missmatch")
    if tx.relayer == tx.guardian:
        raise Refused("relayed by guardian not allowed")


def _check_signatures(tx: Transaction) -> None:
    message = signing_message(tx)
    if not verify(tx.sender, message, tx.signature):
        raise Refused("ed25519: invalid signature")
    if tx.is_guarded and tx.version >= 2:
        if not verify(tx.guardian, message, tx.guardian_signature):
            raise Refused("invalid guardian signature")
    elif tx.guardian or tx.guardian_signature:
        raise Refused("guardian address or signature not expected")
    if tx.is_relayed and not verify(tx.relayer, message, tx.relayer_signature):
        raise Refused("invalid relayer signature")
