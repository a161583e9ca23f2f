"""What a gateway says that a quote's transaction would do, if it were sent now.

The quote stands without it: where the gateway is slow, down, or asked too much already, the answer says so instead.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import aiohttp
import msgspec

from millrace.aggregator.responses import Simulation, UnsignedTransaction
from millrace.aggregator.settings import AggregatorSettings

log = logging.getLogger(__name__)

MAX_WAITING = 32
"""Most simulations under way; each asks the gateway three questions."""
MAX_ANSWER = 1 << 20
"""Bytes of an answer that are read; the results of a plan that fills a transaction take a tenth."""
LONGEST_REASON = 300
NO_SIGNATURE = "00" * 64
"""Nodes want one of the right length, and are asked not to look at it."""
SIGNALS = ("signalError", "internalVMErrors")
"""Events of a call that reverts."""


class _Account(msgspec.Struct):
    nonce: int


class _AccountData(msgspec.Struct):
    account: _Account


class _Result(msgspec.Struct, rename={"return_message": "returnMessage"}):
    return_message: str = ""


class _Event(msgspec.Struct):
    identifier: str = ""


class _Logs(msgspec.Struct):
    events: list[_Event] = []


class _Outcome(msgspec.Struct, rename={"fail_reason": "failReason", "results": "scResults"}):
    """Of one shard."""

    status: str = ""
    fail_reason: str = ""
    results: dict[str, _Result] | None = None
    logs: _Logs | None = None


class _Outcomes(_Outcome, rename={"sender_shard": "senderShard", "receiver_shard": "receiverShard"}):
    """Of the transaction, or of it in both of its shards."""

    sender_shard: _Outcome | None = None
    receiver_shard: _Outcome | None = None


class _SimulationData(msgspec.Struct):
    result: _Outcomes


class _Cost(msgspec.Struct, rename="camel"):
    tx_gas_units: int = 0
    return_message: str = ""


class _Refused(Exception):
    """The gateway answered that it cannot; the text is its own."""


class Simulations:
    """Asks `POST {gateway}/transaction/simulate` and `/transaction/cost`. Without a gateway nobody can."""

    def __init__(self, settings: AggregatorSettings) -> None:
        self._url = settings.gateway.rstrip("/")
        self._seconds = settings.simulation_timeout
        self._session: aiohttp.ClientSession | None = None
        self.waiting = 0
        self.missed = 0
        """Simulations without a result, those not asked for included."""

    async def of(self, transaction: UnsignedTransaction) -> Simulation:
        """How a transaction would end. Never raises for what a gateway does."""
        if self.waiting >= MAX_WAITING:
            return self._unknown("too many simulations are under way")
        self.waiting += 1
        try:
            async with asyncio.timeout(self._seconds):
                return await self._asked(transaction)
        except TimeoutError:
            return self._unknown(f"the gateway did not answer within {self._seconds:g} s")
        except _Refused as error:
            return self._unknown(f"the gateway refused: {error}")
        except (aiohttp.ClientError, OSError, msgspec.DecodeError, ValueError, RecursionError) as error:
            log.debug("no simulation", extra={"reason": str(error) or type(error).__name__})
            return self._unknown("the gateway did not answer in its usual form")
        finally:
            self.waiting -= 1

    def _unknown(self, reason: str) -> Simulation:
        self.missed += 1
        return Simulation(status="unknown", reason=reason[:LONGEST_REASON])

    async def _asked(self, transaction: UnsignedTransaction) -> Simulation:
        account = await self._ask("GET", f"/address/{transaction.sender}", None, _AccountData)
        asked = _signed(transaction, account.account.nonce)
        told, cost = await asyncio.gather(
            self._ask("POST", "/transaction/simulate?checkSignature=false", asked, _SimulationData),
            self._ask("POST", "/transaction/cost", asked | {"gasLimit": 0}, _Cost),
        )
        outcomes = [told.result.receiver_shard, told.result.sender_shard, told.result]
        reason = next((why for outcome in outcomes if outcome and (why := _failure(outcome))), "")
        if reason:
            return Simulation(status="fail", reason=reason[:LONGEST_REASON])
        decisive = next(outcome for outcome in outcomes if outcome)  # of the shard where the call runs
        if decisive.status != "success":
            return self._unknown(f"the gateway calls it {decisive.status[:40] or 'nothing'}")
        return Simulation(status="success", gas_used=cost.tx_gas_units or msgspec.UNSET)

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None, kind: type[Any]) -> Any:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json"}
        async with self._session.request(method, self._url + path, data=data, headers=headers) as answer:
            raw = await answer.content.read(MAX_ANSWER)
            while len(raw) < MAX_ANSWER and (more := await answer.content.read(MAX_ANSWER - len(raw))):
                raw += more
        envelope = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        error = msgspec.json.decode(envelope.get("error", msgspec.Raw(b'""')), type=str | None)
        if error:
            raise _Refused(error)
        if answer.status != 200 or "data" not in envelope:
            raise ValueError(f"status {answer.status}")
        return msgspec.json.decode(envelope["data"], type=kind)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()


def _signed(transaction: UnsignedTransaction, nonce: int) -> dict[str, Any]:
    return {
        "nonce": nonce,
        "value": transaction.value,
        "receiver": transaction.receiver,
        "sender": transaction.sender,
        "gasPrice": transaction.gas_price,
        "gasLimit": transaction.gas_limit,
        "data": transaction.data,
        "chainID": transaction.chain_id,
        "version": transaction.version,
        "signature": NO_SIGNATURE,
    }


def _failure(outcome: _Outcome) -> str:
    """Why a transaction fails in a shard; nothing where it does not.

    A call that reverts is told by what it returns and logs: a node's own status is of the transaction around it.
    """
    if outcome.status == "fail" or outcome.fail_reason:
        return outcome.fail_reason or "the node gave no reason"
    if any(event.identifier in SIGNALS for event in (outcome.logs.events if outcome.logs else ())):
        said = [result.return_message for result in (outcome.results or {}).values() if result.return_message]
        return said[0] if said else "execution failed"
    return ""
