"""A chain on the gossip network: its first blocks are executed when they are made, all others later."""

from __future__ import annotations

import asyncio
import time

import msgspec
from aiohttp import web
from relayer_later import ROUND_MS, LaterMaker, results_of
from relayer_support import NETWORK, BlockMaker, FakeChainApi, FakeHub

from millrace.chain import gossip, outport
from millrace.chain.fees import initially_paid_fee
from millrace.chain.keys import verify
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.transaction import (
    Transaction,
    TransactionJson,
    chain_hash,
    client_hash,
    from_json,
    from_proto,
    signing_message,
)
from millrace.gossip import GossipMessage
from millrace.runtime import http

BLOCK_SECONDS = 0.1
CHANGE_OVER = 10
"""The height of each shard's last block of the earlier format."""
REVERTS = 7
"""At every so many heights a block is taken back, and another takes its place."""


class Chain:
    """Takes what is gossiped (or submitted to its API) into final blocks, each sender's nonces in order."""

    def __init__(self, hub: FakeHub, api: FakeChainApi) -> None:
        self.hub, self.api = hub, api
        self.makers = {shard: BlockMaker(shard) for shard in range(NETWORK.shards)}
        self.later: dict[int, LaterMaker] = {}
        """Of shards that have changed over to blocks executed later."""
        self.changed = asyncio.Event()
        """Set once all have."""
        self.proposed: dict[int, tuple[pb.OutportBlock, list[Transaction]]] = {}
        """What each of them proposed last, and has not executed."""
        self.payloads: dict[tuple[bytes, int], bytes] = {}
        self.nonces: dict[bytes, int] = {}
        self.moved: dict[int, set[bytes]] = {shard: set() for shard in range(NETWORK.shards)}
        """Who used nonces without the relayer, and no block has told yet, by shard."""
        self.waiting: dict[bytes, dict[int, Transaction]] = {}
        self.pushed_at: dict[bytes, float] = {}
        """When a transaction's block was pushed, by each of its hashes."""
        self.at_risk: dict[bytes, int] = {}
        self.most_at_risk = 0
        self.gossiped = 0
        self.wrong: list[str] = []
        self._known: set[bytes] = set()

    def on_gossip(self, message: GossipMessage) -> None:
        for item in gossip.unwrap_transactions(message.data, int(time.time())):
            self.gossiped += 1
            self.take(from_proto(item))

    def take(self, tx: Transaction) -> None:
        """One transaction from the network: what nobody may ever see is written down in `wrong`."""
        name = chain_hash(tx)
        if name in self._known:
            return
        self._known.add(name)
        message = signing_message(tx)
        if not verify(tx.sender, message, tx.signature):
            self.wrong.append(f"{name.hex()}: a wrong signature was sent")
        if tx.relayer and not verify(tx.relayer, message, tx.relayer_signature):
            self.wrong.append(f"{name.hex()}: a wrong co-signature was sent")
        if self.payloads.setdefault((tx.sender, tx.nonce), message) != message:
            self.wrong.append(f"{name.hex()}: a second payload of nonce {tx.nonce} was sent")
        self.waiting.setdefault(tx.sender, {})[tx.nonce] = tx
        if tx.relayer:
            risk = self.at_risk.get(tx.relayer, 0) + initially_paid_fee(tx, NETWORK.gas)
            self.at_risk[tx.relayer] = risk
            self.most_at_risk = max(self.most_at_risk, risk)

    def use_up(self, sender: bytes, nonce: int) -> None:
        """The sender itself pays for transactions up to this nonce."""
        self.nonces[sender] = max(self.nonces.get(sender, 0), nonce + 1)
        self.api.set(sender, self.nonces[sender], 10**18)
        self.moved[NETWORK.shard_of(sender)].add(sender)

    async def produce(self) -> None:
        """Blocks for ever: of the earlier format at first, then such as are executed with the next one."""
        while True:
            await asyncio.sleep(BLOCK_SECONDS)
            for shard in self.makers:
                ready = [tx for sender in list(self.waiting) for tx in self._next_of(sender, shard)]
                if shard in self.later:
                    self._propose(shard, ready)
                elif ready or self.moved[shard]:
                    self._push(shard, ready)

    def _next_of(self, sender: bytes, shard: int) -> list[Transaction]:
        """The transactions of a sender that can run now."""
        ready: list[Transaction] = []
        if NETWORK.shard_of(sender) != shard:
            return ready
        waiting, nonce = self.waiting[sender], self.nonces.get(sender, 0)
        while (tx := waiting.pop(nonce, None)) is not None:
            ready.append(tx)
            nonce += 1
        self.nonces[sender] = nonce
        return ready

    def _accounts(self, shard: int, ready: list[Transaction]) -> dict[bytes, tuple[int, int]]:
        """Transactions are executed: how their senders are, what was proposed since then included.

        So are those who paid for something themselves since the last block.
        """
        moved, self.moved[shard] = self.moved[shard], set()
        accounts = {sender: (self.nonces[sender], 10**18) for sender in [*moved, *(tx.sender for tx in ready)]}
        for sender, (nonce, balance) in accounts.items():
            self.api.set(sender, nonce, balance)
        now = time.monotonic()
        for tx in ready:
            self.pushed_at[chain_hash(tx)] = self.pushed_at[client_hash(tx)] = now
            if tx.relayer:
                self.at_risk[tx.relayer] -= initially_paid_fee(tx, NETWORK.gas)
        return accounts

    def _push(self, shard: int, ready: list[Transaction]) -> None:
        """A block that was executed when it was made; the shard's last one is followed by such as are not."""
        maker = self.makers[shard]
        block = maker.block(ready, accounts=self._accounts(shard, ready))
        if maker.nonce % REVERTS == 0:
            fork = pb.OutportBlock.FromString(block.SerializeToString())
            fork.blockData.headerHash = b"f" + block.blockData.headerHash[1:]
            self.hub.save(fork, final=False)
            self.hub.push(outport.REVERT_INDEXED_BLOCK, fork.blockData)
        self.hub.save(block)
        if maker.nonce == CHANGE_OVER:
            start_ms = time.time_ns() // 1_000_000 - ROUND_MS * maker.nonce
            self.later[shard] = LaterMaker(shard, nonce=maker.nonce, previous=maker.previous, start_ms=start_ms)
            if len(self.later) == NETWORK.shards:
                self.changed.set()

    def _propose(self, shard: int, ready: list[Transaction]) -> None:
        """A block that brings what was executed of the one before; some are replaced, which bring it again."""
        maker = self.later[shard]
        before, proposed = self.proposed.pop(shard, (None, []))
        if before is None and not ready and not self.moved[shard]:
            return
        results = []
        if before is not None:
            results.append(maker.execute(before, proposed, accounts=self._accounts(shard, proposed)))
        told = False
        if maker.nonce % REVERTS == 0:
            fork = maker.propose(ready, results, fork=1)
            self._save(fork, told)
            self.hub.push(outport.REVERT_INDEXED_BLOCK, fork.blockData)
            told = True
        block = maker.propose(ready, results)
        self._save(block, told)
        self.hub.finalise(block)
        if ready or self.moved[shard]:
            self.proposed[shard] = block, ready

    def _save(self, block: pb.OutportBlock, told: bool) -> None:
        self.hub.save(block, final=False)
        for result in [] if told else results_of(block):
            self.hub.push(outport.EXECUTED_BLOCK, result)


class ChainApi(FakeChainApi):
    """A chain API whose submitted transactions reach the chain, as a gateway's do."""

    chain: Chain

    async def _submit(self, request: web.Request) -> web.Response:
        self.chain.take(from_json(msgspec.json.decode(await request.read(), type=TransactionJson)))
        return http.json_response({"txHash": ""}, 201)
