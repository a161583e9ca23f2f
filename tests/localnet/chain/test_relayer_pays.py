"""The ledger of a relayer's keys against this chain: random sends, refunds, refills, reverts, and nonces others took.

A key is never asked for more than it holds, and what is refused for want of money is refused to the unit: there is not
as much in final blocks, less what is accepted and not over in them. Where blocks are executed later two things are not
said for certain by any block or reading, and the key is asked for again at once: payments of contracts of its own
shard, and whether a reading has the fees of the block that it names. `MILLRACE_MONEY_STEPS` says how many steps
(`MILLRACE_SEED` repeats them); each sends, refills, reverts, asks what a key holds, or makes a round.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from millrace.chain import outport
from millrace.chain.call import encode
from millrace.chain.fees import initially_paid_fee
from millrace.chain.headers import proposes
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.token import NATIVE
from millrace.chain.transaction import Transaction
from millrace.localnet.chain.admission import Refused as NotTaken
from millrace.relayer.blocks.tracker import Tracker
from millrace.relayer.events.events import Events
from millrace.relayer.journal.journal import Journal
from millrace.relayer.ledger.accounts import Account, AccountBook
from millrace.relayer.ledger.balances import Reading
from millrace.relayer.ledger.inflight import Entry
from millrace.relayer.ledger.lifecycle import Lifecycle
from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.rules.policy import Quotas
from millrace.relayer.rules.stages import Authenticated, Origin, Parsed, Relayers, examine
from millrace.relayer.statistics.streams import Statistics

EGLD = 10**18
FEE = 10**14
"""Of a plain transfer that is relayed."""
WALLETS = 5
"""Of each shard."""
FINALITY = 2
FOR_MONEY = (reasons.RELAYER_BALANCE_LOW.code, reasons.ACCOUNT_UNAVAILABLE.code)


class Nobody:
    """Whom the relayer tells."""

    def tell_statuses(self, ends: Any) -> int:
        return 0

    def tell_account(self, topic: Any, make: Any) -> None:
        pass

    def when_told(self, then: Any) -> None:
        then()

    def hears(self, topic: Any) -> bool:
        return False


class Payers:
    """A chain, and what a relayer knows of its keys by the chain's events and its own acts."""

    def __init__(self, bench: Any, wallet: Any, chance: random.Random) -> None:
        self.bench, self.wallet, self.chance = bench, wallet, chance
        self.chain, self.network = bench.chain, bench.chain.network
        self.keys = {shard: key.public for shard, key in bench.relayers.items()}
        self.now = 1_000.0
        journal = Journal(Path("never-opened"))
        journal.change = lambda *writes: None  # type: ignore[method-assign]
        self.lifecycle = Lifecycle(self.network, journal, clock=lambda: self.now)
        self.sponsor = self.lifecycle.sponsor
        self.sponsor.policy = msgspec.structs.replace(
            self.sponsor.policy, quotas=Quotas(failures=10**9, call_sample=10**9)
        )
        self.sponsor.balances.watch(self.keys)
        self.events = Events(
            self.network, Tracker(), AccountBook(), self.lifecycle, Nobody(), Statistics(self.network),
            clock=lambda: self.now,
        )  # fmt: skip
        self.heard = self.sequence = 0
        self.passed: set[bytes] = set()
        self.balances: dict[tuple[int, bytes], int] = {}
        """What a shard's key holds after an executed block of it, by the block's hash."""
        self.late: list[tuple[int, Reading]] = []
        """Answers of the chain API that are on their way."""
        self.accepted: list[Entry] = []
        self.executed_at: dict[bytes, tuple[Entry, int]] = {}
        """Accepted ones by client hash, with the block that used their nonce."""
        self.later = self.chain.settings.execution_delay if self.chain.settings.proposes_in(1) else 0
        self.counts: Counter[str] = Counter()

    # ---- what happens

    def step(self) -> None:
        """Something, and then what must hold."""
        act = self.chance.choices(
            [self.send, self.send_own, self.round, self.refill, self.revert, self.ask, self.answer],
            [30, 3, 16, 2, 2, 4, 12],
        )[0]
        act()
        self.hear()
        self.check()

    def send(self) -> None:
        """Ask the relayer to pay for something: transfers and calls that succeed, fail, refund or go elsewhere."""
        shard, number = self.chance.randrange(3), self.chance.randrange(WALLETS)
        tx = self.made(shard, number, self.next_nonce(shard, number), relayed=True)
        parsed = Parsed.of(msgspec.structs.replace(tx, relayer_signature=b""), Origin("relay", "ip"))
        item = examine(parsed, self.network, Relayers(self.keys))
        held = self.chain.account(tx.sender)
        try:
            approved = self.lifecycle.approvals.approve(
                Authenticated(item), Account(held.nonce, 10**30, self.now, True)
            )
            entry = self.lifecycle.reserve(approved)
        except Refused as refusal:
            self.refused(shard, tx, refusal.reason.code)
            return
        self.counts["accepted"] += 1
        self.lifecycle.journalled(entry)
        self.lifecycle.cosigned([(entry, tx.relayer_signature)])
        self.accepted.append(entry)
        self.hand_over(entry)

    def refused(self, shard: int, tx: Transaction, code: str) -> None:
        """Only for want of money; and then there is not as much, but for what is not final."""
        self.counts[code] += 1
        assert code in FOR_MONEY, code
        key, left = self.keys[shard], self.left_in_final_blocks(shard)
        if code == reasons.ACCOUNT_UNAVAILABLE.code:
            assert self.sponsor.balances.lower_bound(key) is None
            return
        assert key in self.sponsor.balances.wanted
        if shard != self.chain.home or not self.later:  # the faucet pays from there
            assert left is not None and left - self.doubtful(shard) < initially_paid_fee(tx, self.network.gas)

    def doubtful(self, shard: int) -> int:
        """Fees of which the reading that counts does not say whether it has them: of its block, told a header later."""
        anchor = self.sponsor.balances._keys[self.keys[shard]].anchor
        assert anchor is not None and anchor.height is not None
        of_reading = range(anchor.height - self.later + 1, anchor.height + 1)
        return sum(
            entry.fee for entry, at in self.executed_at.values() if entry.sender_shard == shard and at in of_reading
        )

    def hand_over(self, entry: Entry) -> None:
        """Give it to the chain, as often as it takes; what its relayer cannot pay for was never accepted."""
        try:
            self.chain.submit(entry.tx)
        except NotTaken as error:
            assert "insufficient funds" not in str(error), error

    def send_own(self) -> None:
        """A wallet sends something itself, maybe with a nonce that an accepted one has."""
        shard, number = self.chance.randrange(3), self.chance.randrange(WALLETS)
        nonce = self.chain.virtual_nonce(self.wallet(shard, number).public)
        try:
            self.chain.submit(self.made(shard, number, nonce, relayed=False, gas_price=2 * 10**9))
            self.counts["own"] += 1
        except NotTaken:
            pass

    def made(self, shard: int, number: int, nonce: int, **fields: Any) -> Transaction:
        """A signed transaction of a random kind."""
        key, at = self.wallet(shard, number), self.chain.market.addresses
        other = self.wallet(self.chance.randrange(3), 20).public
        amount = self.chance.randrange(10**6)
        match self.chance.choice(["plain", "plain", "broke", "call", "wrap", "nothing"]):
            case "plain":
                to, value, data = other, amount, b""
            case "broke":
                to, value, data = other, 10**24, b""
            case "call":
                to, value, data = at.aggregator, amount, encode("xo", b"\x01")
            case "wrap":
                to, value, data = at.wrapper, amount + 1, b"wrapEgld"
            case _:
                to, value, data = at.wrapper, 0, b"nothing@%02x" % (amount % 256)
        gas = 100_000 + 1_500 * len(data) + (self.chance.choice([50_000, 2_000_000, 8_000_000]) if data else 0)
        made: Transaction = self.bench.tx(key, to, value, data, nonce=nonce, gas_limit=gas, **fields)
        return made

    def round(self) -> None:
        """The chain goes on, and what is not in a block is handed over again."""
        self.now += 0.6
        self.bench.rounds()
        for shard, key in self.keys.items():
            if key in self.sponsor.balances.wanted:
                self.ask(shard)
        self.accepted = [entry for entry in self.accepted if entry.state != "over"]
        for entry in self.accepted:
            self.hand_over(entry)

    def refill(self) -> None:
        """Somebody sends one of the keys what pays for a few."""
        key = self.chance.choice(list(self.keys.values()))
        self.chain.give(key, NATIVE, self.chance.randrange(FEE, 40 * FEE))
        self.counts["refills"] += 1

    def revert(self) -> None:
        """The newest blocks of a shard are taken back, where none of them is final."""
        self.counts["reverts"] += bool(self.bench.revert(self.chance.randrange(3), 1 + self.chance.randrange(2)))

    def ask(self, shard: int | None = None) -> None:
        """Ask the chain API what a key holds: after the block executed last, whether that becomes final or not."""
        if shard is None:
            shard = self.chance.randrange(3)
        account, block = self.chain.account(self.keys[shard]), self.chain.shards[shard].last_executed
        if block is not None:
            reading = Reading(account.balance, self.now, block.nonce, block.hash, account.nonce)
            self.late.append((shard, reading))

    def answer(self) -> None:
        """An answer comes, not always in the order of the questions."""
        if self.late:
            shard, reading = self.late.pop(self.chance.randrange(len(self.late)))
            self.sponsor.balances.read(self.keys[shard], reading)

    # ---- what is heard

    def hear(self) -> None:
        """Pass the new events on to the relayer as the notifier does; note what keys hold now."""
        for shard, own in self.chain.shards.items():
            if own.last_executed is not None:
                self.balances[shard, own.last_executed.hash] = self.chain.account(self.keys[shard]).balance
        for entry in self.accepted:
            last = self.chain.shards[entry.sender_shard].last_executed
            if last is None or self.chain.account(entry.tx.sender).nonce <= entry.tx.nonce:
                self.executed_at.pop(entry.client_hash, None)
            else:
                self.executed_at.setdefault(entry.client_hash, (entry, last.nonce))
        events, self.heard = self.bench.events[self.heard :], len(self.bench.events)
        for event in events:
            self.tell(event.topic, event.payload)
            if event.topic == outport.REVERT_INDEXED_BLOCK:
                self.passed.discard(pb.BlockData.FromString(event.payload).headerHash)
            if event.topic != outport.SAVE_BLOCK:
                continue
            block = pb.OutportBlock.FromString(event.payload)
            for result in self.bench.told_by(block) if proposes(block.blockData.headerType) else ():
                if result.blockData.headerHash not in self.passed:
                    self.passed.add(result.blockData.headerHash)
                    self.tell(outport.EXECUTED_BLOCK, result.SerializeToString())

    def tell(self, topic: str, payload: bytes) -> None:
        self.sequence += 1
        self.events.on_event(topic, payload, self.sequence)

    # ---- what must hold

    def check(self) -> None:
        """All that is accepted can be paid, whatever block it is in; nobody thinks that there is more than there is."""
        for shard, key in self.keys.items():
            ours = [entry for entry in self.accepted if entry.sender_shard == shard]
            waits = sum(entry.fee for entry in ours if self.chain.account(entry.tx.sender).nonce <= entry.tx.nonce)
            assert waits <= self.chain.account(key).balance
            held, bound = self.final_balance(shard), self.sponsor.balances.lower_bound(key)
            assert bound is None or held is None or bound <= held

    def final_balance(self, shard: int) -> int | None:
        """What a key holds after the last execution that a final block tells; `None` where that was not looked at."""
        final = next((block for block in reversed(self.chain.shards[shard].blocks) if block.final), None)
        return None if final is None else self.balances.get((shard, final.last_result.hash))

    def left_in_final_blocks(self, shard: int) -> int | None:
        """The same less what the relayer accepted and no final block has yet."""
        held = self.final_balance(shard)
        if held is None:
            return None
        return held - sum(entry.fee for entry in self.lifecycle.inflight.entries() if entry.sender_shard == shard)

    def next_nonce(self, shard: int, number: int) -> int:
        sender = self.wallet(shard, number).public
        return self.lifecycle.inflight.expected_nonce(sender, self.chain.account(sender).nonce)


