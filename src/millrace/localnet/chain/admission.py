"""What a node checks before a transaction enters its mempool (mx-chain-go: interceptor and pool admission)."""

from __future__ import annotations

from millrace.chain import address, fees
from millrace.chain.call import RELAYED_FUNCTIONS, CallError, names_guardian, parse
from millrace.chain.keys import verify
from millrace.chain.network import NetworkProfile
from millrace.chain.shard import METACHAIN
from millrace.chain.transaction import Transaction, signing_message
from millrace.localnet.contracts import guardians
from millrace.localnet.contracts.ledger import Ledger

MAX_NONCE_GAP = 100
GENESIS_SUPPLY = 20_000_000 * 10**18


class Refused(Exception):
    """The transaction does not enter the mempool; the text is the node's own."""


def check(tx: Transaction, network: NetworkProfile, ledger: Ledger, *, signed: bool = True) -> None:
    """Raise `Refused` unless the transaction may wait in the mempool of its sender's shard.

    Without `signed` no signature is looked at: for what is only simulated.
    """
    _check_integrity(tx, network)
    if signed:
        message = signing_message(tx)
        _check_signatures(tx, message)
        _check_relayed(tx, network, message)
    _check_state(tx, network, ledger)


def _check_integrity(tx: Transaction, network: NetworkProfile) -> None:
    gas = network.gas
    if tx.version < 1 or (tx.version == 1 and tx.options):
        raise Refused("invalid transaction version")
    if not tx.signature:
        raise Refused("nil signature")
    if tx.chain_id != network.chain_id:
        raise Refused("invalid chain ID")
    if len(tx.receiver) != address.SIZE or len(tx.sender) != address.SIZE:
        raise Refused("invalid receiver or sender address")
    if tx.gas_price > gas.max_price_set_guardian and names_guardian(tx):
        raise Refused("gas price is too high for the transaction")
    if tx.gas_price < gas.min_gas_price:
        raise Refused("insufficient gas price in tx")
    if tx.gas_limit < fees.move_gas(tx, gas):
        raise Refused("insufficient gas limit in tx")
    if tx.gas_limit > gas.max_gas_per_tx:
        raise Refused("more gas was provided than gas limit per mini block for safe cross shard")
    if not 0 <= tx.value <= GENESIS_SUPPLY:
        raise Refused("tx value is too big")


def _check_relayed(tx: Transaction, network: NetworkProfile, message: bytes) -> None:
    if not tx.is_relayed:
        return
    if not tx.relayer or not tx.relayer_signature:
        raise Refused("invalid relayed transaction")
    shard = network.shard_of(tx.sender)
    if shard != network.shard_of(tx.relayer) or shard == METACHAIN:
        raise Refused("shard ID missmatch")
    if tx.relayer == tx.guardian:
        raise Refused("relayed by guardian not allowed")
    try:
        nested = parse(tx.data).function in RELAYED_FUNCTIONS
    except CallError:
        nested = False
    if nested:
        raise Refused("recursive relayed tx is not allowed")
    if not verify(tx.relayer, message, tx.relayer_signature):
        raise Refused("inner transaction: ed25519: invalid signature")


def _check_signatures(tx: Transaction, message: bytes) -> None:
    if not verify(tx.sender, message, tx.signature):
        raise Refused("ed25519: invalid signature")
    if tx.is_guarded:
        if not verify(tx.guardian, message, tx.guardian_signature):
            raise Refused("ed25519: invalid guardian signature")
    elif tx.guardian or tx.guardian_signature:
        raise Refused("guardian address or signature not expected")


def _check_state(tx: Transaction, network: NetworkProfile, ledger: Ledger) -> None:
    if tx.sender not in ledger.accounts and (tx.value or not tx.relayer):
        # Only without value may a relayer bring an account to life.
        raise Refused(f"insufficient funds for address {address.encode(tx.sender)}")
    account = ledger.account(tx.sender)
    if tx.nonce < account.nonce:
        raise Refused("invalid transaction lowerNonceInTx: true, veryHighNonceInTx: false")
    if tx.nonce > account.nonce + MAX_NONCE_GAP:
        raise Refused("invalid transaction lowerNonceInTx: false, veryHighNonceInTx: true")
    payer = tx.relayer or tx.sender
    fee, balance = fees.initially_paid_fee(tx, network.gas), ledger.balance_of(payer)
    if balance < fee:
        raise Refused(f"insufficient funds, for address: {address.encode(payer)}, wanted {fee}, have {balance}")
    try:
        guardians.check_signed(tx, account.guarding, ledger.epoch)
    except guardians.GuardError as error:
        raise Refused(f"transaction is not executable and gas will not be consumed, {error}") from None
    if tx.relayer and ledger.account(tx.relayer).guarding.on:
        raise Refused("guarded relayer not allowed")
