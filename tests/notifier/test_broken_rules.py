"""Blocks that break a rule, from nodes of both marshallers: carried unharmed, counted, named in the log."""

from __future__ import annotations

import base64
import json
import logging
import random
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import pytest

from chain.go_json import dump, frame_of, go_json
from millrace.chain import outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.notifier.rules.dedup import INCOMPLETE

from .helpers import Ran, block_hash, event, notifier, peers, proposal, ran, save_block
from .test_json_nodes import json_node

SAVE, EXECUTED = outport.SAVE_BLOCK, outport.EXECUTED_BLOCK
OLD = proposal(1, 5)
SWAP = event(b"\1" * 32, "swap")

Break = Callable[[], pb.OutportBlock]


def brings(*executions: Ran) -> pb.OutportBlock:
    """The block behind `OLD`."""
    return proposal(1, 6, ran=executions or [ran(OLD, SWAP)])


def of_another_shard() -> pb.OutportBlock:
    """Under the hash of `OLD` stands what another shard executed at the same height."""
    block = brings()
    result = block.blockData.results[OLD.blockData.headerHash.hex()]
    result.body.miniBlocks.add(txHashes=[block_hash("theirs")], senderShardID=2, receiverShardID=2)
    return block


def of_another_height() -> pb.OutportBlock:
    block = brings()
    block.blockData.results[OLD.blockData.headerHash.hex()].headerNonce = 4
    return block


def of_nobody() -> pb.OutportBlock:
    return brings(Ran(block_hash("nobody's"), 5))


def of_a_strange_height() -> pb.OutportBlock:
    """The header lists a block that is known, at a height that is not its own."""
    return brings(Ran(OLD.blockData.headerHash, 4))


def of_type(header_type: str) -> Break:
    def broken() -> pb.OutportBlock:
        block = brings()
        block.blockData.headerType = header_type
        block.transactionPool.logs.add(txHash=block_hash("tx").hex()).log.events.append(SWAP)
        return block

    return broken


def in_shards(outer: int, inner: int) -> Break:
    def broken() -> pb.OutportBlock:
        block = brings()
        block.shardID, block.blockData.shardID = outer, inner
        return block

    return broken


def with_a_pool() -> pb.OutportBlock:
    """A block that only proposes tells of logs of its own."""
    block = brings()
    block.transactionPool.logs.add(txHash=block_hash("tx").hex()).log.events.append(SWAP)
    return block


def earlier_of_another_hash() -> pb.OutportBlock:
    block = save_block(1, 6)
    block.blockData.headerHash = block_hash("another")
    return block


BROKEN = [
    ("result_contradicted", of_another_shard, [SAVE]),
    ("result_contradicted", of_another_height, [SAVE]),
    ("result_unheard", of_nobody, [SAVE, EXECUTED]),
    ("result_unheard", of_a_strange_height, [SAVE, EXECUTED]),
    ("format_unknown", of_type("HeaderV9"), [SAVE]),
    ("format_unknown", of_type(""), [SAVE]),
    ("shard_contradicted", in_shards(2, 1), [SAVE]),
    ("shard_contradicted", in_shards(1, 2), [SAVE]),
    ("shard_contradicted", in_shards(2, 2), [SAVE]),
    ("proposal_with_pool", with_a_pool, [SAVE, EXECUTED]),
    ("header_unreadable", earlier_of_another_hash, [SAVE]),
]


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(("kind", "make", "events"), BROKEN, ids=lambda value: getattr(value, "__name__", None))
async def test_broken_rules(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    make: Break,
    events: list[str],
    as_json: bool,
) -> None:
    """The block reaches consumers as it came and nothing more is made of it than its header bears out; both count."""
    async with notifier(tmp_path) as running, peers(running) as opened:
        node, speaks_json, consumer = await opened.node(), await json_node(running), await opened.consumer()
        await consumer.subscribe()
        await node.save(OLD)
        block = make()
        if as_json:
            await speaks_json.tell(frame_of(SAVE, dump(go_json(block, random.Random(kind))).encode()))
        else:
            await node.tell(SAVE, outport.serialize(block))
        told = (await consumer.events(1 + len(events)))[1:]
        assert [message.topic for message in told] == events
        assert told[0].payload == outport.serialize(block)
        assert bool(told[0].marks & INCOMPLETE) == (kind == "result_contradicted")
        assert running.metrics.irregular.labels(kind)._value.get() == 1
        assert running.metrics.dead_letters._value.get() == 0
        assert running.journal.head - running.journal.oldest == len(events)
    (line,) = [record for record in caplog.records if getattr(record, "kind", "") == kind]
    assert line.levelno == logging.WARNING
    assert line.__dict__["block"] == block.blockData.headerHash.hex()


