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


KINDS = ("plain", "call", "async")


def plan(number: int, kind: str, source: int, target: int, far: int, failing: int) -> Plan:
    """A transaction of one kind; `failing` names the part that fails, if there are so many."""
    receiver = wallet(target, 20).public if kind == "plain" else contract(target)
    tx = transfer(
        wallet(source, number), receiver=receiver, data=b"" if kind == "plain" else b"buy@01", gas_limit=300_000
    )
    made = Plan(msgspec.structs.replace(tx, relayer_signature=bytes([number + 1]) * 64))
    if source != target:
        made.parts.append(Part(source, "leave"))
    made.parts.append(Part(target, {"plain": "arrive", "call": "run", "async": "run-and-call"}[kind]))
    if kind == "async":
        far = (target + 1 + far) % SHARDS  # another shard than the contract's
        made.parts += [Part(far, "called"), Part(target, "callback")]
    if failing < len(made.parts):
        part = made.parts[failing]
        # A transfer can only be refused by its sender's shard; a call can fail wherever it runs.
        if part.name != "arrive" and (part.name != "leave" or failing == 0):
            part.fails = True
            del made.parts[failing + 1 :]
    return made


def write(block: pb.OutportBlock, made: Plan, part: Part) -> None:
    """Put a part of a transaction into a block, as a node would."""
    tx, tx_hash, pool = made.tx, chain_hash(made.tx), block.transactionPool
    there, back = b"\xa1" + tx_hash[1:], b"\xa2" + tx_hash[1:]
    far = next((item.shard for item in made.parts if item.name == "called"), (part.shard + 1) % SHARDS)
    if part.name == "leave" and part.fails:
        mini = pb.MiniBlock(txHashes=[tx_hash], senderShardID=part.shard, type=120)  # type: ignore[arg-type]
        block.blockData.body.miniBlocks.append(mini)
        pool.receipts["00" * 32 + tx_hash.hex()].CopyFrom(pb.Receipt(txHash=tx_hash, data=b"insufficient funds"))
        return
    if part.name in ("leave", "arrive", "run", "run-and-call"):
        source, target = NETWORK.shard_of(tx.sender), NETWORK.shard_of(tx.receiver)
        mini = pb.MiniBlock(txHashes=[tx_hash], senderShardID=source, receiverShardID=target)
        block.blockData.body.miniBlocks.append(mini)
        message = pool.transactions[tx_hash.hex()].transaction
        message.receiver, message.sender, message.nonce = tx.receiver, tx.sender, tx.nonce
        message.value, message.chainID, message.gasLimit = bigint.encode(0), tx.chain_id.encode(), tx.gas_limit
    if part.name in ("called", "callback"):
        item = there if part.name == "called" else back
        source = NETWORK.shard_of(tx.receiver) if part.name == "called" else far
        mini = pb.MiniBlock(txHashes=[item], senderShardID=source, receiverShardID=part.shard, type=90)  # type: ignore[arg-type]
        block.blockData.body.miniBlocks.append(mini)
        add_result(block, item, contract(part.shard), tx_hash, 1 if part.name == "called" else 2)
    if part.name in ("leave", "arrive"):
        return
    item = {"called": there, "callback": back}.get(part.name, tx_hash)
    if part.fails:
        events = [pb.Event(identifier=b"signalError", topics=[tx.sender, b"no"], data=b"@04")]
    else:
        events = [pb.Event(identifier=b"writeLog", address=contract(part.shard), data=b"@6f6b")]
        if part.name in ("run", "callback"):
            events.append(pb.Event(identifier=b"completedTxEvent", address=contract(part.shard), topics=[tx_hash]))
        if part.name == "run-and-call":
            add_result(block, there, contract(far), tx_hash, 1)
        if part.name == "called":
            add_result(block, back, tx.receiver, tx_hash, 2)
    log = pb.Log(address=contract(part.shard), events=events)
    pool.logs.append(pb.LogData(txHash=item.hex(), log=log))


def add_result(block: pb.OutportBlock, name: bytes, receiver: bytes, origin: bytes, call_type: int) -> None:
    result = pb.SmartContractResult(
        originalTxHash=origin, prevTxHash=origin, receiver=receiver, value=bigint.encode(0), callType=call_type
    )
    block.transactionPool.smartContractResults[name.hex()].smartContractResult.CopyFrom(result)


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
