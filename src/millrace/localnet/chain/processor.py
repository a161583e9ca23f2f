"""Executes transactions and results on one shard's ledger and writes what happened into a block's content.

A transaction is charged and its payments are taken in its sender's shard; its call or transfer runs in the receiver's,
which is the same block when the shards are the same and a later one, through a miniblock, when they are not. What
contracts pay to other shards, refunds and returned payments travel as results in the same way.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from millrace.chain import call as calls
from millrace.chain import fees
from millrace.chain.address import ZERO, is_contract
from millrace.chain.call import CallError, ParsedCall, TokenPayment
from millrace.chain.network import NetworkProfile
from millrace.chain.shard import METACHAIN
from millrace.chain.token import NATIVE
from millrace.chain.transaction import Transaction
from millrace.localnet.chain.content import INVALID_BLOCK, RESULT_BLOCK, TX_BLOCK, Content, Result
from millrace.localnet.chain.payload import by_receiver, call_data, token_data
from millrace.localnet.contracts import builtin, guardians
from millrace.localnet.contracts.calls import CallResult, ContractCall, Event, Transfer
from millrace.localnet.contracts.execution import execute_call
from millrace.localnet.contracts.frame import State
from millrace.localnet.contracts.ledger import LedgerError

DEVELOPER_SHARE = 30  # percent of a call's processing fee
REFUND_TO_RELAYER = "gas refund for relayer"
OK_DATA = b"@6f6b"
INSUFFICIENT_FUNDS = "insufficient funds"
NOT_PAYABLE = "sending value to non payable contract"
USER_ERROR = "user error"

log = logging.getLogger(__name__)


class Job(msgspec.Struct, frozen=True):
    """A call or transfer that runs in its receiver's shard, whether a transaction or a result brought it."""

    item: bytes
    """Hash of the transaction or result that brings it."""
    original: bytes
    previous: bytes
    """What made that: of a transaction the same hash."""
    sender: bytes
    parsed: ParsedCall
    gas: int
    """Gas left for execution."""
    gas_price: int
    payer: bytes
    relayed: bool


