"""The gateway's simulations decide whether inputs share a transaction."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import msgspec
import pytest

from millrace.aggregator import errors
from millrace.aggregator.batch_responses import BatchInput, MultiSwapResponse, SwapBatch
from millrace.aggregator.responses import Simulation, SnapshotInfo, UnsignedTransaction
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.sharing import HOLDS_SECONDS, MOST_PASSED_OVER, PASSED_OVER_SECONDS, Sharing
from millrace.aggregator.simulation import Simulations
from millrace.aggregator.transactions import unsigned
from millrace.chain.address import encode

WITH = AggregatorSettings(gateway="http://127.0.0.1:1")
TOKENS = ("AAA-000001", "BBB-000002", "CCC-000003")


class Gateway(Simulations):
    """One whose contract takes so many payments, for a sender who owns some tokens."""

    def __init__(
        self,
        payments: int,
        owned: tuple[str, ...] = TOKENS,
        down: bool = False,
        reason: str = "incorrect number of transfers",
    ) -> None:
        super().__init__(WITH)
        self.reason = reason
        self.payments, self.owned, self.down = payments, owned, down
        self.asked = 0

    async def of(self, transaction: UnsignedTransaction) -> Simulation:
        self.asked += 1
        tokens = base64.b64decode(transaction.data).decode().split(",")
        if self.down:
            return Simulation(status="unknown", reason="down")
        if len(tokens) > self.payments or not {*tokens} <= {*self.owned}:
            return Simulation(status="fail", reason=self.reason)
        return Simulation(status="success")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def batch(number: int, tokens: tuple[str, ...], sender: str) -> SwapBatch:
    data = base64.b64encode(",".join(tokens).encode()).decode()
    made: Any = msgspec.UNSET
    if sender:
        made = unsigned(WITH, sender=sender, receiver=sender, value=0, data=data, gas_limit=1, nonce=number)
    return SwapBatch(
        batch_index=number, inputs=[BatchInput(token=token, amount="1", amount_short=1.0) for token in tokens],
        amount_out="1", amount_out_short=1.0, amount_out_min="1", amount_out_min_short=1.0, routes=[],
        tx_data="", estimated_gas_limit=1, estimated_builtin_calls=1, transaction=made,
    )  # fmt: skip


async def made(settings: AggregatorSettings, sender: str = WITH.contract) -> MultiSwapResponse:
    """What is answered with these settings: all inputs in one transaction, or each in one."""
    groups = [TOKENS] if settings.inputs_per_transaction > 1 else [(token,) for token in TOKENS]
    return MultiSwapResponse(
        to="X", amount_out="1", amount_out_short=1.0, amount_out_min="1", amount_out_min_short=1.0,
        slippage=settings.default_slippage, fee_bps=0, fee_amount="0", fee_amount_short=0.0, failed_tokens=[],
        batches=[batch(number, group, sender) for number, group in enumerate(groups)],
        snapshot=SnapshotInfo(id="", block_nonce=0, timestamp=0),
    )  # fmt: skip


async def without_sender(settings: AggregatorSettings) -> MultiSwapResponse:
    return await made(settings, "")


async def test_a_contract_that_takes_one_payment_gets_each_input_alone() -> None:
    """From the first answer on, without more questions, until what was seen is old; then a newer one is found out."""
    gateway, clock = Gateway(1), Clock()
    sharing = Sharing(WITH, gateway, clock)
    assert len((await sharing.answer(made)).batches) == 3
    assert sharing.settings.inputs_per_transaction == 1
    asked = gateway.asked
    assert len((await sharing.answer(made)).batches) == 3
    assert gateway.asked == asked == 4
    clock.now, gateway.payments = HOLDS_SECONDS, 10
    assert len((await sharing.answer(made)).batches) == 1
    assert sharing.settings.inputs_per_transaction == WITH.inputs_per_transaction


async def test_a_contract_that_takes_several_payments_is_asked_about_once() -> None:
    """It is known for an hour that sharing works."""
    gateway = Gateway(10)
    sharing = Sharing(WITH, gateway, Clock())
    for _ in range(3):
        assert len((await sharing.answer(made)).batches) == 1
    assert gateway.asked == 1


@pytest.mark.parametrize(
    "gateway", [Gateway(10, owned=TOKENS[:2]), Gateway(1, owned=TOKENS[:2]), Gateway(1, down=True)]
)
async def test_a_failure_for_another_reason_changes_nothing(gateway: Gateway) -> None:
    """A sender who lacks a token, or a gateway that does not answer, does not decide for others."""
    sharing = Sharing(WITH, gateway, Clock())
    assert len((await sharing.answer(made)).batches) == 1
    assert sharing.settings is WITH


@pytest.mark.parametrize(
    "reason",
    ["insufficient funds", "Slippage limit exceeded: have 1, need 2", "not enough gas", "lack of funds for the fee"],
)
async def test_who_cannot_pay_for_all_at_once_does_not_decide_for_others(reason: str) -> None:
    """A failure of all inputs together that the sender or the market brings about says nothing of the contract, and is
    not asked for again at once."""
    gateway = Gateway(1, reason=reason)
    sharing = Sharing(WITH, gateway, Clock())
    for _ in range(2):
        assert len((await sharing.answer(made)).batches) == 1
    assert sharing.settings is WITH and gateway.asked == 1


async def test_without_gateway_or_sender_the_setting_holds() -> None:
    """Nobody is asked."""
    gateway = Gateway(1)
    assert len((await Sharing(WITH, gateway, Clock()).answer(without_sender)).batches) == 1
    assert len((await Sharing(AggregatorSettings(), gateway, Clock()).answer(made)).batches) == 1
    assert gateway.asked == 0


async def test_who_asks_meanwhile_is_answered() -> None:
    """Several first requests at once all get an answer that works."""
    sharing = Sharing(WITH, Gateway(1), Clock())
    answers = await asyncio.gather(*[sharing.answer(made) for _ in range(4)])
    assert [len(answer.batches) for answer in answers] == [3] * 4


async def test_a_second_try_that_is_refused_costs_no_answer() -> None:
    """Where there is no time to plan each input alone, what was planned together is the answer."""

    async def once(settings: AggregatorSettings) -> MultiSwapResponse:
        if settings.inputs_per_transaction == 1:
            raise errors.busy()
        return await made(settings)

    gateway = Gateway(1)
    sharing = Sharing(WITH, gateway, Clock())
    for _ in range(2):
        assert len((await sharing.answer(once)).batches) == 1
    assert sharing.settings is WITH and gateway.asked == 1


async def test_whose_transactions_tell_nothing_is_not_asked_about_for_a_while() -> None:
    """One sender who lacks tokens costs one second search a minute; for another sender it is tried all the same."""
    gateway, clock, asked = Gateway(1, owned=TOKENS[:2]), Clock(), []

    async def counted(settings: AggregatorSettings) -> MultiSwapResponse:
        asked.append(settings.inputs_per_transaction)
        return await made(settings)

    sharing = Sharing(WITH, gateway, clock)
    for _ in range(3):
        assert len((await sharing.answer(counted)).batches) == 1
    assert (asked.count(1), gateway.asked) == (1, 4)
    gateway.owned = TOKENS
    clock.now = PASSED_OVER_SECONDS
    assert len((await sharing.answer(counted)).batches) == 3


async def test_senders_passed_over_are_bounded() -> None:
    """Whoever makes up senders fills no memory."""
    sharing = Sharing(WITH, Gateway(1, owned=()), Clock())
    for number in range(MOST_PASSED_OVER + 5):

        async def of_one(
            settings: AggregatorSettings, name: str = encode(number.to_bytes(32, "big"))
        ) -> MultiSwapResponse:
            return await made(settings, name)

        await sharing.answer(of_one)
    assert len(sharing._passed_over) == MOST_PASSED_OVER


async def test_the_first_transaction_of_several_inputs_tells_wherever_it_is() -> None:
    """One with a single input before it, as a dear route fills its call, hides nothing."""

    async def later(settings: AggregatorSettings) -> MultiSwapResponse:
        whole = await made(settings)
        if settings.inputs_per_transaction == 1:
            return whole
        groups = [TOKENS[:1], TOKENS[1:]]
        return msgspec.structs.replace(
            whole, batches=[batch(number, group, WITH.contract) for number, group in enumerate(groups)]
        )

    gateway = Gateway(1)
    sharing = Sharing(WITH, gateway, Clock())
    assert [len(one.inputs) for one in (await sharing.answer(later)).batches] == [1, 1, 1]
    assert sharing.settings.inputs_per_transaction == 1 and gateway.asked == 3
    assert len((await Sharing(WITH, Gateway(10), Clock()).answer(later)).batches) == 2
