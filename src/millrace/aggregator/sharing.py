"""Whether inputs may share a transaction: contracts older than the newest take one payment a call, and revert on more.

Where there is a gateway it decides, by transactions that somebody asks for: if the first one with several inputs fails
in its simulation, and each of these inputs passes alone, every input gets a transaction of its own from then on. What
was seen holds for an hour, so that a contract that is replaced is found out. As it holds for all clients, a failure
that a sender or the market can bring about does not count: who sells nearly all of his EGLD can pay for each
transaction alone, and not for a larger one with everything in it. Whose transactions tell nothing is passed over for a
minute.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from millrace.aggregator.batch_responses import MultiSwapResponse, SwapBatch
from millrace.aggregator.errors import ApiError
from millrace.aggregator.responses import Simulation
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.simulation import Simulations

HOLDS_SECONDS = 3600.0
PASSED_OVER_SECONDS = 60.0
MOST_PASSED_OVER = 1000
"""Senders remembered; beyond, the one passed over for longest is asked about again."""
OTHER_REASONS = ("insufficient", "funds", "gas", "slippage")
"""Words of failures that say nothing of how many payments the contract takes, as nodes and the contract write them."""
Make = Callable[[AggregatorSettings], Awaitable[MultiSwapResponse]]


class Sharing:
    """What the gateway has shown so far. On the event loop only."""

    def __init__(
        self, settings: AggregatorSettings, simulations: Simulations, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.adopt(settings)
        self._simulations = simulations
        self._clock = clock
        self._works = True
        self._until = 0.0
        self._passed_over: OrderedDict[str, float] = OrderedDict()
        """Until when, by sender."""

    def adopt(self, settings: AggregatorSettings) -> None:
        """Make batches with other settings; what the gateway has shown stays."""
        self._shared = settings
        self._apart = msgspec.structs.replace(settings, inputs_per_transaction=1)

    @property
    def settings(self) -> AggregatorSettings:
        """Those to make batches with, by what is known."""
        return self._shared if self._works or self._clock() >= self._until else self._apart

    async def answer(self, make: Make) -> MultiSwapResponse:
        """The answer that `make` gives with the settings that hold; made twice where the gateway refuses the first."""
        body = await make(self.settings)
        shared = next((batch for batch in body.batches if len(batch.inputs) > 1), None)
        known = not self._shared.gateway or self._clock() < self._until
        if known or shared is None or shared.transaction is msgspec.UNSET:
            return body
        sender = shared.transaction.sender
        if self._clock() < self._passed_over.get(sender, 0.0):
            return body
        (told,) = await self._simulated([shared])
        if told.status == "success":
            self._note(works=True)
        reason = str(told.reason or "").lower()
        if told.status != "fail":
            return body
        if any(word in reason for word in OTHER_REASONS):
            self._pass_over(sender)
            return body
        try:
            apart = await make(self._apart)
        except ApiError:  # no time for a second search: the first stands
            self._pass_over(sender)
            return body
        tokens = {given.token for given in shared.inputs}
        alone = [batch for batch in apart.batches if batch.inputs[0].token in tokens]
        results = await self._simulated(alone)
        if len(alone) < len(tokens) or any(result.status != "success" for result in results):
            self._pass_over(sender)
            return body  # it fails for something else, such as a sender who has not got the tokens
        self._note(works=False)
        return apart

    async def _simulated(self, batches: Sequence[SwapBatch]) -> list[Simulation]:
        asked = [batch.transaction for batch in batches if batch.transaction is not msgspec.UNSET]
        return await asyncio.gather(*map(self._simulations.of, asked))

    def _pass_over(self, sender: str) -> None:
        """For a while this sender is no witness: it would cost as much again, and tell as little."""
        self._passed_over[sender] = self._clock() + PASSED_OVER_SECONDS
        self._passed_over.move_to_end(sender)
        if len(self._passed_over) > MOST_PASSED_OVER:
            self._passed_over.popitem(last=False)

    def _note(self, *, works: bool) -> None:
        self._works, self._until = works, self._clock() + HOLDS_SECONDS
