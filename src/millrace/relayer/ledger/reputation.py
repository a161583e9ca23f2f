"""Who keeps failing waits: senders, longer each time, and functions of contracts. Bounded; time comes in."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.rules.policy import CallName, Quotas

SLOT_SECONDS = 300.0
UNPROVEN = "\x00"
"""Stands for all functions of a contract that never succeeded; no function has such a name."""
SLOTS = 12
"""The calls of an hour are counted in slots of five minutes."""
FOOLED_SECONDS = 300.0
"""So long no simulation of a sender's, or a client's, is believed after one whose transaction failed all the same."""


class _Counts:
    """Ended and failed calls of the last hour, slot by slot; the newest slot is the last."""

    __slots__ = ("ended", "failed", "slot")

    def __init__(self) -> None:
        self.ended = [0] * SLOTS
        self.failed = [0] * SLOTS
        self.slot = 0

    def turn(self, now: float) -> None:
        """Forget the slots that are over an hour old."""
        slot = int(now / SLOT_SECONDS)
        gone = min(max(0, slot - self.slot), SLOTS)
        if gone:
            self.ended = self.ended[gone:] + [0] * gone
            self.failed = self.failed[gone:] + [0] * gone
        self.slot = max(slot, self.slot)


class Reputation:
    """Failures in a row of up to `capacity` senders, and the calls of up to `capacity` functions.

    The sender that failed longest ago is forgiven first, the function that was called longest ago is forgotten first.
    """

    def __init__(self, capacity: int = 100_000) -> None:
        self._capacity = capacity
        self._failures: OrderedDict[bytes, tuple[int, float]] = OrderedDict()
        self._calls: OrderedDict[CallName, _Counts] = OrderedDict()
        self._proven: OrderedDict[CallName, None] = OrderedDict()
        """Functions that have succeeded: any other name may be invented."""
        self.would_run: Callable[[bytes], bool] = lambda client_hash: False
        """Whether a simulation found, a moment ago, that the transaction with this client hash succeeds."""
        self._vouched: OrderedDict[bytes, str] = OrderedDict()
        """Client hashes of what simulations let in, and which client asked."""
        self._fooled: OrderedDict[bytes | str, float] = OrderedDict()
        """Senders and clients whose simulations are not believed until this time. What they called says nothing of
        others who call it: anybody could see to it that nobody's simulation of a contract is believed."""

    def learn(
        self,
        sender: bytes,
        call: CallName | None,
        failed: bool,
        now: float,
        quotas: Quotas,
        client_hash: bytes = b"",
    ) -> None:
        """A sponsored transaction of `sender` ended; a success clears its name."""
        client = self._vouched.pop(client_hash, None)
        if call is not None:
            if not failed:
                self._prove(call)
            self._count(self.name_of(call), failed, now)
        if not failed:
            self._failures.pop(sender, None)
            return
        count = self._failures.pop(sender, (0, 0.0))[0] + 1
        excess = count - quotas.failures
        ban = min(quotas.first_ban_seconds * 2.0 ** min(excess, 60), quotas.longest_ban_seconds)
        self._failures[sender] = (count, now + ban if excess >= 0 else 0.0)
        if len(self._failures) > self._capacity:
            self._failures.popitem(last=False)
        if client is not None:
            self._distrust(sender, max(now + FOOLED_SECONDS, self._failures[sender][1]))
            self._distrust(client, now + FOOLED_SECONDS)

    def check(
        self,
        sender: bytes,
        call: CallName | None,
        now: float,
        quotas: Quotas,
        client_hash: bytes = b"",
        client: str = "",
    ) -> None:
        """Raise `Refused` while a sender has to wait, or while nearly all calls of a function fail.

        Unless a simulation says that this transaction succeeds, and no such word of late was wrong of what this sender,
        or this client (an address, or whom an API key names), asked for.
        """
        try:
            self._check(sender, call, now, quotas)
        except Refused:
            if not self.would_run(client_hash) or self._has_fooled(sender, client, now):
                raise
            self._vouched[client_hash] = client
            if len(self._vouched) > self._capacity:
                self._vouched.popitem(last=False)

    def _check(self, sender: bytes, call: CallName | None, now: float, quotas: Quotas) -> None:
        until = self._failures.get(sender, (0, 0.0))[1]
        if until > now:
            wait = int((until - now) * 1000)
            raise Refused(reasons.SENDER_THROTTLED.but("its sponsored transactions keep failing", wait))
        counts = self._calls.get(self.name_of(call)) if call is not None else None
        if counts is None:
            return
        counts.turn(now)
        ended, failed = sum(counts.ended), sum(counts.failed)
        if ended >= quotas.call_sample and failed * 100 >= ended * quotas.call_failure_percent:
            raise Refused(reasons.CALL_THROTTLED.but(f"{failed} of its last {ended} calls failed", 300_000))

    def name_of(self, call: CallName) -> CallName:
        """Under which name a call counts: all names of a contract that never succeeded are one."""
        return call if call in self._proven else CallName(call.contract, UNPROVEN)

    def _distrust(self, name: bytes | str, until: float) -> None:
        """Believe no simulation of this sender's, or client's, until then."""
        self._fooled[name] = until
        self._fooled.move_to_end(name)
        if len(self._fooled) > self._capacity:
            self._fooled.popitem(last=False)

    def _has_fooled(self, sender: bytes, client: str, now: float) -> bool:
        return max(self._fooled.get(sender, 0.0), self._fooled.get(client, 0.0)) > now

    def _prove(self, call: CallName) -> None:
        self._proven[call] = None
        self._proven.move_to_end(call)
        if len(self._proven) > self._capacity:
            self._proven.popitem(last=False)

    def _count(self, call: CallName, failed: bool, now: float) -> None:
        counts = self._calls.setdefault(call, _Counts())
        self._calls.move_to_end(call)
        counts.turn(now)
        counts.ended[-1] += 1
        counts.failed[-1] += failed
        if len(self._calls) > self._capacity:
            self._calls.popitem(last=False)
