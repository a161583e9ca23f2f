"""How far shards execute behind what they propose, and when that is worth waking somebody.

A header says up to which height its shard is executed: normally the one before it. Beyond `most` blocks it is told in
the log, in `/health` and by a metric, until it is half of that again. Sponsoring goes on meanwhile: what is at risk is
bounded by budgets, and the network catches up 20 blocks with each. It ends where the execution is as far behind as a
shard may be silent, since what became of a transaction could not be told.
"""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)


class ExecutionLag:
    """Of each shard that executes later: by how many blocks, at its newest header."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.blocks: dict[int, int] = {}
        self._newest: dict[int, int] = {}
        """By shard, when its newest header's round began, in milliseconds."""
        self.late: set[int] = set()
        """Shards that are too far behind."""

    def header(self, shard: int, nonce: int, executed: int, *, at_ms: int, is_live: bool) -> None:
        """A header and the newest height that is executed. Of one that is read again (not `is_live`) nobody is told.

        A node that catches up tells old headers among new ones: they say nothing. By time, as heights are taken back.
        """
        if at_ms < self._newest.get(shard, 0):
            return
        self._newest[shard] = at_ms
        behind = self.blocks[shard] = max(0, nonce - executed)
        if not is_live:
            return
        if shard not in self.late and behind > self._most:
            self.late.add(shard)
            log.error("a shard executes far behind what it proposes", extra={"shard": shard, "blocks": behind})
        elif shard in self.late and 2 * behind <= self._most:
            self.late.discard(shard)
            log.info("a shard has caught up with what it proposes", extra={"shard": shard, "blocks": behind})

    def problem(self) -> str:
        """What is wrong, in words; empty while nothing is."""
        late = ", ".join(f"shard {shard} by {self.blocks[shard]} blocks" for shard in sorted(self.late))
        return f"behind what is proposed: {late}" if late else ""
