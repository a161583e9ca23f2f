"""Executing transactions and results in one shard, as nodes do.

The sender's shard takes nonce, fee and payments; the receiver's shard does the rest, at once when it is the
same one. The whole gas limit is charged first. What a call did not use comes back as a result with EGLD; a
failed call uses everything and gives the payments back.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

import msgspec

from millrace.chain import address
from millrace.chain.call import CallError, ParsedCall, TokenPayment, encode, parse_transfer
from millrace.chain.fees import fee_for_gas, initially_paid_fee, move_gas, processing_price
from millrace.chain.network import NetworkProfile
from millrace.chain.token import NATIVE
from millrace.chain.transaction import Transaction
from millrace.localnet import builtin
from millrace.localnet.admission import Refused, check_guardians, fee_payer
from millrace.localnet.block import INVALID_BLOCK, RESULT_BLOCK, TX_BLOCK, Content, FeeInfo, Item, Log, Receipt
from millrace.localnet.calls import CallResult, ContractCall, Event, State, Transfer
from millrace.localnet.execution import EXECUTION_FAILED, execute_call
from millrace.localnet.ledger import LedgerError
from millrace.localnet.results import OK_DATA, REFUND_FOR_RELAYER, Result, hash_of, split, transfer_data

DEVELOPER_SHARE: Final = 30
"""Percent of the fee of a contract's execution that goes to its developer."""
INSUFFICIENT_FUNDS: Final = "insufficient funds"


class Outcome(Enum):
    """What became of a transaction in its sender's shard."""

    EXECUTED = "executed"
    DROPPED = "dropped"
    """Never executable: it leaves the mempool without a trace on chain."""