NO_TEXT = b"\xff\xfe" * 4


def with_names_of(block: pb.OutportBlock, account: pb.AlteredAccount, name: bytes) -> pb.OutportBlock:
    """The block, in which an account has a name, and a token with an identifier and a name, that its owner chose."""
    account.additionalAccountData.userName = name
    account.tokens.add(identifier=name, nonce=1).metaData.name = name
    return block


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("later", [False, True])
async def test_whatever_users_call_their_tokens(tmp_path: Path, later: bool, as_json: bool) -> None:
    """A name that is no UTF-8 hides nothing: the block and all that was executed are told, and so are accounts alone;
    a node that writes protobuf is passed on byte for byte, and of what JSON cannot hold there is what Go wrote."""
    block = brings() if later else save_block(1, 6, events=[SWAP])
    result = block.blockData.results[OLD.blockData.headerHash.hex()] if later else block
    account = result.alteredAccounts["someone"]
    with_names_of(block, account, NO_TEXT)
    alone = pb.Accounts(shardID=1, alteredAccounts={"someone": account})
    async with notifier(tmp_path) as running, peers(running) as opened:
        node, speaks_json, consumer = await opened.node(), await json_node(running), await opened.consumer()
        filtered = await opened.consumer()
        await consumer.subscribe()
        await filtered.subscribe("Identifier", identifier="swap")
        for topic, message in ((SAVE, OLD), (SAVE, block), (outport.SAVE_ACCOUNTS, alone)):
            if as_json:
                await speaks_json.tell(frame_of(topic, dump(go_json(message, random.Random(1))).encode()))
            else:
                await node.tell(topic, outport.serialize(message))
        expected = [SAVE, SAVE, EXECUTED, outport.SAVE_ACCOUNTS] if later else [SAVE, SAVE, outport.SAVE_ACCOUNTS]
        told = await consumer.events(len(expected))
        assert [message.topic for message in told] == expected and not any(message.marks for message in told)
        assert (await filtered.event()).topic == (EXECUTED if later else SAVE)
        if as_json:
            with_names_of(block, account, ("\ufffd" * len(NO_TEXT)).encode())
            del account.tokens[0]
            alone.alteredAccounts["someone"].CopyFrom(account)
        assert told[1].payload == outport.serialize(block)
        assert told[-1].payload == outport.serialize(alone)
        assert pb.OutportBlock.FromString(told[-2].payload).alteredAccounts["someone"] == account
        assert next(iter(running.metrics.irregular.collect())).samples == []
        assert running.metrics.dead_letters._value.get() == 0


async def test_results_of_both_marshallers_are_one(tmp_path: Path) -> None:
    """A name that one node tells in bytes and another in what Go's JSON leaves of them makes no second execution."""
    async with notifier(tmp_path) as running, peers(running) as opened:
        node, speaks_json = await opened.node(), await json_node(running)
        await node.save(OLD)
        block = brings()
        with_names_of(
            block, block.blockData.results[OLD.blockData.headerHash.hex()].alteredAccounts["someone"], NO_TEXT
        )
        await node.tell(SAVE, outport.serialize(block))
        head = running.journal.head
        await speaks_json.tell(frame_of(SAVE, dump(go_json(block, random.Random(1))).encode()))
        assert running.journal.head == head


