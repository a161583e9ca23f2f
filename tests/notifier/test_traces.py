"""What a consumer's acknowledgement says of traces, and what the notifier adds to them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from millrace.chain import outport
from millrace.notifier.rules.hub_protocol import MOST_TRACES
from waiting import until

from .helpers import Consumer, notifier, peers, save_block

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def _tell(consumer: Consumer, sequence: int, *traces: str) -> None:
    consumer.auto_ack = False
    consumer.send_binary(outport.ack_envelope(sequence, traces))


async def test_a_block_joins_its_transaction_s_trace(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The span of an event lasts from its arrival to its delivery; nonsense and what is over the bound are left out."""
    caplog.set_level(logging.INFO)
    async with notifier(tmp_path, tracing="log", trace_rate=100.0) as running, peers(running) as connect:
        consumer = await connect.consumer()
        await consumer.subscribe()
        consumer.auto_ack = False
        node = await connect.node()
        block = save_block(1, 1)
        await node.save(block)
        sequence = (await consumer.event()).counter
        _tell(consumer, sequence, "nonsense", PARENT, PARENT[:-2] + "00")
        _tell(consumer, sequence, *[PARENT] * (MOST_TRACES + 10))
        for unknown in (0, 1, sequence + 100, 2**64 - 1):
            _tell(consumer, unknown, PARENT)
        await node.save(save_block(1, 2))
        assert (await consumer.event()).counter == sequence + 1  # what came before has been read
        await until(lambda: running.hub._tracer.begun >= 1 + MOST_TRACES)
    spans = [record for record in caplog.records if record.message == "span"]
    assert len(spans) == 1 + MOST_TRACES
    assert {(span.span, span.trace_id, span.shard, span.block) for span in spans} == {
        ("block", TRACE, 1, block.blockData.headerHash.hex())
    }


async def test_off_heeds_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without the setting an acknowledgement with traces is an acknowledgement."""
    caplog.set_level(logging.INFO)
    async with notifier(tmp_path, window_frames=1) as running, peers(running) as connect:
        consumer = await connect.consumer()
        await consumer.subscribe()
        consumer.auto_ack = False
        node = await connect.node()
        for nonce in (1, 2):
            await node.save(save_block(1, nonce))
            _tell(consumer, (await consumer.event()).counter, PARENT)
    assert [record for record in caplog.records if record.message == "span"] == []
