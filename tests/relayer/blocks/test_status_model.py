"""What clients are told of transactions, from whole blocks in any order, against a model that knows only the plan.

Blocks of three shards are saved (also twice, also late), called final (also before they come), forked and reverted.
The model knows where each transaction's parts are executed and whether one of them fails; it knows nothing of facts,
logs or how the tracker joins them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from relayer_support import NETWORK, BlockMaker, transfer, wallet

from millrace.chain import bigint
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.transaction import Transaction, chain_hash
from millrace.relayer.blocks.facts import BlockFacts
from millrace.relayer.blocks.reader import read_block
from millrace.relayer.blocks.tracker import Tracker

SHARDS = 3
EXAMPLES = int(os.environ.get("MILLRACE_MODEL_EXAMPLES", "250"))


def contract(shard: int) -> bytes:
    """A contract of a shard."""
    return bytes(8) + b"\5\0" + b"c" * 20 + bytes([0, 3 + shard])


@dataclass
class Part:
    """What one shard does for a transaction: which, and whether it fails there."""

    shard: int
    name: str
    fails: bool = False


@dataclass
class Plan:
    """A transaction and its parts, in the order in which the chain executes them."""

    tx: Transaction
    parts: list[Part] = field(default_factory=list)
    whole: list[Part] = field(default_factory=list)
    """With those that follow on one that failed: another branch may be on its way meanwhile."""


KINDS = ("plain", "call", "async", "deep", "branches")
"""`deep` sends gas with a payment to a second contract and that one's refund comes back, which alone says that all is
over; `branches` besides pays an account of the third shard, where that may be refused."""


def plan(number: int, kind: str, source: int, target: int, far: int, failing: int) -> Plan:
    """A transaction of one kind; `failing` names the part that fails, if there are so many."""
    receiver = wallet(target, 20).public if kind == "plain" else contract(target)
    tx = transfer(
        wallet(source, number), receiver=receiver, data=b"" if kind == "plain" else b"buy@01", gas_limit=300_000
    )
    made = Plan(msgspec.structs.replace(tx, relayer_signature=bytes([number + 1]) * 64))
    if source != target:
        made.parts.append(Part(source, "leave"))
    made.parts.append(
        Part(target, {"plain": "arrive", "call": "run", "async": "run-and-call"}.get(kind, "run-and-send"))
    )
    far = (target + 1 + far) % SHARDS  # another shard than the contract's
    if kind == "async":
        made.parts += [Part(far, "called"), Part(target, "callback")]
    if kind in ("deep", "branches"):
        made.parts += [Part(far, "sent-to"), Part(target, "refunded")]
    if kind == "branches":
        made.parts.append(Part(SHARDS - target - far, "paid"))
    made.whole = list(made.parts)
    if failing < len(made.parts):
        part = made.parts[failing]
        # A transfer can only be refused by its sender's shard; a call can fail wherever it runs.
        if part.name not in ("arrive", "refunded") and (part.name != "leave" or failing == 0):
            part.fails = True
            del made.parts[failing + 1 :]
    return made


CROSS = {"called": (1, 1), "callback": (2, 2), "sent-to": (3, 0), "refunded": (4, 0), "paid": (5, 0)}
"""Parts that execute a result: the place of its hash, and its type of call."""


def named(made: Plan, name: str) -> bytes:
    """The hash of the result that a part executes, or of the transaction."""
    tx_hash = chain_hash(made.tx)
    return bytes([0xA0 + CROSS[name][0]]) + tx_hash[1:] if name in CROSS else tx_hash


def before(name: str) -> str:
    """The part that sends the result which a part executes."""
    return {"callback": "called", "refunded": "sent-to"}.get(name, "run")


def receiver_of(made: Plan, part: Part) -> bytes:
    """Who gets what a part executes: contracts, and the account that is paid."""
    return wallet(part.shard, 21).public if part.name == "paid" else contract(part.shard)


def write(block: pb.OutportBlock, made: Plan, part: Part) -> None:
    """Put a part of a transaction into a block, as a node would and the notifier passes it on."""
    tx, tx_hash, pool = made.tx, chain_hash(made.tx), block.transactionPool
    if part.name == "leave" and part.fails:
        mini = pb.MiniBlock(txHashes=[tx_hash], senderShardID=part.shard, type=120)  # type: ignore[arg-type]
        block.blockData.body.miniBlocks.append(mini)
        pool.receipts["00" * 32 + tx_hash.hex()].CopyFrom(pb.Receipt(txHash=tx_hash, data=b"insufficient funds"))
        return
    if part.name not in CROSS:
        source, target = NETWORK.shard_of(tx.sender), NETWORK.shard_of(tx.receiver)
        mini = pb.MiniBlock(txHashes=[tx_hash], senderShardID=source, receiverShardID=target)
        block.blockData.body.miniBlocks.append(mini)
        message = pool.transactions[tx_hash.hex()].transaction
        message.receiver, message.sender, message.nonce = tx.receiver, tx.sender, tx.nonce
        message.value, message.chainID, message.gasLimit = bigint.encode(0), tx.chain_id.encode(), tx.gas_limit
    else:
        source = (part.shard + 1) % SHARDS
        mini = pb.MiniBlock(
            txHashes=[named(made, part.name)],
            senderShardID=source,
            receiverShardID=part.shard,
            type=90,  # type: ignore[arg-type]
        )
        block.blockData.body.miniBlocks.append(mini)
        add_result(block, made, part)
    if part.name in ("leave", "arrive"):
        return
    account = receiver_of(made, part)
    # What another shard has yet to execute. A part that failed sends nothing on.
    left = [item for item in made.whole if part.name.startswith(before(item.name)) and item.name in CROSS]
    events = [pb.Event(identifier=b"signalError", topics=[tx.sender, b"no"], data=b"@04")]
    if not part.fails:
        events = []
        if part.name in ("run", "run-and-call", "called", "callback"):  # its refund is nothing, so it is only a note
            events.append(pb.Event(identifier=b"writeLog", address=account, data=b"@6f6b"))
        if not left:
            came_from = named(made, before(part.name)) if part.name in CROSS else tx_hash
            events.append(pb.Event(identifier=b"completedTxEvent", address=account, topics=[came_from]))
        for item in left:
            add_result(block, made, item)
    pool.logs.append(pb.LogData(txHash=tx_hash.hex(), log=pb.Log(address=account, events=events)))


def add_result(block: pb.OutportBlock, made: Plan, part: Part) -> None:
    """The result that a part executes, which both its shards tell."""
    result = pb.SmartContractResult(
        originalTxHash=chain_hash(made.tx),
        prevTxHash=named(made, before(part.name)),
        receiver=receiver_of(made, part),
        value=bigint.encode(5 if part.name in ("refunded", "paid") else 0),
        callType=CROSS[part.name][1],
        gasLimit=50_000 if part.name == "sent-to" else 0,
    )
    block.transactionPool.smartContractResults[named(made, part.name).hex()].smartContractResult.CopyFrom(result)


@dataclass
class Made:
    """A block and what of which plan is in it."""

    facts: BlockFacts
    parts: list[tuple[int, Part]]


class World:
    """Chains of blocks that hold the parts of all plans, some heights with a fork that is given up."""

    def __init__(self, plans: list[Plan], heights: list[int], forked: set[tuple[int, int]]) -> None:
        self.plans = plans
        contents: dict[tuple[int, int], list[tuple[int, Part]]] = {}
        for number, made in enumerate(plans):
            at = 0
            for place, part in enumerate(made.parts):
                at = max(at, heights[(number + place) % len(heights)]) + 1
                contents.setdefault((part.shard, at), []).append((number, part))
        self.blocks: dict[tuple[int, int, int], Made] = {}
        top = max((height for _, height in contents), default=0) + 1
        for shard in range(SHARDS):
            maker = BlockMaker(shard)
            for height in range(1, top + 1):
                before = maker.previous
                inside = contents.get((shard, height), [])
                message = maker.block()
                for number, part in inside:
                    write(message, plans[number], part)
                self.blocks[shard, height, 0] = Made(read_block(message, NETWORK), inside)
                if (shard, height) in forked:
                    other = pb.OutportBlock.FromString(message.SerializeToString())
                    other.blockData.headerHash = b"f" + message.blockData.headerHash[1:]
                    self.blocks[shard, height, 1] = Made(read_block(other, NETWORK), inside)
                    assert before is not None


class Model:
    """What is final, and what follows from it; a block counts once, and never stops counting."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.saved: set[tuple[int, int, int]] = set()
        self.marked: set[tuple[int, int, int]] = set()
        self.counted: set[tuple[int, int, int]] = set()

    def step(self, kind: str, name: tuple[int, int, int]) -> None:
        if kind == "save":
            self.saved.add(name)
        elif kind == "final":
            self.marked.add(name)
        elif name not in self.counted:
            self.saved.discard(name)
            self.marked.discard(name)
        more: set[tuple[int, int, int]] = {name}
        while more:  # final is what is marked, and what something final is built on
            due = self.marked | {(shard, height - 1, 0) for shard, height, _ in self.counted}
            more = (due & self.saved) - self.counted
            self.counted |= more

    def statuses(self) -> dict[int, str]:
        """The plans that are over, and how."""
        seen: dict[int, list[Part]] = {}
        for block in self.counted:
            for number, part in self.world.blocks[block].parts:
                seen.setdefault(number, []).append(part)
        result = {}
        for number, parts in seen.items():
            if any(part.fails for part in parts):
                result[number] = "fail"
            elif {part.name for part in self.world.plans[number].parts} - {part.name for part in parts} <= {"leave"}:
                result[number] = "success"  # a transaction that arrived has left, whether or not we saw it leave
        return result