async def test_each_rule_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A block that breaks several rules has a line in the log for each."""
    async with notifier(tmp_path) as running, peers(running) as opened:
        node = await opened.node()
        await node.save(OLD)
        block = brings()
        (name,) = list(block.blockData.results)
        block.blockData.results[name.upper()].CopyFrom(block.blockData.results[name])
        del block.blockData.results[name]
        await node.save(block)
    kinds = [record.__dict__["kind"] for record in caplog.records if hasattr(record, "kind")]
    assert sorted(kinds) == ["result_missing", "result_unlisted"]


async def test_the_first_results_are_of_headers_before_the_journal(tmp_path: Path) -> None:
    """What a new journal's first blocks bring is of headers that nobody told it: that is no broken rule."""
    async with notifier(tmp_path) as running, peers(running) as opened:
        node = await opened.node()
        await node.save(brings())
        assert next(iter(running.metrics.irregular.collect())).samples == []


async def test_what_one_node_contradicts_another_tells(tmp_path: Path) -> None:
    """A result that its header does not bear out is told once a node brings it as it is."""
    async with notifier(tmp_path) as running, peers(running) as opened:
        one, two, consumer = await opened.node(), await opened.node(), await opened.consumer()
        await consumer.subscribe()
        await one.save(of_another_shard())
        await two.save(brings())
        told = await consumer.events(3)
        assert [message.topic for message in told] == [SAVE, SAVE, EXECUTED]
        assert pb.OutportBlock.FromString(told[2].payload).blockData.headerHash == OLD.blockData.headerHash


async def test_what_a_proposal_tells_was_not_executed(tmp_path: Path) -> None:
    """Filters look past the pool of a block that only proposes."""
    async with notifier(tmp_path) as running, peers(running) as opened:
        node, consumer = await opened.node(), await opened.consumer()
        await consumer.subscribe("Identifier", identifier="burn")
        block = proposal(1, 6)
        block.transactionPool.logs.add(txHash=block_hash("tx").hex()).log.events.append(event(b"\1" * 32, "burn"))
        await node.save(block)
        await node.save(proposal(1, 7, ran=[ran(block, event(b"\2" * 32, "burn"))]))
        assert (await consumer.event()).topic == EXECUTED


async def test_a_newer_nodes_header_in_json(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A name that this version does not know takes a header's hash away: a kind of its own, which says what to do."""
    block = brings()
    newer = pb.HeaderV3.FromString(block.blockData.headerBytes + b"\xfa\x3e\x01x")
    block.blockData.headerBytes = outport.serialize(newer)
    block.blockData.headerHash = blake2b(block.blockData.headerBytes, digest_size=32).digest()
    told = go_json(block, random.Random(1))
    header = json.loads(base64.b64decode(told["blockData"]["headerBytes"])) | {"newField": "eA=="}
    header["executionResults"][0]["baseExecutionResult"]["alsoNew\n" + 99 * "x"] = 1
    told["blockData"]["headerBytes"] = base64.b64encode(dump(header).encode()).decode()
    async with notifier(tmp_path) as running, peers(running) as opened:
        node, speaks_json, consumer = await opened.node(), await json_node(running), await opened.consumer()
        await consumer.subscribe()
        await node.save(OLD)
        await speaks_json.tell(frame_of(SAVE, dump(told).encode()))
        assert [message.topic for message in await consumer.events(2)] == [SAVE, SAVE]
        assert running.metrics.irregular.labels("header_newer")._value.get() == 1
        assert running.metrics.irregular.labels("header_unreadable")._value.get() == 0
        await node.save(block)  # the same from a node that writes protobuf
        assert [message.topic for message in await consumer.events(2)] == [SAVE, EXECUTED]
    (line,) = [record for record in caplog.records if getattr(record, "kind", "") == "header_newer"]
    assert "HeaderV3.newField" in line.unknown and "BaseExecutionResult.alsoNew" in line.unknown
    assert len(line.unknown) < 200 and "MarshallerType" in line.hint and line.node
