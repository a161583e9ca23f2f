"""Small chains driven by hand, wallets that sign for them, and the sums that must hold."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from millrace.chain import bigint, outport
from millrace.chain.address import encode
from millrace.chain.call import TokenPayment, multi_transfer
from millrace.chain.headers import read_header
from millrace.chain.keys import KeyPair
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.token import NATIVE
from millrace.chain.transaction import Transaction, signing_message
from millrace.localnet.chain.machine import Chain, NodeEvent
from millrace.localnet.settings import NEVER, LocalnetSettings

EGLD = 10**18
GAS_PRICE = 10**9
SMALL = {"pools": 30, "tokens": 12, "traders_per_second": 0.0, "relayer_egld": 50}
FORMATS = {"earlier": NEVER, "present": 0}
"""Of blocks, with the setting that chooses each."""


def key_in(shard: int, number: int = 0) -> KeyPair:
    """The `number`-th wallet of a shard, the same one each time (shard: last byte modulo 3)."""
    found = -1
    for seed in range(10_000):
        key = KeyPair.from_seed(b"localnet tests" + seed.to_bytes(18, "big"))
        if key.public[-1] % 3 == shard:
            found += 1
            if found == number:
                return key
    raise AssertionError("no such wallet")


class Bench:
    """A chain, its events so far, and short ways to use both."""

    def __init__(self, **settings: Any) -> None:
        self.relayers = {shard: key_in(shard, 9) for shard in range(3)}
        relayers = tuple(encode(key.public) for key in self.relayers.values())
        self.chain = Chain(
            LocalnetSettings(**({**SMALL, "relayers": relayers} | settings)), genesis_ms=1_700_000_000_000
        )
        self.events: list[NodeEvent] = []
        self.initial = self.held()
        proposes = self.chain.settings.proposes_in(1)
        self.here = 1 + self.chain.settings.execution_delay if proposes else 1
        """Rounds until a transaction within a shard is executed and a header tells so."""
        self.hop = self.here + 1 if proposes else 1
        """Rounds more for each shard that it goes on to."""

    # Acting

    def rounds(self, count: int = 1, **kwargs: Any) -> list[NodeEvent]:
        """So many rounds; the events of all of them."""
        events = []
        for _ in range(count):
            events += self.chain.advance_round(**kwargs)
        self.events += events
        return events

    def give(self, key: KeyPair, token: str = NATIVE, amount: int = EGLD) -> None:
        """Fund an account and wait until it has the amount."""
        before = self.balance(key, token)
        self.chain.give(key.public, token, amount)
        self.rounds(self.here + self.hop)
        assert self.balance(key, token) == before + amount

    def tx(self, key: KeyPair, receiver: bytes, value: int = 0, data: bytes = b"", **fields: Any) -> Transaction:
        """A signed transaction; `relayed=True` lets the shard's relayer pay."""
        relayer = self.relayers[key.public[-1] % 3] if fields.pop("relayed", False) else None
        draft = Transaction(
            **{
                "nonce": self.chain.account(key.public).nonce,
                "value": value,
                "receiver": receiver,
                "sender": key.public,
                "gas_price": GAS_PRICE,
                "gas_limit": 50_000 + 1500 * len(data) + (50_000 if relayer else 0),
                "chain_id": "local",
                "data": data,
                "relayer": relayer.public if relayer else b"",
            }
            | fields
        )
        message = signing_message(draft)
        return msgspec.structs.replace(
            draft, signature=key.sign(message), relayer_signature=relayer.sign(message) if relayer else b""
        )

    def multi(
        self, key: KeyPair, receiver: bytes, payments: list[TokenPayment], *call: Any, **fields: Any
    ) -> Transaction:
        """A transfer of several tokens, sent to oneself as the chain wants it."""
        return self.tx(key, key.public, data=multi_transfer(receiver, payments, *call), **fields)

    # Looking

    def balance(self, key: KeyPair, token: str = NATIVE) -> int:
        """What a wallet holds."""
        return self.chain.ledger_of(key.public).balance_of(key.public, token)

    def status(self, tx_hash: bytes) -> tuple[str, str]:
        """Status and reason of a transaction."""
        record = self.chain.index.find(tx_hash)
        assert record is not None
        return record.status, record.reason

    def held(self) -> int:
        """All EGLD in accounts."""
        return sum(
            account.balance for shard in self.chain.shards.values() for account in shard.state.ledger.accounts.values()
        )

    def state(self) -> dict[int, Any]:
        """Everything in all ledgers, as values that compare."""
        return {
            number: (
                {key: (a.nonce, a.balance, dict(a.tokens)) for key, a in shard.state.ledger.accounts.items()},
                dict(shard.state.ledger.pools),
            )
            for number, shard in self.chain.shards.items()
        }

    def saved(self, events: list[NodeEvent] | None = None, shard: int | None = None) -> list[pb.OutportBlock]:
        """The blocks in events."""
        return [
            pb.OutportBlock.FromString(event.payload)
            for event in (self.events if events is None else events)
            if event.topic == outport.SAVE_BLOCK and shard in (None, event.shard)
        ]

    def executed(self, events: list[NodeEvent] | None = None, shard: int | None = None) -> list[pb.OutportBlock]:
        """What blocks in events tell as executed, each as a block of the earlier format, and each time it is told."""
        return [told for block in self.saved(events, shard) for told in self.told_by(block)]

    def step(self, shard: int) -> pb.OutportBlock:
        """A round, and as many more as it takes until a shard's block of that round is told as executed; that block."""
        return self.executed(self.rounds(self.here), shard)[-1]

    def standing(self) -> list[pb.OutportBlock]:
        """The saved blocks that were not taken back."""
        gone = {
            pb.BlockData.FromString(event.payload).headerHash
            for event in self.events
            if event.topic == outport.REVERT_INDEXED_BLOCK
        }
        return [block for block in self.saved() if block.blockData.headerHash not in gone]

    def fees(self) -> int:
        """The fees that the standing blocks of shards tell as collected."""
        return sum(self.fees_of(block) for block in self.standing())

    def revert(self, shard: int, depth: int) -> list[NodeEvent]:
        """Take blocks back; nothing where one of them is final."""
        try:
            events = self.chain.take_back(shard, depth)
        except ValueError:
            return []
        self.events += events
        return events

    @staticmethod
    def told_by(block: pb.OutportBlock) -> list[pb.OutportBlock]:
        """The executions that a block tells, each as a block of the earlier format; one of that format is its own."""
        header = read_header(block.blockData)
        assert header is not None
        if not header.proposes:
            return [block]
        found = []
        for execution in header.executions:
            result = block.blockData.results[execution.block_hash.hex()]
            made_up = pb.Header(
                nonce=execution.nonce,
                shardID=block.shardID,
                round=execution.round,
                epoch=execution.epoch,
                rootHash=execution.root_hash,
                miniBlockHeaders=execution.miniblocks,
                accumulatedFees=bigint.encode(execution.accumulated_fees),
                developerFees=bigint.encode(execution.developer_fees),
                txCount=execution.tx_count,
            )
            data = pb.BlockData(
                shardID=block.shardID,
                headerType="HeaderV2",
                headerBytes=pb.HeaderV2(header=made_up).SerializeToString(),
                headerHash=execution.block_hash,
                body=result.body,
                intraShardMiniBlocks=result.intraShardMiniBlocks,
                timestampMs=result.timestampMs,
            )
            told = pb.OutportBlock(
                shardID=block.shardID,
                blockData=data,
                transactionPool=result.transactionPool,
                headerGasConsumption=result.headerGasConsumption,
                carryingHeaderHash=block.blockData.headerHash,
                carryingHeaderNonce=header.nonce,
            )
            for text, account in result.alteredAccounts.items():
                told.alteredAccounts[text].CopyFrom(account)
            found.append(told)
        return found

    @staticmethod
    def fees_of(block: pb.OutportBlock) -> int:
        """The fees that a shard's block tells as collected."""
        header = read_header(block.blockData)
        assert header is not None
        return header.accumulated_fees + sum(execution.accumulated_fees for execution in header.executions)


@pytest.fixture(params=list(FORMATS))
def make_bench(request: pytest.FixtureRequest) -> Callable[..., Bench]:
    """Makes a chain with settings of choice, in either format of blocks."""
    return partial(Bench, supernova_epoch=FORMATS[request.param])


@pytest.fixture
def make_earlier() -> Callable[..., Bench]:
    """Makes a chain with settings of choice, in the earlier format of blocks."""
    return partial(Bench, supernova_epoch=NEVER)


@pytest.fixture
def make_present() -> Callable[..., Bench]:
    """Makes a chain with settings of choice, in the present format of blocks unless they say otherwise."""
    return partial(Bench, supernova_epoch=0)


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    """A small quiet chain whose blocks are final at once, in either format of blocks."""
    return make_bench()


@pytest.fixture
def wallet() -> Callable[..., KeyPair]:
    """Makes the same wallets each time: `wallet(shard, number)`."""
    return key_in