class Processor:
    """Executes one block's items on a shard's state and writes down what happened in a `Content`."""

    def __init__(self, shard: int, profile: NetworkProfile, state: State, content: Content) -> None:
        self.shard = shard
        self._profile = profile
        self._state = state
        self._ledger = state.ledger
        self._content = content

    # The sender's shard

    def execute(self, tx: Transaction, tx_hash: bytes) -> Outcome:
        """Execute a transaction of this shard's sender, whose turn it is by nonce."""
        payer, fee = fee_payer(tx), initially_paid_fee(tx, self._profile.gas)
        try:
            check_guardians(tx, self._ledger.account)
        except Refused:
            return Outcome.DROPPED
        if self._ledger.balance_of(payer) < fee:
            return Outcome.DROPPED
        own_fee = 0 if tx.is_relayed else fee
        affordable = self._ledger.balance_of(tx.sender) >= tx.value + own_fee
        if tx.is_relayed and payer == tx.sender:
            affordable = self._ledger.balance_of(tx.sender) >= tx.value + fee
        self._ledger.debit(payer, NATIVE, fee)
        self._ledger.set_nonce(tx.sender, tx.nonce + 1)
        if tx.is_relayed:
            self._content.fee_payers.add(payer)
        self._content.number(tx_hash)
        self._content.gas_provided += tx.gas_limit
        info = FeeInfo(tx.gas_limit, fee, fee)
        if not affordable:
            self._invalid(tx, tx_hash, info, INSUFFICIENT_FUNDS)
            return Outcome.EXECUTED
        self._start(tx, tx_hash, info)
        return Outcome.EXECUTED

    def _start(self, tx: Transaction, tx_hash: bytes, info: FeeInfo) -> None:
        receiver_shard = self._profile.shard_of(tx.receiver)
        local = receiver_shard == self.shard
        try:
            parsed = parse_transfer(tx.sender, tx.receiver, tx.value, tx.data)
            tokens = split(parsed.payments)[1]
            if tokens or parsed.receiver != tx.receiver:
                builtin.check(parsed.payments)
                self._require_gas(tx, parsed)
            self._take(tx.sender, parsed.payments)
        except (CallError, LedgerError, _OutOfGas) as error:
            self._refuse_transfer(tx, tx_hash, info, error, local)
            return
        self._content.transactions[tx_hash] = tx, info
        self._send_on(tx_hash, TX_BLOCK, receiver_shard, tx)
        if parsed.receiver != tx.receiver and self._profile.shard_of(parsed.receiver) != self.shard:
            self._send_tokens_away(tx, tx_hash, info, parsed)
        elif local:
            self._finish(tx, tx_hash, info, parsed)
        else:
            self._leave(tx, tx_hash, info, parsed)

    def _require_gas(self, tx: Transaction, parsed: ParsedCall) -> None:
        if tx.gas_limit < move_gas(tx, self._profile.gas) + builtin.gas(parsed.payments):
            raise _OutOfGas("not enough gas: insufficient funds for execution")

    def _take(self, sender: bytes, payments: Sequence[TokenPayment]) -> None:
        if payments:
            builtin.send(self._ledger, sender, payments)

    def _leave(self, tx: Transaction, tx_hash: bytes, info: FeeInfo, parsed: ParsedCall) -> None:
        """The source part of a transaction that goes on in another shard."""
        tokens = split(parsed.payments)[1]
        if tokens:
            self._log(tx_hash, tx.sender, [builtin.event(tx.sender, parsed.receiver, tokens)])
        moving = move_gas(tx, self._profile.gas)
        if _is_plain(parsed):
            moving = tx.gas_limit  # a plain transfer pays for all the gas it names
        info.gas_used, info.fee = moving, fee_for_gas(tx, moving, self._profile.gas)
        self._content.fees += info.fee

    def _send_tokens_away(self, tx: Transaction, tx_hash: bytes, info: FeeInfo, parsed: ParsedCall) -> None:
        """A transfer of several tokens is sent to oneself; what leaves the shard is a result."""
        value, tokens = split(parsed.payments)
        used = move_gas(tx, self._profile.gas) + builtin.gas(parsed.payments)
        call = address.is_contract(parsed.receiver)
        gas_limit = tx.gas_limit - used if call else 0
        self._log(tx_hash, tx.sender, [builtin.event(tx.sender, parsed.receiver, parsed.payments, multi=True)])
        message = Result(
            nonce=tx.nonce,
            value=value,
            receiver=parsed.receiver,
            sender=tx.sender,
            prev_hash=tx_hash,
            original_hash=tx_hash,
            data=transfer_data(tokens, parsed.function, parsed.args),
            relayer=tx.relayer,
            gas_limit=gas_limit,
            gas_price=tx.gas_price if gas_limit else 0,
            original_sender=tx.sender,
        )
        self._emit(message)
        info.gas_used, info.fee = used, fee_for_gas(tx, used, self._profile.gas)
        self._content.fees += info.fee
        if not call:
            self._refund(tx, tx_hash, info, info.initially_paid - info.fee, tx.gas_limit - used)

    def _refuse_transfer(self, tx: Transaction, tx_hash: bytes, info: FeeInfo, error: Exception, local: bool) -> None:
        """A token transfer that cannot even begin: the fee is spent, the tokens stay."""
        reason = str(error)
        if local:
            self._content.transactions[tx_hash] = tx, info
            self._send_on(tx_hash, TX_BLOCK, self.shard, tx)
            self._content.fees += info.fee
            self._content.gas_penalized += tx.gas_limit
            self._fail(tx_hash, tx_hash, [_signal_error(tx.receiver, tx.sender, reason)], reason)
        else:
            self._invalid(tx, tx_hash, info, reason)

    def _invalid(self, tx: Transaction, tx_hash: bytes, info: FeeInfo, reason: str) -> None:
        self._content.invalid[tx_hash] = tx, info
        self._content.receipts.append(Receipt(info.fee, tx.sender, reason.encode(), tx_hash))
        self._content.failures[tx_hash] = reason
        self._content.fees += info.fee
        self._content.gas_penalized += tx.gas_limit
        self._send_on(tx_hash, INVALID_BLOCK, self.shard, tx)

    # The receiver's shard

    def arrive(self, tx: Transaction, tx_hash: bytes) -> None:
        """Execute, at its receiver's shard, a transaction that another shard sent."""
        self._content.number(tx_hash)
        gas = self._profile.gas
        initially_paid = initially_paid_fee(tx, gas)
        info = FeeInfo(tx.gas_limit, initially_paid, initially_paid)
        self._content.transactions[tx_hash] = tx, info
        parsed = parse_transfer(tx.sender, tx.receiver, tx.value, tx.data)
        paid_at_source = tx.gas_limit if _is_plain(parsed) else move_gas(tx, gas)
        self._finish(tx, tx_hash, info, parsed, already=fee_for_gas(tx, paid_at_source, gas))

    def _finish(self, tx: Transaction, tx_hash: bytes, info: FeeInfo, parsed: ParsedCall, already: int = 0) -> None:
        """The receiver's part; payments are on their way. `already` is the fee collected at the source."""
        tokens = split(parsed.payments)[1]
        overhead = move_gas(tx, self._profile.gas)
        events = []
        if tokens:
            overhead += builtin.gas(parsed.payments)
            multi = parsed.receiver != tx.receiver
            events.append(builtin.event(tx.sender, parsed.receiver, parsed.payments if multi else tokens, multi=multi))
        if _is_call(parsed):
            result = self._call(tx.sender, parsed, tx.value, tx.gas_limit - overhead)
            used = overhead + result.gas_used
        elif _is_plain(parsed):
            result, used = self._credit(parsed), tx.gas_limit
        else:
            result, used = self._credit(parsed), overhead
        info.gas_used, info.fee = used, fee_for_gas(tx, used, self._profile.gas)
        self._content.fees += info.fee - already
        if not result.ok:
            self._give_back(tx, tx_hash, parsed, result)
            return
        if _is_call(parsed):
            execution_fee = info.fee - fee_for_gas(tx, overhead, self._profile.gas)
            self._content.developer_fees += execution_fee * DEVELOPER_SHARE // 100
        events += result.events
        away = self._pay_out(result.transfers, tx_hash, tx_hash, tx.relayer, tx.sender)
        data = encode("", b"ok", *result.results) if _is_call(parsed) else OK_DATA
        away |= self._refund(tx, tx_hash, info, info.initially_paid - info.fee, tx.gas_limit - used, data)
        if _is_call(parsed):
            events.append(Event(tx.sender, "writeLog", (tx.sender,), data))
        if not away and not _is_plain(parsed):
            events.append(_completed(parsed.receiver, tx_hash))
        self._log(tx_hash, parsed.receiver, events)

    def _give_back(self, tx: Transaction, tx_hash: bytes, parsed: ParsedCall, result: CallResult) -> None:
        self._content.gas_penalized += result.gas_used
        self._fail(tx_hash, tx_hash, result.events, result.return_message)
        value, tokens = split(parsed.payments)
        back = self._result(tx_hash, tx_hash, parsed.receiver, tx.sender, value, nonce=tx.nonce)
        self._emit(_with_error(back, tokens, result.return_message))

    def arrive_result(self, result: Result, result_hash: bytes) -> None:
        """Execute a result that another shard sent."""
        self._content.number(result_hash)
        self._content.received.append(result_hash)
        info = FeeInfo()
        self._content.results[result_hash] = result, info
        parsed = parse_transfer(result.sender, result.receiver, result.value, result.data)
        events: list[Event] = []
        tokens = split(parsed.payments)[1]
        if tokens:
            events.append(builtin.event(result.sender, parsed.receiver, tokens))
        if result.gas_limit and _is_call(parsed):
            self._run_result(result, result_hash, info, parsed, events)
            return
        self._credit(parsed)
        if parsed.payments:
            events.append(_completed(parsed.receiver, result.prev_hash))
        self._log(result_hash, parsed.receiver, events)

    def _run_result(
        self, result: Result, result_hash: bytes, info: FeeInfo, parsed: ParsedCall, events: list[Event]
    ) -> None:
        """A result that calls a contract; its gas was paid at the source."""
        price = processing_price(result.gas_price, self._profile.gas)
        outcome = self._call(result.sender, parsed, result.value, result.gas_limit)
        paid = result.gas_limit * price
        info.gas_used, info.initially_paid, info.fee = outcome.gas_used, paid, outcome.gas_used * price
        self._content.gas_provided += result.gas_limit
        self._content.fees += info.fee
        original = result.original_hash
        if not outcome.ok:
            self._content.gas_penalized += result.gas_limit
            self._fail(result_hash, original, outcome.events, outcome.return_message)
            tokens = split(parsed.payments)[1]
            back = self._result(result_hash, original, parsed.receiver, result.sender, result.value)
            self._emit(_with_error(back, tokens, outcome.return_message))
            return
        self._content.developer_fees += info.fee * DEVELOPER_SHARE // 100
        events += outcome.events
        away = self._pay_out(outcome.transfers, result_hash, original, result.relayer, result.original_sender)
        away |= self._refund_result(result, result_hash, info, parsed.receiver)
        events.append(Event(result.sender, "writeLog", (result.sender,), encode("", b"ok", *outcome.results)))
        if not away:
            events.append(_completed(parsed.receiver, original))
        self._log(result_hash, parsed.receiver, events)

    def _refund_result(self, result: Result, result_hash: bytes, info: FeeInfo, contract: bytes) -> bool:
        amount = info.initially_paid - info.fee
        if not amount:
            return False
        info.had_refund, info.gas_refunded = True, result.gas_limit - info.gas_used
        self._content.gas_refunded += info.gas_refunded
        receiver = result.relayer or result.original_sender
        message = REFUND_FOR_RELAYER if result.relayer else b""
        refund = self._result(result_hash, result.original_hash, contract, receiver, amount, OK_DATA, message)
        return self._emit(refund)

    # Shared steps

    def _call(self, sender: bytes, parsed: ParsedCall, value: int, gas_limit: int) -> CallResult:
        """Run a contract; the payments have left the sender and reach the contract only if it succeeds."""
        return execute_call(
            self._state,
            ContractCall(sender, parsed.receiver, value, parsed.payments, parsed.function, parsed.args, gas_limit),
        )

    def _credit(self, parsed: ParsedCall) -> CallResult:
        """Add payments to an account; a full ledger opens none, and the transfer fails."""
        if parsed.payments:
            try:
                builtin.receive(self._ledger, parsed.receiver, parsed.payments)
            except LedgerError as error:
                event = _signal_error(parsed.receiver, parsed.receiver, str(error))
                return CallResult(False, EXECUTION_FAILED, str(error), 0, (event,))
            self._content.credited.add(parsed.receiver)
        return CallResult(True, "ok", "", 0)

    def _pay_out(
        self, transfers: Sequence[Transfer], prev: bytes, original: bytes, relayer: bytes, origin: bytes
    ) -> bool:
        """Results for what a contract paid; whether any of them goes to another shard."""
        away = False
        for transfer in transfers:
            payment = TokenPayment(transfer.token, transfer.nonce, transfer.amount)
            value, tokens = split([payment])
            result = self._result(prev, original, transfer.sender, transfer.receiver, value, transfer_data(tokens))
            if transfer.delivered:
                self._keep(result)
                self._content.credited.add(transfer.receiver)
            else:
                away |= self._emit(result)
        return away

    def _refund(
        self, tx: Transaction, tx_hash: bytes, info: FeeInfo, amount: int, gas: int, data: bytes = OK_DATA
    ) -> bool:
        """Give back the fee of unused gas to whoever paid it; whether that goes to another shard."""
        if not amount:
            return False
        info.had_refund, info.gas_refunded = True, gas
        self._content.gas_refunded += gas
        message = REFUND_FOR_RELAYER if tx.is_relayed else b""
        refund = self._result(tx_hash, tx_hash, tx.receiver, fee_payer(tx), amount, data, message, nonce=tx.nonce + 1)
        return self._emit(refund)

    def _result(
        self,
        prev: bytes,
        original: bytes,
        sender: bytes,
        receiver: bytes,
        value: int,
        data: bytes = b"",
        message: bytes = b"",
        nonce: int | None = None,
    ) -> Result:
        # Two payments alike would have the same hash; the nonce keeps them apart, as it does on the live chain.
        number = len(self._content.order) if nonce is None else nonce
        return Result(number, value, receiver, sender, prev, original, data, return_message=message)

    def _emit(self, result: Result) -> bool:
        """Let a result take effect here, or send it to the receiver's shard; whether it was sent."""
        shard = self._profile.shard_of(result.receiver)
        if shard == self.shard:
            parsed = parse_transfer(result.sender, result.receiver, result.value, result.data)
            self._credit(parsed)
            self._keep(result)
            return False
        result_hash = hash_of(result)
        self._content.number(result_hash)
        self._content.results[result_hash] = result, FeeInfo()
        self._send_on(result_hash, RESULT_BLOCK, shard, result)
        return True

    def _keep(self, result: Result) -> None:
        """Note a result that took effect in this shard."""
        result_hash = hash_of(result)
        self._content.number(result_hash)
        self._content.results[result_hash] = result, FeeInfo()
        self._content.local_results.append((result_hash, result))

    def send_grant(self, payer: bytes, receiver: bytes, token: str, amount: int, grant_hash: bytes) -> None:
        """Send what the faucet put into `payer` to an account of another shard."""
        payment = TokenPayment(token, 0, amount)
        builtin.send(self._ledger, payer, [payment])
        value, tokens = split([payment])
        self._emit(self._result(grant_hash, grant_hash, payer, receiver, value, transfer_data(tokens)))

    def _send_on(self, item_hash: bytes, kind: int, receiver_shard: int, item: Item) -> None:
        self._content.outgoing.setdefault((receiver_shard, kind), []).append((item_hash, item))

    def _fail(self, item_hash: bytes, original: bytes, events: Sequence[Event], reason: str) -> None:
        self._content.failures[original] = f"{EXECUTION_FAILED}: {reason}"
        self._log(item_hash, events[0].address if events else b"", events)

    def _log(self, item_hash: bytes, where: bytes, events: Sequence[Event]) -> None:
        if events:
            self._content.logs.append(Log(item_hash, where, tuple(events)))


class _OutOfGas(Exception):
    """The gas limit does not cover the transfer itself."""


def _is_call(parsed: ParsedCall) -> bool:
    return address.is_contract(parsed.receiver)


def _is_plain(parsed: ParsedCall) -> bool:
    """Whether this only moves EGLD to a user, with whatever words in the data."""
    return not address.is_contract(parsed.receiver) and not split(parsed.payments)[1]


def _completed(where: bytes, tx_hash: bytes) -> Event:
    return Event(where, "completedTxEvent", (tx_hash,))


def _signal_error(where: bytes, caller: bytes, reason: str) -> Event:
    return Event(where, "signalError", (caller, reason.encode()), b"@" + EXECUTION_FAILED.encode().hex().encode())


def _with_error(result: Result, tokens: Sequence[TokenPayment], reason: str) -> Result:
    data = transfer_data(tokens) or b"@" + EXECUTION_FAILED.encode().hex().encode()
    return msgspec.structs.replace(result, data=data, return_message=reason.encode())