FAILING = st.sampled_from([0, 1, 2, 3, 9, 9, 9])
"""Which part fails; there is none with number 9."""
PLANS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 2), st.integers(0, 2), st.integers(0, 1), FAILING),
    min_size=1,
    max_size=3,
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data(), PLANS, st.lists(st.integers(0, 2), min_size=1, max_size=4))
def test_row_43_and_row_42_any_order_of_blocks(data: st.DataObject, kinds: list[Any], heights: list[int]) -> None:
    """After every event exactly those transactions are told that the plan says are over, each once, in its way."""
    plans = [plan(number, *kind) for number, kind in enumerate(kinds)]
    forked = data.draw(st.sets(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=2))
    world = World(plans, heights, forked)
    names = sorted(world.blocks)
    events: list[tuple[str, tuple[int, int, int]]] = []
    for name in names:
        if name[2]:  # a fork is given up in the end, before or after the block that takes its place
            events += [("save", name), ("revert", name)]
        else:
            events += [("save", name)] * data.draw(st.integers(1, 2)) + [("final", name)]
    order = data.draw(st.permutations(events))
    # Forks are saved before anything is final at their height: what comes later the tracker cannot tell from news.
    forks = [event for event in order if event[1][2] and event[0] == "save"]
    order = forks + [event for event in order if event not in forks]
    if data.draw(st.booleans()):  # blocks are final by what comes after them, as where only the newest is announced
        order = [event for event in order if event[0] != "final" or event[1][1] == max(name[1] for name in names)]
    tracker, model, told = Tracker(), Model(world), dict[int, str]()
    by_hash = {chain_hash(made.tx): number for number, made in enumerate(plans)}
    included: list[bytes] = []
    for sequence, (kind, name) in enumerate(order):
        facts = world.blocks[name].facts
        if kind == "revert":
            tracker.revert(facts.shard, facts.block_hash)
            model.step(kind, name)
            continue
        if kind == "save":
            release = tracker.save(facts, sequence, 0.0)
        else:
            release = tracker.finalise(facts.shard, facts.block_hash, 0.0)
        model.step(kind, name)
        for outcome in release.outcomes:
            number = by_hash[outcome.tx_hash]
            assert number not in told, "a status is told once"
            told[number] = outcome.status
        included += [item.tx_hash for item in release.included]
        assert told == model.statuses(), (kind, name, kinds, heights)
    assert len(included) == len(set(included)), "a fee is settled once"
    assert tracker.disputed == tracker.conflicting_final == 0
