"""What the contract charges for a referral, read from the contract itself.

No view is known that would tell. So a gateway simulates a call with the referral's id that cannot succeed: it wraps a
little EGLD and asks for one unit more than there is. The contract takes its fees and then says what it has: `Slippage
limit exceeded: have 9970, need 10001` are 30 basis points. The same call without a referral must have all of it, else
nothing is believed. No exchange is involved, and nothing is sent.

Quotes never wait for this: they go by what has been read, and by the setting `referrals` until then.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec

from millrace.aggregator.responses import UnsignedTransaction, wire_name
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.simulation import Simulations
from millrace.aggregator.transactions import unsigned
from millrace.chain.amount import TOTAL_BPS
from millrace.chain.token import NATIVE
from millrace.dex import aggregator_contract as contract
from millrace.dex.aggregator_contract import Action, Program

log = logging.getLogger(__name__)

PROBE = TOTAL_BPS
"""Units of EGLD in the call: each basis point of them is one unit."""
PROBE_GAS = 30_000_000
"""A call and a wrap take 9 M with a referral (`routing/costs.py`); what is not used costs a simulation nothing."""
MAX_KNOWN = 256
"""Referrals remembered beside those of the setting; beyond, the one asked for longest ago is forgotten, of those first
that cost nothing as far as is known: whoever asks for many of them must not take a fee off anybody's quote."""
_HAVE = re.compile(r"Slippage limit exceeded: have (\d{1,78}), need (\d{1,78})")


class ReferralResponse(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """The answer of `/api/v1/referrals/{id}`. `source`: `contract`, `setting`, or `unknown` without a fee."""

    referral_id: int
    contract: str
    source: str
    fee_bps: int | msgspec.UnsetType = msgspec.UNSET
    read_at: int | msgspec.UnsetType = msgspec.UNSET
    reason: str | msgspec.UnsetType = msgspec.UNSET


class Reading(NamedTuple):
    """What the contract charges, None where it did not say; milliseconds since 1970; and why it did not."""

    bps: int | None
    at: int
    reason: str = ""


class Referrals:
    """What is known of referrals. On the event loop only; `adopt` is given the settings whenever a fee has changed."""

    def __init__(
        self,
        settings: AggregatorSettings,
        simulations: Simulations,
        adopt: Callable[[AggregatorSettings], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._simulations = simulations
        self._adopt = adopt
        self._clock = clock
        self._on = bool(settings.gateway and settings.referral_sender)
        self._fixed = [int(name) for name in settings.referrals]
        self._asked: OrderedDict[int, None] = OrderedDict()
        self._readings: dict[int, Reading] = {}
        self._wrapped = ""
        self._due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.failures = 0
        """Readings that told nothing."""

    def note(self, referral_id: int, wrapped: str) -> None:
        """Read a referral soon, if it is not known; `wrapped` is the identifier of the wrapped native token."""
        if not self._on or not referral_id:
            return
        self._wrapped = wrapped
        if referral_id not in self._fixed:
            self._asked[referral_id] = None
            self._asked.move_to_end(referral_id)
            if len(self._asked) > MAX_KNOWN:
                self._forget_one(referral_id)
        if referral_id not in self._readings:
            self._due.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def _forget_one(self, noted: int) -> None:
        """Any but the one just noted."""
        others = [name for name in self._asked if name != noted]
        oldest = next((name for name in others if not self._readings.get(name, Reading(None, 0)).bps), others[0])
        del self._asked[oldest]
        self._readings.pop(oldest, None)

    def of(self, referral_id: int) -> ReferralResponse:
        """What is known at present."""
        known = partial(ReferralResponse, referral_id=referral_id, contract=self._settings.contract)
        reading = self._readings.get(referral_id, Reading(None, 0))
        if reading.bps is not None:
            return known(source="contract", fee_bps=reading.bps, read_at=reading.at)
        reason = reading.reason or ("it has not been read yet: ask again" if self._on else "nobody reads the contract")
        if str(referral_id) in self._settings.referrals:
            return known(source="setting", fee_bps=sum(self._settings.referral_bps(referral_id)), reason=reason)
        return known(source="unknown", reason=reason)

    async def close(self) -> None:
        """Read no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        """Read what is new at once, and everything again and again."""
        while True:
            self._due.clear()
            for referral_id in [name for name in (*self._fixed, *self._asked) if name not in self._readings]:
                await self._read(referral_id)
            try:
                async with asyncio.timeout(self._settings.referral_seconds):
                    await self._due.wait()
            except TimeoutError:
                for referral_id in (*self._fixed, *self._asked):
                    await self._read(referral_id)

    async def _read(self, referral_id: int) -> None:
        try:
            reading = await self._reading(referral_id)
        except Exception:  # a defect of ours must not end the reading of all others
            log.exception("a referral cannot be read", extra={"referral": referral_id})
            reading = Reading(None, int(self._clock() * 1000), "it cannot be read")
        self.failures += reading.bps is None
        before = self._readings.get(referral_id)
        if reading.bps is None and before is not None and before.bps is not None:
            return  # what it said last time, with its time
        if referral_id in self._fixed or referral_id in self._asked:
            self._readings[referral_id] = reading
        if reading.bps is not None and (before is None or before.bps != reading.bps):
            log.info("fee of a referral", extra={"referral": referral_id, "bps": reading.bps})
            self._adopt(self._by_contract())

    async def _reading(self, referral_id: int) -> Reading:
        now = int(self._clock() * 1000)
        plain, reason = await self._left(0)
        if plain is not None and plain != PROBE:
            return Reading(None, now, f"without a referral the contract has {plain} of {PROBE}")
        left, why = (None, reason) if plain is None else await self._left(referral_id)
        if left is None or left > PROBE:
            return Reading(None, now, why or f"the contract has {left} of {PROBE}")
        return Reading(PROBE - left, now)

    async def _left(self, referral_id: int) -> tuple[int | None, str]:
        """What the contract has of the probe when its fees are taken; or why nobody knows."""
        told = await self._simulations.of(self._probe(referral_id))
        said = _HAVE.search(told.reason) if told.reason else None
        if said is None or int(said[2]) != PROBE + 1:
            return None, f"the gateway said {told.status}" + (f": {told.reason}" if told.reason else "")
        return int(said[1]), ""

    def _probe(self, referral_id: int) -> UnsignedTransaction:
        """A call that wraps the probe and asks for a unit more."""
        wrap = contract.swap(Action.WRAP, contract.EGLD_INDEX, contract.EGLD_INDEX, contract.ALL)
        program = Program((self._wrapped,), (), (), (wrap,), PROBE + 1, 0, referral_id)
        data = contract.tx_data(program, NATIVE, PROBE)
        return unsigned(
            self._settings,
            sender=self._settings.referral_sender,
            receiver=self._settings.contract,
            value=PROBE,
            data=base64.b64encode(data).decode("ascii"),
            gas_limit=PROBE_GAS,
        )

    def _by_contract(self) -> AggregatorSettings:
        """The settings, with what the contract charges in the place of what they say that it does.

        The reading is of both fees together. Where it is the sum that the setting divides, that is kept; else it counts
        as one, which is rounded down once and not twice: a quote then is at most a unit too low.
        """
        found = dict(self._settings.referrals)
        for referral_id, reading in self._readings.items():
            name = str(referral_id)
            if reading.bps is not None and sum(found.get(name, (0, 0))) != reading.bps:
                found[name] = (0, reading.bps)
        return msgspec.structs.replace(self._settings, referrals=found)
