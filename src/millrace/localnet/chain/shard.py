"""One shard: its ledger, its mempool, its blocks, and the miniblocks that wait to be executed in it."""

from __future__ import annotations

import logging
from collections import deque

from millrace.chain.call import TokenPayment
from millrace.chain.network import NetworkProfile
from millrace.chain.token import NATIVE
from millrace.chain.transaction import Transaction
from millrace.localnet.chain.block import (
    Block,
    Grant,
    MiniBlock,
    Place,
    intra_miniblocks_of,
    miniblocks_of,
    seal,
    shard_header,
)
from millrace.localnet.chain.content import TX_BLOCK, Content, Result
from millrace.localnet.chain.mempool import Mempool
from millrace.localnet.chain.processor import Processor
from millrace.localnet.contracts.calls import BlockInfo
from millrace.localnet.contracts.frame import State
from millrace.localnet.market import faucet
from millrace.localnet.market.market import WRAPPED, Market

log = logging.getLogger(__name__)

KEPT_FINAL = 64  # final blocks kept for look-ups; older ones are forgotten
GENESIS = bytes(32)


class Arrival:
    """A miniblock of another shard with its items, ready to be executed here."""

    __slots__ = ("items", "meta_hash", "miniblock")

    def __init__(self, miniblock: MiniBlock, items: list[Transaction | Result], meta_hash: bytes) -> None:
        self.miniblock = miniblock
        self.items = items
        self.meta_hash = meta_hash


class _Work:
    """What a block in the making took from its queues."""

    def __init__(self) -> None:
        self.grants: list[Grant] = []
        self.arrivals: list[Arrival] = []
        self.taken: list[tuple[bytes, Transaction]] = []