@pytest.mark.parametrize("seed", range(2))
def test_keys_pay_for_what_is_accepted_and_nothing_else(make_bench: Any, wallet: Any, seed: int) -> None:
    """Never more than there is, to the unit; and once all is over and asked for, exactly what there is."""
    seed = int(os.environ.get("MILLRACE_SEED", seed))
    steps = int(os.environ.get("MILLRACE_MONEY_STEPS", "300"))
    print(f"MILLRACE_SEED={seed} MILLRACE_MONEY_STEPS={steps}")
    bench = make_bench(relayer_egld=0, finality_rounds=FINALITY)
    for shard in range(3):
        for number in range(WALLETS):
            bench.chain.give(wallet(shard, number).public, NATIVE, EGLD)
        bench.chain.give(bench.relayers[shard].public, NATIVE, 20 * FEE)
    bench.rounds(bench.here + bench.hop + 4 * FINALITY)
    payers = Payers(bench, wallet, random.Random(seed))
    payers.hear()
    for _ in range(steps):
        payers.step()
    print(dict(payers.counts))
    assert payers.counts["accepted"] and payers.counts[reasons.RELAYER_BALANCE_LOW.code]
    for _ in range(4 * (bench.here + bench.hop + FINALITY)):
        payers.round()
        payers.hear()
        payers.check()
    payers.late.clear()
    for shard in payers.keys:
        payers.ask(shard)
    while payers.late:
        payers.answer()
    for _ in range(bench.here + bench.hop + FINALITY):
        payers.round()
        payers.hear()
    for key in payers.keys.values():
        waits = [entry for entry in payers.lifecycle.inflight.entries() if entry.tx.relayer == key]
        assert payers.sponsor.committed(key) == sum(entry.fee for entry in waits)
        assert payers.sponsor.balances.lower_bound(key) == bench.chain.account(key).balance
