"""One shard: its ledger, its mempool, its blocks, and the miniblocks that wait to be executed in it.

A block is work taken from the queues, and what executing it came to. In the earlier format both are one step. In the
present one a block is proposed first; it is executed, and a later header of the shard tells so, `delay` blocks later.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator

from millrace.chain.call import TokenPayment
from millrace.chain.network import NetworkProfile
from millrace.chain.token import NATIVE
from millrace.chain.transaction import Transaction
from millrace.localnet.chain import block as blocks
from millrace.localnet.chain.block import NOTHING_TOLD, Arrival, Block, Execution, Grant, MiniBlock, Work
from millrace.localnet.chain.content import TX_BLOCK, Content, Result
from millrace.localnet.chain.header import Place, proposing_header, seal, shard_header
from millrace.localnet.chain.mempool import Mempool
from millrace.localnet.chain.processor import Processor
from millrace.localnet.chain.selection import Accounts, Selection
from millrace.localnet.contracts.calls import BlockInfo
from millrace.localnet.contracts.frame import State
from millrace.localnet.market import faucet
from millrace.localnet.market.market import WRAPPED, Market
from millrace.localnet.settings import LocalnetSettings

log = logging.getLogger(__name__)

KEPT_FINAL = 64  # final blocks kept for look-ups; older ones are forgotten
MAX_RESULTS = 20  # executions told in one header (mx-chain-go 2.0, MaxResultsPerBlock)
MAX_PROPOSED = 100
"""Blocks proposed and not executed; beyond it none is proposed. As many as live nodes track in their selection."""
UNEXECUTABLE = "not executable in block"
UNCHARGED = "it could not be charged"


class Shard:
    """The state machine of one shard; `make_block` is its only way forward, `take_back` the only way back."""

    def __init__(
        self,
        shard: int,
        network: NetworkProfile,
        state: State,
        mempool: Mempool,
        settings: LocalnetSettings,
        market: Market | None = None,
    ) -> None:
        self.id = shard
        self.network = network
        self.state = state
        self.mempool = mempool
        self.blocks: deque[Block] = deque()
        """Newest last: all that are not final, or whose execution is not told yet, and the newest others."""
        self.waiting: deque[Arrival] = deque()
        """Miniblocks that the metachain has notarised for this shard, oldest first."""
        self.grants: deque[Grant] = deque()
        """What the faucet owes; only the contracts' shard, which has the `market`, has any."""
        self.discarded: list[bytes] = []
        """Transactions given up: because of a defect, or passed over; the chain takes note and clears it each round."""
        self.stopped = False
        self.executes = True
        """Whether proposals are executed and told; otherwise they pile up."""
        self.forks = 0
        self._settings = settings
        self._market = market

    @property
    def head(self) -> Block | None:
        """The newest block."""
        return self.blocks[-1] if self.blocks else None

    @property
    def last_executed(self) -> Block | None:
        """The newest block that has been executed: accounts, pools and views are as it left them."""
        return next((block for block in reversed(self.blocks) if block.execution is not None), None)

    @property
    def next_nonce(self) -> int:
        """The number of the block that comes next."""
        return self.blocks[-1].nonce + 1 if self.blocks else 1

    def selection(self) -> Selection:
        """What senders may spend on top of all that is proposed."""
        selection = Selection(self.state.ledger, self.network.gas)
        for block in self._proposed():
            for _, tx in block.work.taken:
                selection.take(tx)
        return selection

    def is_proposed(self, tx_hash: bytes) -> bool:
        """Whether this very transaction waits to be executed."""
        return any(tx_hash == taken for block in self._proposed() for taken, _ in block.work.taken)

    def make_block(self, place: Place) -> Block | None:
        """Append a block with what waits: first from other shards, then from the mempool; `None` if there is none now.

        A defect that raises costs the transaction it came with, not the chain.
        """
        return self._propose(place) if place.proposes else self._make(place)

    # The earlier format

    def _make(self, place: Place) -> Block | None:
        """Execute what waits and make a block of it. After a defect all else waits for the next round."""
        work = self._gather()
        execution = self._run(place, work, self._taking(work))
        if execution is None:
            self._give_back(work, place.round)
            return None
        block = seal(place, shard_header(place, execution, work), execution.miniblocks, work)
        block.execution = execution
        block.last_result = block.result(place.round)
        return self._append(block)

    def _taking(self, work: Work) -> Iterator[tuple[bytes, Transaction]]:
        """Transactions of the mempool, each noted before it is executed."""
        accounts, room = Accounts(self.state.ledger), self._settings.max_block_items - work.items
        for tx_hash, tx in self.mempool.select(accounts, self._settings.max_block_gas, room):
            work.taken.append((tx_hash, tx))
            yield tx_hash, tx

    def _give_back(self, work: Work, round_: int) -> None:
        """Let everything wait again but the transaction, or the grant, whose execution raised."""
        self.discarded += work.faulty
        self.grants.extendleft(reversed(work.grants))
        self.waiting.extendleft(reversed(work.arrivals))
        for tx_hash, tx in work.taken:
            if tx_hash not in work.faulty:
                self.mempool.put_back(tx_hash, tx, round_)

    # The present format

    def _propose(self, place: Place) -> Block | None:
        """Execute what is due, then propose what waits and tell the executions that are due in this header."""
        delay = self._settings.execution_delay
        self._execute_until(place.nonce - delay)
        if sum(1 for _ in self._proposed()) >= MAX_PROPOSED:
            return None
        head = self.head
        last = head.last_result if head is not None else NOTHING_TOLD
        results = self._untold(last.nonce, place.nonce - delay)
        if results:
            last = results[-1].result(place.round)
        work = self._gather()
        self._select(work)
        body = blocks.proposal(work, self.id)
        block = seal(place, proposing_header(place, body, work, results, last), body, work)
        block.last_result, block.results = last, results
        self._append(block)
        if self._settings.executes_ahead:
            self._execute_until(place.nonce)
        return block

    def _select(self, work: Work) -> None:
        """Take transactions that can be executed after all that is proposed; the others go on waiting."""
        selection, room = self.selection(), self._settings.max_block_items - work.items
        for tx_hash, tx in self.mempool.select(selection, self._settings.max_block_gas, room):
            selection.take(tx)
            work.taken.append((tx_hash, tx))

    def _proposed(self) -> Iterator[Block]:
        """Blocks that have not been executed, newest first."""
        for block in reversed(self.blocks):
            if block.execution is not None:
                return
            yield block

    def _untold(self, told: int, until: int) -> list[Block]:
        """Executed blocks after the last one told, in their order, as many as one header tells."""
        if not self.executes:
            return []
        due = [block for block in self.blocks if told < block.nonce <= until and block.execution is not None]
        return due[:MAX_RESULTS]

    def _execute_until(self, nonce: int) -> None:
        """Execute proposals up to a number, oldest first, unless execution is paused."""
        if not self.executes:
            return
        for block in reversed(list(self._proposed())):
            if block.nonce > nonce:
                return
            if not self._execute(block):
                return

    def _execute(self, block: Block) -> bool:
        """Execute a proposal; `False` when what arrived with it cannot be executed: it is tried again next round.

        A transaction or a grant whose execution raises is left out, and the block begins again.
        """
        while (execution := self._run(block, block.work, block.work.taken)) is None:
            if isinstance(block.work.at, Arrival):
                return False
        block.execution = execution
        if block.final:
            self.state.ledger.discard(execution.checkpoint)
        return True

    # Both

    def _gather(self) -> Work:
        """Take what the faucet owes and what has arrived."""
        work = Work(grants=list(self.grants))
        self.grants.clear()
        while self.waiting and work.items < self._settings.max_block_items:
            work.arrivals.append(self.waiting.popleft())
        return work

    def _run(
        self, at: Place | Block, work: Work, transactions: Iterable[tuple[bytes, Transaction]]
    ) -> Execution | None:
        """Execute work as of a block. `None` after a defect: the state is as before, `work` says what raised."""
        ledger = self.state.ledger
        checkpoint = ledger.checkpoint()
        ledger.epoch = at.epoch
        self.state.block = BlockInfo(at.nonce, at.round, at.epoch, at.timestamp_ms // 1000)
        content = Content()
        processor = Processor(self.network, self.id, self.state, content, logs_invalid=at.proposes)
        try:
            for grant in work.grants:
                work.at = grant
                self._execute_grant(processor, content, grant)
            for arrival in work.arrivals:
                work.at = arrival
                self._execute_arrival(processor, arrival)
            for tx_hash, tx in transactions:
                work.at = tx_hash
                if tx_hash in work.faulty or not processor.execute_new(tx_hash, tx):
                    content.refuse(tx_hash, tx, UNEXECUTABLE if at.proposes else UNCHARGED)
        except Exception:
            log.exception("execution given up", extra={"shard": self.id, "nonce": at.nonce})
            ledger.rollback(checkpoint)
            if isinstance(work.at, bytes):
                work.faulty.add(work.at)
            elif isinstance(work.at, Grant):
                work.grants.remove(work.at)
            return None
        execution = (
            blocks.execution(content, self.id, work.arrivals)
            if at.proposes
            else blocks.earlier_execution(content, self.id)
        )
        execution.altered, execution.checkpoint = ledger.touched(checkpoint), checkpoint
        return execution

    def _append(self, block: Block) -> Block:
        self.discarded += self.mempool.passed
        self.mempool.passed.clear()
        self.blocks.append(block)
        return block

    def finalise(self, block: Block) -> None:
        """The block stays for ever: its undo information is given up, old blocks are forgotten."""
        block.final = True
        if block.execution is not None:
            self.state.ledger.discard(block.execution.checkpoint)
        while len(self.blocks) > KEPT_FINAL and self.blocks[0].handed_on and self.blocks[1].final:
            self.blocks.popleft().forget_body()

    def take_back(self, depth: int) -> list[Block]:
        """Revert the newest `depth` blocks, newest first. Raises `ValueError` if one of them is final.

        What they took from the queues waits again, and the ledger is as it was before the first of them that was
        executed. What they sent to other shards was never notarised, because no final header told it. Executions that
        their headers told of blocks before them stay, and the headers that follow tell them again.
        """
        if depth < 1 or depth > len(self.blocks) or self.blocks[-depth].final:
            raise ValueError("only blocks that are not final yet can be taken back; see control/finality")
        reverted = [self.blocks.pop() for _ in range(depth)]
        executed = [block.execution for block in reverted if block.execution is not None]
        if executed:
            self.state.ledger.rollback(executed[-1].checkpoint)
        self.forks += 1
        for block in reverted:
            self.waiting.extendleft(reversed(block.work.arrivals))
            self.grants.extendleft(reversed(block.work.grants))
            for tx_hash, tx in block.work.taken:
                self.mempool.put_back(tx_hash, tx, block.round)
        return reverted

    def outgoing(self, block: Block) -> list[MiniBlock]:
        """The miniblocks of an executed block that other shards execute."""
        minis = block.execution.miniblocks if block.execution is not None else []
        return [mini for mini in minis if mini.sender_shard == self.id != mini.receiver_shard]

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