class Processor:
    """Runs the items of one block of one shard. `logs_invalid` gives what is invalid a log in place of a receipt."""

    def __init__(
        self, network: NetworkProfile, shard: int, state: State, content: Content, *, logs_invalid: bool
    ) -> None:
        self._network = network
        self._shard = shard
        self._state = state
        self._ledger = state.ledger
        self._content = content
        self._logs_invalid = logs_invalid
        self._results = 0

    def execute_new(self, tx_hash: bytes, tx: Transaction) -> bool:
        """Execute a transaction of this shard's mempool at its source; `False` when it cannot even be charged."""
        payer, account = tx.relayer or tx.sender, self._ledger.account(tx.sender)
        fee = fees.initially_paid_fee(tx, self._network.gas)
        if account.nonce != tx.nonce or self._ledger.balance_of(payer) < fee:
            return False
        if tx.relayer and self._ledger.account(tx.relayer).guarding.on:
            return False
        try:
            guardians.check_signed(tx, account.guarding, self._ledger.epoch)
            self._ledger.set_nonce(tx.sender, tx.nonce + 1)
        except (guardians.GuardError, LedgerError):
            return False  # a full ledger opens no account, so this sender cannot begin
        self._ledger.debit(payer, NATIVE, fee)
        if tx.relayer:
            self._content.fee_only.add(tx.relayer)
        self._content.gas_provided += tx.gas_limit
        if self._ledger.balance_of(tx.sender) < tx.value:
            self._invalid(tx_hash, tx, fee)
            return True
        checkpoint = self._ledger.checkpoint()
        try:
            calls.check_transfer(tx)
            parsed = calls.payments_of(tx)
            payments = tuple(payment for payment in parsed.payments if payment.token != NATIVE or payment.amount)
            self._require_transfer_gas(tx, payments)
            if payments:
                builtin.send(self._ledger, tx.sender, payments)
            if _pays_contract(parsed) and self._is_here(parsed.receiver):
                raise builtin.TransferError(NOT_PAYABLE)
            if parsed.function in guardians.FUNCTIONS:
                self._change_guardians(tx, parsed)
        except (CallError, LedgerError, guardians.GuardError) as error:
            self._ledger.rollback(checkpoint)
            self._refuse_at_source(tx_hash, tx, fee, str(error))
            return True
        self._ledger.discard(checkpoint)
        self._route(tx_hash, tx, parsed, fee)
        if parsed.function in guardians.FUNCTIONS:
            self._content.log(tx_hash, tx.sender, Event(tx.sender, parsed.function, parsed.args))
        return True

    def execute_transaction(self, tx_hash: bytes, tx: Transaction, sender_shard: int) -> None:
        """Execute, at its destination, a transaction that a miniblock of another shard brought."""
        entry = self._content.add(tx_hash, tx, (sender_shard, self._shard, TX_BLOCK))
        entry.fee.initially_paid = fees.initially_paid_fee(tx, self._network.gas)
        self._run(self._job(tx_hash, tx, calls.payments_of(tx)))

    def execute_result(self, result_hash: bytes, result: Result, sender_shard: int) -> None:
        """Execute a result that a miniblock of another shard brought."""
        self._content.add(result_hash, result, (sender_shard, self._shard, RESULT_BLOCK))
        if result.function or is_contract(result.receiver):
            self._run(
                Job(
                    result_hash, result.original, result.previous, result.original_sender,
                    ParsedCall(result.receiver, result.payments, result.function, result.args),
                    result.gas_limit, result.gas_price, result.relayer or result.original_sender, bool(result.relayer),
                )
            )  # fmt: skip
            return
        self._credit(result.receiver, result.payments)
        if not result.payments:
            return
        self._log_tokens(result_hash, result.sender, result.receiver, result.payments)
        if result.is_refund or not result.return_message:
            self._content.complete(result_hash, result.receiver, result.previous)
            self._content.finish(result.original, "success")

    def execute_grant(self, payer: bytes, receiver: bytes, payment: TokenPayment, grant_hash: bytes) -> None:
        """Send what the faucet put into `payer` to its receiver, as a result: it travels where it must."""
        builtin.send(self._ledger, payer, (payment,))
        tokens = [payment] if payment.token != NATIVE else []
        self._emit(
            Result(
                nonce=0,
                sender=payer,
                receiver=receiver,
                data=token_data(receiver, tokens, None),
                original=grant_hash,
                previous=grant_hash,
                original_sender=payer,
                payments=(payment,),
            )
        )

    # At the source

    def _require_transfer_gas(self, tx: Transaction, payments: tuple[TokenPayment, ...]) -> None:
        tokens = _tokens(payments)
        if tokens and self._gas_left(tx, tokens) < 0:
            raise builtin.TransferError("not enough gas: insufficient funds for execution")

    def _change_guardians(self, tx: Transaction, parsed: ParsedCall) -> None:
        if self._gas_left(tx, ()) < guardians.GAS:
            raise guardians.GuardError("not enough gas was sent in the transaction")
        before, delay = self._ledger.account(tx.sender).guarding, self._state.guardian_epochs
        self._ledger.set_guarding(tx.sender, guardians.changed(tx, parsed, before, self._ledger.epoch, delay))

    def _route(self, tx_hash: bytes, tx: Transaction, parsed: ParsedCall, fee: int) -> None:
        here = self._shard
        target = here if self._is_here(parsed.receiver) else self._shard_of(parsed.receiver)
        through_self = parsed.receiver != tx.receiver
        entry = self._content.add(tx_hash, tx, (here, here if through_self or target == here else target, TX_BLOCK))
        entry.fee.initially_paid = fee
        if target == here:
            self._run(self._job(tx_hash, tx, parsed))
            return
        moving = fees.move_gas(tx, self._network.gas)
        # The rest of the fee is collected where the call runs; a plain transfer ends what there is to pay here.
        is_call = is_contract(parsed.receiver) and bool(parsed.function or _tokens(parsed.payments))
        here_fee = moving * tx.gas_price if is_call else fee
        entry.fee.gas_used, entry.fee.fee = moving, here_fee
        self._content.fees += here_fee
        self._log_tokens(tx_hash, tx.sender, parsed.receiver, parsed.payments)
        if through_self:
            self._send_on(tx_hash, tx, parsed)

    def _send_on(self, tx_hash: bytes, tx: Transaction, parsed: ParsedCall) -> None:
        """A transfer of several tokens goes to the sender itself; a result carries it to another shard."""
        tokens = _tokens(parsed.payments)
        self._emit(
            Result(
                nonce=tx.nonce,
                sender=tx.sender,
                receiver=parsed.receiver,
                data=call_data(parsed.receiver, tokens, parsed.function, parsed.args),
                original=tx_hash,
                previous=tx_hash,
                original_sender=tx.sender,
                payments=parsed.payments,
                function=parsed.function,
                args=parsed.args,
                gas_limit=self._gas_left(tx, parsed.payments),
                gas_price=tx.gas_price,
                relayer=tx.relayer,
            )
        )

    def _invalid(self, tx_hash: bytes, tx: Transaction, fee: int) -> None:
        self._charge_invalid(tx_hash, tx, fee, INSUFFICIENT_FUNDS)
        if self._logs_invalid:
            why = INSUFFICIENT_FUNDS.encode()
            self._content.log(tx_hash, tx.sender, Event(tx.sender, "signalError", (tx.sender, why), b"@" + why))
        self._content.finish(tx_hash, "fail", INSUFFICIENT_FUNDS)

    def _refuse_at_source(self, tx_hash: bytes, tx: Transaction, fee: int, why: str) -> None:
        """What cannot be paid, or not to a contract of this shard, is invalid, and a log says why: the fee is gone."""
        self._charge_invalid(tx_hash, tx, fee, why)
        self._content.log(tx_hash, tx.sender, _refusal(tx.sender, tx.receiver, why, why))
        self._content.finish(tx_hash, "fail", f"execution failed: {why}")

    def _charge_invalid(self, tx_hash: bytes, tx: Transaction, fee: int, why: str) -> None:
        entry = self._content.add(tx_hash, tx, (self._shard, self._shard, INVALID_BLOCK))
        entry.invalid = why
        entry.fee.gas_used, entry.fee.fee, entry.fee.initially_paid = tx.gas_limit, fee, fee
        self._content.fees += fee
        self._content.gas_penalized += tx.gas_limit

    # At the destination

    def _job(self, tx_hash: bytes, tx: Transaction, parsed: ParsedCall) -> Job:
        return Job(
            tx_hash, tx_hash, tx_hash, tx.sender, parsed, self._gas_left(tx, parsed.payments), tx.gas_price,
            tx.relayer or tx.sender, bool(tx.relayer),
        )  # fmt: skip

    def _gas_left(self, tx: Transaction, payments: Sequence[TokenPayment]) -> int:
        """Gas for execution, after moving the transaction and its tokens."""
        tokens = _tokens(payments)
        return tx.gas_limit - fees.move_gas(tx, self._network.gas) - builtin.gas(tokens)

    def _run(self, job: Job) -> None:
        if _pays_contract(job.parsed):
            self._refuse(job)
        elif is_contract(job.parsed.receiver):
            self._call(job)
        else:
            self._transfer(job)

    def _transfer(self, job: Job) -> None:
        parsed = job.parsed
        self._credit(parsed.receiver, parsed.payments)
        self._log_tokens(job.item, job.sender, parsed.receiver, parsed.payments)
        if any(payment.token != NATIVE for payment in parsed.payments):
            self._content.complete(job.item, parsed.receiver, job.previous)
        entry = self._content.entries[job.item]
        if isinstance(entry.item, Transaction) and self._shard_of(entry.item.sender) == self._shard:
            entry.fee.gas_used, entry.fee.fee = entry.item.gas_limit, entry.fee.initially_paid
            self._content.fees += entry.fee.initially_paid
        self._content.finish(job.original, "success")

    def _call(self, job: Job) -> None:
        parsed = job.parsed
        value = sum(payment.amount for payment in parsed.payments if payment.token == NATIVE)
        call = ContractCall(
            job.sender, parsed.receiver, value, parsed.payments, parsed.function, parsed.args, max(job.gas, 0)
        )
        if job.gas <= 0:
            message = "not enough gas: insufficient funds for execution"
            result = CallResult(False, "out of gas", message, 0)
        else:
            result = execute_call(self._state, call)
        self._log_tokens(job.item, job.sender, parsed.receiver, parsed.payments)
        if result.ok:
            self._succeed(job, result)
        else:
            self._fail(job, result)

    def _succeed(self, job: Job, result: CallResult) -> None:
        parsed = job.parsed
        self._content.log(job.item, parsed.receiver, *result.events)
        leaving = self._pay_out(job, result.transfers)
        returned = OK_DATA + b"".join(b"@" + value.hex().encode() for value in result.results)
        refund = self._charge(job, result.gas_used, returned)
        if refund is None or job.relayed:  # else the refund carries it; what has no value is only noted
            self._content.log(job.item, parsed.receiver, Event(parsed.receiver, "writeLog", (job.sender,), returned))
        if not leaving and (refund is None or self._shard_of(refund) == self._shard):
            self._content.complete(job.item, parsed.receiver, job.previous)
            self._content.finish(job.original, "success")

    def _fail(self, job: Job, result: CallResult) -> None:
        """Give the payments back and say why; all gas is gone."""
        message = result.return_message
        self._content.log_failure(job.item, job.sender, job.parsed.receiver, result.return_code, message)
        self._content.gas_penalized += max(job.gas, 0)
        self._give_back(job, result.return_code, message)
        self._charge(job, job.gas, None)
        self._content.finish(job.original, "fail", f"execution failed: {message}")

    def _refuse(self, job: Job) -> None:
        """Give back what was only to be paid to a contract: none of this chain takes payments.

        Of EGLD alone the fee was taken at the source, as of any transfer; tokens are moved by a function of the chain,
        whose gas is paid here.
        """
        has_tokens = bool(_tokens(job.parsed.payments))
        code = USER_ERROR if has_tokens else NOT_PAYABLE
        self._content.log(job.item, job.sender, _refusal(job.sender, job.parsed.receiver, code, NOT_PAYABLE))
        self._give_back(job, code, NOT_PAYABLE)
        if has_tokens:
            self._content.gas_penalized += max(job.gas, 0)
            self._charge(job, job.gas, None)
        self._content.finish(job.original, "fail", f"execution failed: {NOT_PAYABLE}")

    def _give_back(self, job: Job, return_code: str, message: str) -> None:
        parsed, code = job.parsed, return_code.encode()
        home = self._shard_of(job.sender)
        tokens = _tokens(parsed.payments)
        payments: tuple[TokenPayment, ...] = ()
        if home == self._shard:
            self._credit(job.sender, parsed.payments)
            data = b"@" + code.hex().encode() + b"@" + job.original.hex().encode()
        else:
            data, payments = token_data(job.sender, tokens, code), parsed.payments
        self._emit(
            Result(
                nonce=0,
                sender=parsed.receiver,
                receiver=job.sender,
                data=data,
                original=job.original,
                previous=job.item,
                original_sender=job.sender,
                payments=payments,
                return_message=message or return_code,
            )
        )

    def _pay_out(self, job: Job, transfers: tuple[Transfer, ...]) -> bool:
        """Results for what the contract paid; whether any of them leaves the shard."""
        leaving = False
        for (sender, receiver, delivered), payments in by_receiver(transfers).items():
            tokens = _tokens(payments)
            self._emit(
                Result(
                    nonce=0,
                    sender=sender,
                    receiver=receiver,
                    data=token_data(receiver, tokens, None),
                    original=job.original,
                    previous=job.item,
                    original_sender=job.sender,
                    payments=payments,
                ),
                delivered=delivered,
            )
            leaving = leaving or not delivered
        return leaving

    def _charge(self, job: Job, gas_used: int, returned: bytes | None) -> bytes | None:
        """Collect the fee of the gas that was used and refund the rest to whoever paid: that one, if there is a refund.

        `returned` is what a call that succeeded gave back, and `None` of one that failed.
        """
        price = fees.processing_price(job.gas_price, self._network.gas)
        entry = self._content.entries[job.item]
        refunded = self._refunded_gas(job, gas_used) if returned is not None else 0
        collected = self._processing_fee(job, refunded, price)
        self._content.fees += collected
        if returned is not None:
            self._content.developer_fees += gas_used * price * DEVELOPER_SHARE // 100
        entry.fee.gas_refunded = refunded
        entry.fee.fee += collected
        if isinstance(entry.item, Transaction):
            entry.fee.gas_used = entry.item.gas_limit - refunded
        if returned is None or not refunded * price:
            return None
        self._content.gas_refunded += refunded
        self._emit(
            Result(
                nonce=1,
                sender=job.parsed.receiver,
                receiver=job.payer,
                data=b"" if job.relayed else returned,
                original=job.original,
                previous=job.item,
                original_sender=job.sender,
                payments=(TokenPayment(NATIVE, 0, refunded * price),),
                gas_price=job.gas_price,
                return_message=REFUND_TO_RELAYER if job.relayed else "",
                is_refund=True,
            )
        )
        return job.payer

    def _refunded_gas(self, job: Job, gas_used: int) -> int:
        """The gas given back: nothing when far more was given than needed, as nodes take that for an attack."""
        left = max(job.gas, 0) - gas_used
        tx = self._content.entries[job.item].item
        if isinstance(tx, Transaction):
            return tx.gas_limit - fees.charged_gas(tx, tx.gas_limit - left, self._network.gas)
        return left if max(job.gas, 0) <= gas_used * self._network.gas.max_gas_surplus_factor else 0

    def _processing_fee(self, job: Job, refunded: int, price: int) -> int:
        """What this shard collects: all that was paid and not collected at the source, less the refund."""
        entry = self._content.entries[job.item]
        if isinstance(entry.item, Transaction):
            tx = entry.item
            paid = fees.initially_paid_fee(tx, self._network.gas)
            if self._shard_of(tx.sender) != self._shard:
                paid -= fees.move_gas(tx, self._network.gas) * tx.gas_price
            return paid - refunded * price
        # The result carries what a call through the sender's own account had left; the tokens' own gas goes along.
        tokens = _tokens(job.parsed.payments)
        return (max(job.gas, 0) + builtin.gas(tokens) - refunded) * price

    # Small parts

    def _emit(self, result: Result, *, delivered: bool = False) -> None:
        """Put a result into the block; one for this shard takes effect now, unless it has (`delivered`)."""
        self._results += 1
        numbered = msgspec.structs.replace(result, nonce=result.nonce + self._results)
        target = self._shard_of(result.receiver)
        self._content.add(
            numbered.hash(), numbered, None if target == self._shard else (self._shard, target, RESULT_BLOCK)
        )
        if target == self._shard and not delivered:
            self._credit(result.receiver, result.payments)
        if delivered:
            self._content.credited.add(result.receiver)

    def _shard_of(self, pubkey: bytes) -> int:
        """The shard of an address; system contracts, which this chain does not run, count to shard 0."""
        shard = self._network.shard_of(pubkey)
        return 0 if shard == METACHAIN else shard

    def _is_here(self, receiver: bytes) -> bool:
        """Whether what goes to an address runs here: to the zero address where its sender lives, as deployments do."""
        return receiver == ZERO or self._shard_of(receiver) == self._shard

    def _credit(self, receiver: bytes, payments: tuple[TokenPayment, ...]) -> None:
        """Add payments to an account. A full ledger opens none; what was meant for a new one is then lost."""
        if not payments:
            return
        try:
            builtin.receive(self._ledger, receiver, payments)
        except LedgerError as error:
            log.warning("payments burnt", extra={"receiver": receiver.hex(), "why": str(error)})
            return
        self._content.credited.add(receiver)

    def _log_tokens(self, item: bytes, sender: bytes, receiver: bytes, payments: tuple[TokenPayment, ...]) -> None:
        tokens = _tokens(payments)
        if tokens:
            self._content.log(item, sender, builtin.event(sender, receiver, tokens))


def _pays_contract(parsed: ParsedCall) -> bool:
    """Whether it pays a contract and calls nothing: for nodes that is a transfer, and no call."""
    return is_contract(parsed.receiver) and not parsed.function


def _tokens(payments: Sequence[TokenPayment]) -> list[TokenPayment]:
    return [payment for payment in payments if payment.token != NATIVE]


def _refusal(sender: bytes, receiver: bytes, code: str, why: str) -> Event:
    return Event(receiver, "signalError", (sender, why.encode()), b"@" + code.encode().hex().encode())