class Shard:
    """The state machine of one shard; `make_block` is its only way forward, `take_back` the only way back."""

    def __init__(
        self,
        shard: int,
        network: NetworkProfile,
        state: State,
        mempool: Mempool,
        max_block_gas: int,
        max_block_items: int,
        market: Market | None = None,
    ) -> None:
        self.id = shard
        self.network = network
        self.state = state
        self.mempool = mempool
        self.blocks: deque[Block] = deque()
        """Newest last: all that are not final, and the newest final ones."""
        self.waiting: deque[Arrival] = deque()
        """Miniblocks that the metachain has notarised for this shard, oldest first."""
        self.grants: deque[Grant] = deque()
        """What the faucet owes; only the contracts' shard, which has the `market`, has any."""
        self.discarded: list[bytes] = []
        """Transactions given up because of a defect; the chain takes note and clears it each round."""
        self.stopped = False
        self.forks = 0
        self._executed: dict[bytes, list[Arrival]] = {}
        self._max_block_gas = max_block_gas
        self._max_block_items = max_block_items
        self._market = market
        self._genesis_nonce = 0

    @property
    def head(self) -> Block | None:
        """The newest block."""
        return self.blocks[-1] if self.blocks else None

    @property
    def next_nonce(self) -> int:
        """The number of the block that comes next."""
        return self.blocks[-1].nonce + 1 if self.blocks else self._genesis_nonce + 1

    def make_block(self, place: Place) -> Block | None:
        """Execute what waits, first from other shards, then from the mempool, and append the block.

        A defect that raises costs the transaction it came with, not the chain: there is no block then, and all
        else waits for the next round.
        """
        ledger = self.state.ledger
        checkpoint = ledger.checkpoint()
        self.state.block = BlockInfo(place.nonce, place.round, place.epoch, place.timestamp_ms // 1000)
        content = Content()
        processor = Processor(self.network, self.id, self.state, content)
        work = _Work()
        try:
            self._execute(processor, content, work)
        except Exception:
            log.exception("block given up", extra={"shard": self.id, "nonce": place.nonce})
            ledger.rollback(checkpoint)
            self._give_back(work)
            return None
        miniblocks = miniblocks_of(content)
        meta_hashes = list(dict.fromkeys(arrival.meta_hash for arrival in work.arrivals))
        raw, block_hash = seal(shard_header(place, content, miniblocks, meta_hashes))
        altered = ledger.touched(checkpoint)
        block = Block(
            shard=self.id,
            nonce=place.nonce,
            round=place.round,
            epoch=place.epoch,
            timestamp_ms=place.timestamp_ms,
            hash=block_hash,
            header_type="HeaderV2",
            header=raw,
            miniblocks=miniblocks,
            intra_miniblocks=intra_miniblocks_of(content, self.id),
            content=content,
            leader=place.leader,
            altered=altered,
            checkpoint=checkpoint,
            incoming=[arrival.miniblock for arrival in work.arrivals],
            grants=work.grants,
        )
        self._executed[block_hash] = work.arrivals
        self.blocks.append(block)
        return block

    def _execute(self, processor: Processor, content: Content, work: _Work) -> None:
        while self.grants:
            work.grants.append(self.grants.popleft())
            self._execute_grant(processor, content, work.grants[-1])
        while self.waiting and len(content.entries) < self._max_block_items:
            work.arrivals.append(self.waiting.popleft())
            self._execute_arrival(processor, work.arrivals[-1])
        room = self._max_block_items - len(content.entries)
        for tx_hash, tx in self.mempool.select(self.state.ledger, self._max_block_gas, room):
            work.taken.append((tx_hash, tx))
            if not processor.execute_new(tx_hash, tx):
                content.dropped.append((tx_hash, tx))
                content.finish(tx_hash, "dropped", "it could not be charged")

    def _give_back(self, work: _Work) -> None:
        """Let everything wait again but the transaction, or the grant, that was being executed."""
        if work.taken:
            self.discarded.append(work.taken.pop()[0])
        elif work.grants and not work.arrivals:
            work.grants.pop()
        self.grants.extendleft(reversed(work.grants))
        self.waiting.extendleft(reversed(work.arrivals))
        for tx_hash, tx in work.taken:
            self.mempool.put_back(tx_hash, tx, self.state.block.round)

    def finalise(self, block: Block) -> None:
        """The block stays for ever: its undo information is given up, old blocks are forgotten."""
        block.final = True
        self.state.ledger.discard(block.checkpoint)
        self._executed.pop(block.hash, None)
        while len(self.blocks) > KEPT_FINAL and self.blocks[0].handed_on and self.blocks[1].final:
            self.blocks.popleft().forget_body()

    def take_back(self, depth: int) -> list[Block]:
        """Revert the newest `depth` blocks, newest first. Raises `ValueError` if one of them is final.

        Their transactions return to the mempool, the miniblocks they executed wait again, and the ledger is as it
        was before them. What they sent to other shards was never notarised, because they were not final.
        """
        if depth < 1 or depth > len(self.blocks) or self.blocks[-depth].final:
            raise ValueError("only blocks that are not final yet can be taken back; see control/finality")
        reverted = [self.blocks.pop() for _ in range(depth)]
        self.state.ledger.rollback(reverted[-1].checkpoint)
        self.forks += 1
        for block in reverted:
            self.waiting.extendleft(reversed(self._executed.pop(block.hash)))
            self.grants.extendleft(reversed(block.grants))
            for key, hashes in block.content.miniblocks.items():
                for tx_hash in hashes:
                    item = block.content.entries[tx_hash].item
                    if key[0] == self.id and isinstance(item, Transaction):
                        self.mempool.put_back(tx_hash, item, block.round)
            for tx_hash, tx in block.content.dropped:
                self.mempool.put_back(tx_hash, tx, block.round)
        return reverted

    def outgoing(self, block: Block) -> list[MiniBlock]:
        """The miniblocks of a block that other shards execute."""
        return [mini for mini in block.miniblocks if mini.sender_shard == self.id != mini.receiver_shard]

    def _execute_grant(self, processor: Processor, content: Content, grant: Grant) -> None:
        """Make what the faucet owes and send it off; one that cannot be made is dropped."""
        assert self._market is not None
        ledger, payer = self.state.ledger, self._market.addresses.provider
        try:
            faucet.grant(self._market, self.state, ledger, payer, grant.token, grant.amount)
        except faucet.FaucetError as error:
            log.warning("the faucet cannot give", extra={"token": grant.token, "why": str(error)})
            return
        content.minted += grant.amount if grant.token in (NATIVE, WRAPPED) else 0
        processor.execute_grant(payer, grant.receiver, TokenPayment(grant.token, 0, grant.amount), grant.hash)

    def _execute_arrival(self, processor: Processor, arrival: Arrival) -> None:
        mini = arrival.miniblock
        for item_hash, item in zip(mini.tx_hashes, arrival.items, strict=True):
            if mini.kind == TX_BLOCK:
                assert isinstance(item, Transaction)
                processor.execute_transaction(item_hash, item, mini.sender_shard)
            else:
                assert isinstance(item, Result)
                processor.execute_result(item_hash, item, mini.sender_shard)
