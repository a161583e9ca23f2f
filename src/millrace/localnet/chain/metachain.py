"""The metachain: names what the shards' final headers tell, and has no transactions of its own."""

from __future__ import annotations

from collections import Counter, deque

from millrace.localnet.chain.block import NOTHING_TOLD, Block, Execution, Work
from millrace.localnet.chain.content import Content
from millrace.localnet.chain.header import Place, meta_header, proposing_meta_header, seal
from millrace.localnet.chain.shard import MAX_RESULTS

KEPT = 64  # more than the largest `execution_delay` and the results of one header together


class Metachain:
    """The newest blocks of the metachain, all of them final, and the shards' final blocks that it has not named."""

    def __init__(self, execution_delay: int) -> None:
        self.blocks: deque[Block] = deque()
        self.waiting: deque[Block] = deque()
        self._delay = execution_delay

    @property
    def head(self) -> Block | None:
        """The newest block."""
        return self.blocks[-1] if self.blocks else None

    def unnamed(self) -> Counter[int]:
        """How many final blocks of each shard wait to be named."""
        return Counter(block.shard for block in self.waiting)

    def make_block(self, place: Place, shard_heads: list[Block], *, closes_epoch: bool) -> tuple[Block, list[Block]]:
        """Append a block; with it the shards' blocks that it names.

        In the present format it names nothing of its own round. `shard_heads` are the shards' newest final blocks,
        which the first block of an epoch lists; `closes_epoch` says that the next round begins one.
        """
        named = [block for block in self.waiting if not place.proposes or block.round < place.round]
        self.waiting = deque(block for block in self.waiting if place.proposes and block.round >= place.round)
        block = self._propose(place, named, shard_heads, closes_epoch) if place.proposes else self._make(place, named)
        block.execution, block.final = Execution(Content(), [], []), True
        block.notarized = tuple(source.hash for source in named)
        self.blocks.append(block)
        while len(self.blocks) > KEPT:
            self.blocks.popleft().forget_body()
        return block, named

    def _make(self, place: Place, named: list[Block]) -> Block:
        block = seal(place, meta_header(place, named), [], Work())
        block.last_result = block.result(place.round)
        return block

    def _propose(self, place: Place, named: list[Block], shard_heads: list[Block], closes_epoch: bool) -> Block:
        head = self.head
        last = head.last_result if head is not None else NOTHING_TOLD
        until = place.nonce - self._delay
        results = [block for block in self.blocks if last.nonce < block.nonce <= until][:MAX_RESULTS]
        if results:
            last = results[-1].result(place.round)
        began = shard_heads if head is not None and head.epoch != place.epoch else []
        header = proposing_meta_header(place, named, results, last, closes_epoch=closes_epoch, began=began)
        block = seal(place, header, [], Work())
        block.last_result, block.results = last, results
        return block
