"""Running contract calls: the all-or-nothing around a contract's own code.

Who does what. The chain has already taken a call's payments from the sender (at the sender's shard) when it
runs `execute_call` at the contract's shard. A call that succeeds puts the payments into the contract; a
call that fails changes nothing at all, and the chain gives the payments back to the sender. Fees, nonces,
and the events `writeLog` and `completedTxEvent` are the chain's; the contract's own events, `signalError`
included, are in the result.
"""

import logging
from collections.abc import Sequence
from typing import Final

from millrace.chain.abi import AbiError
from millrace.dex.aggregator_contract import ProgramError
from millrace.dex.pool import PoolError
from millrace.dex.vault import VaultError
from millrace.localnet.contracts.calls import BlockInfo, CallResult, ContractCall, Event, Transfer
from millrace.localnet.contracts.frame import Arguments, ContractError, Frame, State
from millrace.localnet.contracts.ledger import LedgerError
from millrace.localnet.contracts.meter import LimitReached, OutOfGas, Usage

__all__ = [
    "BlockInfo",
    "CallResult",
    "ContractCall",
    "Event",
    "QueryError",
    "State",
    "Transfer",
    "execute_call",
    "query",
]

OK: Final = "ok"
EXECUTION_FAILED: Final = "execution failed"
OUT_OF_GAS: Final = "out of gas"
FUNCTION_NOT_FOUND: Final = "function not found"
CONTRACT_NOT_FOUND: Final = "contract not found"
UNCOUNTED: Final = Usage()

REVERTS: Final = (ContractError, VaultError, PoolError, ProgramError, LedgerError, AbiError, LimitReached)
"""What contracts, and the limits of a transaction, raise to revert; the text is for the caller."""

log = logging.getLogger(__name__)


class QueryError(Exception):
    """A view cannot answer; the text says why."""


def execute_call(state: State, call: ContractCall) -> CallResult:
    """Run a contract call on the state. Only a call that succeeds changes it. Never raises."""
    contract = state.contracts.get(call.receiver)
    if contract is None:
        return _failed(call, CONTRACT_NOT_FOUND, "invalid contract code (not found)")
    endpoint = contract.endpoints.get(call.function)
    if endpoint is None:
        return _failed(call, FUNCTION_NOT_FOUND, "invalid function (not found)")
    frame = Frame(state, call)
    checkpoint = state.ledger.checkpoint()
    try:
        frame.meter.prepare(contract.code_bytes)
        frame.meter.arguments(call.args)
        frame.take_payments()
        endpoint(frame)
    except OutOfGas as error:
        state.ledger.rollback(checkpoint)
        return _failed(call, OUT_OF_GAS, _gas_message(call.gas_limit, error.needed), frame.meter.usage)
    except REVERTS as error:
        state.ledger.rollback(checkpoint)
        return _failed(call, EXECUTION_FAILED, str(error), frame.meter.usage)
    except Exception:
        # A fault in a contract must fail that call alone, as a crash inside a virtual machine does.
        state.ledger.rollback(checkpoint)
        log.exception("contract fault", extra={"function": call.function})
        return _failed(call, EXECUTION_FAILED, "contract fault", frame.meter.usage)
    state.ledger.discard(checkpoint)
    return CallResult(
        True,
        OK,
        "",
        frame.meter.gas_used,
        tuple(frame.events),
        tuple(frame.transfers),
        tuple(frame.results),
        frame.meter.usage,
    )


def query(state: State, contract: bytes, function: str, args: Sequence[bytes] = ()) -> list[bytes]:
    """Ask a contract's view. Changes nothing. Raises `QueryError`."""
    code = state.contracts.get(contract)
    if code is None:
        raise QueryError("invalid contract code (not found)")
    view = code.views.get(function)
    if view is None:
        raise QueryError("invalid function (not found)")
    arguments = Arguments(args)
    try:
        answer = view(state, arguments)
        arguments.end()
    except REVERTS as error:
        raise QueryError(str(error)) from error
    except Exception as error:
        log.exception("contract fault", extra={"function": function})
        raise QueryError("contract fault") from error
    return answer


def stored(state: State, contract: bytes, key: bytes) -> bytes:
    """What a contract stores under a key; nothing, as everywhere on the chain, where nothing is stored."""
    code = state.contracts.get(contract)
    return b"" if code is None else code.stored(state).get(key, b"")


def _gas_message(limit: int, needed: int) -> str:
    return f"not enough gas: insufficient funds for execution, gas limit {limit}, needed at least {needed}"


def _failed(call: ContractCall, code: str, message: str, usage: Usage = UNCOUNTED) -> CallResult:
    """A failure burns all gas and logs one `signalError`: caller and message, the code in the data."""
    data = b"@" + code.encode().hex().encode()
    event = Event(call.receiver, "signalError", (call.sender, message.encode()), data)
    return CallResult(False, code, message, call.gas_limit, (event,), usage=usage)
