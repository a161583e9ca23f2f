"""The whole chain as one deterministic object: rounds in, node events out. No clock, no socket.

In a round every running shard makes a block; blocks old enough become final; the metachain then names the executions
that final headers told, and the miniblocks they send reach their destinations with the next round. A shard executes
only what the metachain named: taking back what is not final never touches another shard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

import msgspec

from millrace.chain import address, outport
from millrace.chain.shard import METACHAIN
from millrace.chain.token import NATIVE
from millrace.chain.transaction import Transaction, chain_hash
from millrace.dex.document import Block as DocumentBlock
from millrace.dex.document import PoolDocument
from millrace.localnet.chain import admission, announce
from millrace.localnet.chain.block import GENESIS, Arrival, Block, Grant
from millrace.localnet.chain.content import Result
from millrace.localnet.chain.header import Place
from millrace.localnet.chain.index import TransactionIndex
from millrace.localnet.chain.mempool import Mempool
from millrace.localnet.chain.metachain import Metachain
from millrace.localnet.chain.shard import Shard
from millrace.localnet.chain.validators import Validators
from millrace.localnet.contracts.frame import State
from millrace.localnet.contracts.ledger import Account, Ledger
from millrace.localnet.market import market as markets
from millrace.localnet.market.faucet import FaucetError, grant
from millrace.localnet.market.traders import Traders
from millrace.localnet.settings import LocalnetSettings

EGLD = 10**18
SWEEP_ROUNDS = 20
MAX_UNNAMED = 32
"""Final blocks of a shard that wait for the metachain; beyond it the shard waits too. Fewer than shards keep."""


class NodeEvent(msgspec.Struct, frozen=True):
    """What the observers of a shard send to their consumer."""

    shard: int
    topic: str
    payload: bytes


class Chain:
    """Three shards and a metachain. Everything it does follows from its settings and from what is submitted."""

    def __init__(self, settings: LocalnetSettings, genesis_ms: int) -> None:
        self.settings = settings
        self.network = settings.network()
        self.genesis_ms = genesis_ms
        self.round = 0
        self.finality_rounds = settings.finality_rounds
        self.index = TransactionIndex(settings.max_known_transactions)
        self.validators = Validators(settings.seed, self.network.shards, settings.validators_per_shard)
        self.market = markets.generate(
            settings.seed,
            self.network,
            pools=settings.pools,
            tokens=settings.tokens,
            mispricing_ppm=settings.mispricing_ppm,
            rate_pools=settings.rate_pools,
        )
        self.home = self.network.shard_of(self.market.addresses.aggregator)
        self.shards = {shard: self._make_shard(shard) for shard in range(self.network.shards)}
        self._metachain = Metachain(settings.execution_delay)
        self.traders = Traders(self.market, self.network, rate=int(settings.traders_per_second * 1000))
        self.traders.fund(self.shards[self.home].state)
        self._last_round = dict.fromkeys([*self.shards, METACHAIN], 0)
        self._grants = 0
        self._undelivered: dict[bytes, Callable[[bool], None]] = {}
        self._fund_relayers()

    # Reading

    def ledger_of(self, pubkey: bytes) -> Ledger:
        """The ledger of the shard an address lives in."""
        return self.shards[self.shard_of(pubkey)].state.ledger

    def shard_of(self, pubkey: bytes) -> int:
        """The shard of an address; system contracts, which this chain does not run, count to shard 0."""
        shard = self.network.shard_of(pubkey)
        return 0 if shard == METACHAIN else shard

    def account(self, pubkey: bytes) -> Account:
        """An account as of the last execution."""
        return self.ledger_of(pubkey).account(pubkey)

    def virtual_nonce(self, pubkey: bytes) -> int:
        """The nonce that comes next once all that is proposed has been executed."""
        return self.shards[self.shard_of(pubkey)].selection().nonce(pubkey)

    def head(self, shard: int) -> Block | None:
        """The newest block of a shard, or of the metachain."""
        return self._metachain.head if shard == METACHAIN else self.shards[shard].head

    def block_nonce(self, shard: int) -> int:
        """The number of the newest block of a shard, or of the metachain; 0 before the first."""
        head = self.head(shard)
        return head.nonce if head is not None else 0

    def executed_nonce(self, shard: int) -> int:
        """The number of the newest executed block; the metachain, which has nothing to execute, is never behind."""
        if shard == METACHAIN:
            return self.block_nonce(METACHAIN)
        executed = self.shards[shard].last_executed
        return executed.nonce if executed is not None else 0

    def blocks_of(self, shard: int) -> Sequence[Block]:
        """The blocks of a shard, or of the metachain, that are kept whole, oldest first."""
        return self._metachain.blocks if shard == METACHAIN else self.shards[shard].blocks

    def newest_final(self, shard: int) -> Block | None:
        """The newest final block of a shard, or of the metachain, whose blocks all are."""
        if shard == METACHAIN:
            return self._metachain.head
        return next((block for block in reversed(self.shards[shard].blocks) if block.final), None)

    def pool_document(self) -> PoolDocument:
        """The market as of the last executed block of the contracts' shard."""
        shard = self.shards[self.home]
        head = shard.last_executed
        block = (
            DocumentBlock(head.round, head.nonce, head.timestamp_ms // 1000)
            if head is not None
            else DocumentBlock(0, 0, self.genesis_ms // 1000)
        )
        return markets.document(self.market, shard.state, block)

    # Writing

    def submit(self, tx: Transaction) -> bytes:
        """Take a transaction into the mempool of its sender's shard; its hash. Raises `admission.Refused`."""
        shard = self.shards[self.shard_of(tx.sender)]
        tx_hash = chain_hash(tx)
        if shard.mempool.contains(tx.sender, tx.nonce, tx_hash) or shard.is_proposed(tx_hash):
            return tx_hash
        admission.check(tx, self.network, shard.state.ledger)
        replaced = shard.mempool.add(tx_hash, tx, self.round)
        if replaced is not None:
            self.index.forget(replaced)
        self.index.add(tx_hash, tx, self._timestamp_ms(self.round))
        return tx_hash

    def give(
        self, receiver: bytes, token: str, amount: int, on_delivery: Callable[[bool], None] | None = None
    ) -> bytes:
        """Have the faucet give something; the hash that names it in events. Raises `FaucetError`.

        It is made in the next block of the contracts' shard, and travels from there as a result. Contracts take no
        payments, and get nothing. `on_delivery` is called once, after the block in which it comes to its receiver,
        unless `unwatch` comes first: with whether the receiver has it.
        """
        if address.is_contract(receiver):
            raise FaucetError("the faucet gives to accounts, not to contracts")
        home = self.shards[self.home]
        if len(home.grants) >= self.settings.max_grants:
            raise FaucetError("too many grants are waiting; ask again in a moment")
        checkpoint = home.state.ledger.checkpoint()
        try:  # a rehearsal, for what can be said at once
            grant(self.market, home.state, home.state.ledger, self.market.addresses.provider, token, amount)
        finally:
            home.state.ledger.rollback(checkpoint)
        self._grants += 1
        grant_hash = blake2b(f"faucet/{self._grants}".encode(), digest_size=32).digest()
        home.grants.append(Grant(grant_hash, receiver, token, amount))
        if on_delivery is not None:
            self._undelivered[grant_hash] = on_delivery
        return grant_hash

    def unwatch(self, grant_hash: bytes) -> None:
        """Whoever waited for a grant does so no more."""
        self._undelivered.pop(grant_hash, None)

    def pause_traders(self) -> int:
        """Stop the background traders and forget what they have waiting; the block from which nothing moves.

        What is proposed already is still executed.
        """
        self.traders.enabled = False
        self._forget_traders()
        return self.shards[self.home].next_nonce - 1

    def genesis(self) -> list[NodeEvent]:
        """What every observer sends before the first block."""
        events = []
        for shard in [*self.shards, METACHAIN]:
            keys = announce.validators_keys(shard, self.validators, 0)
            events.append(NodeEvent(shard, outport.SAVE_VALIDATORS_PUB_KEYS, keys))
        for shard in self.validators.by_shard:
            rating = announce.validators_rating(shard, self.validators, 0)
            events.append(NodeEvent(METACHAIN, outport.SAVE_VALIDATORS_RATING, rating))
        for number, own in self.shards.items():
            accounts = announce.genesis_accounts(number, own.state.ledger, self.genesis_ms)
            events.append(NodeEvent(number, outport.SAVE_ACCOUNTS, accounts))
        return events

    def advance_round(self, held: frozenset[int] = frozenset()) -> list[NodeEvent]:
        """One round. `held` names shards that cannot make a block now, beside those that were stopped."""
        self.round += 1
        self._drop_stale()
        self._let_traders_act()
        events: list[NodeEvent] = []
        unnamed = self._metachain.unnamed()
        for number, shard in self.shards.items():
            made = None
            if not shard.stopped and number not in held and unnamed[number] < MAX_UNNAMED:
                made = shard.make_block(self._place(number, shard.next_nonce, shard.head, shard.forks))
                for tx_hash in shard.discarded:
                    self.index.forget(tx_hash)
                shard.discarded.clear()
            if made is not None:
                self.index.take(made)
                self._note_deliveries(made)
            events += self._announce(made, self._finalise(shard), shard.state.ledger)
        if METACHAIN not in held:
            events += self._advance_metachain()
        return events

    def take_back(self, shard: int, depth: int) -> list[NodeEvent]:
        """Revert the newest blocks of a shard, newest first. Raises `ValueError` for final ones."""
        events = []
        for block in self.shards[shard].take_back(depth):
            self.index.take_back(block)
            events.append(NodeEvent(shard, outport.REVERT_INDEXED_BLOCK, announce.revert(block)))
        if not self.traders.enabled:
            self._forget_traders()  # a market at rest stays at rest
        return events

    # Insides

    def _make_shard(self, shard: int) -> Shard:
        settings, ledger = self.settings, Ledger()

        def is_local(pubkey: bytes) -> bool:
            return self.shard_of(pubkey) == shard

        state = markets.install(self.market, ledger, is_local) if shard == self.home else State(ledger, {}, is_local)
        state.trie_depth, state.guardian_epochs = settings.trie_depth, settings.guardian_epochs
        mempool = Mempool(self.network.gas, settings.max_mempool, settings.max_mempool_per_sender)
        market = self.market if shard == self.home else None
        return Shard(shard, self.network, state, mempool, settings, market)

    def _fund_relayers(self) -> None:
        for text in self.settings.relayers:
            pubkey = address.decode(text)
            self.ledger_of(pubkey).credit(pubkey, NATIVE, self.settings.relayer_egld * EGLD)

    def _forget_traders(self) -> None:
        for tx_hash in self.shards[self.home].mempool.remove_senders(frozenset(self.traders.addresses)):
            self.index.forget(tx_hash)

    def _drop_stale(self) -> None:
        """Forget transactions that waited too long, most often for one before them that never came."""
        if self.round % SWEEP_ROUNDS:
            return
        for shard in self.shards.values():
            for tx_hash in shard.mempool.drop_older(self.round - self.settings.mempool_rounds):
                self.index.forget(tx_hash)

    def _note_deliveries(self, block: Block) -> None:
        """Tell whoever waits for a grant whether its receiver has it: a full ledger opens no account for it."""
        for executed in block.told if self._undelivered else ():
            content = executed.content
            for entry in content.entries.values():
                if isinstance(entry.item, Result) and self.shard_of(entry.item.receiver) == block.shard:
                    tell = self._undelivered.pop(entry.item.original, None)
                    if tell is not None:
                        tell(entry.item.receiver in content.credited)

    def _let_traders_act(self) -> None:
        shard = self.shards[self.home]
        for tx in self.traders.next(shard.state, self.traders.due(self.settings.round_ms)):
            try:
                self.submit(tx)
            except admission.Refused:
                # The traders look at the chain's nonce again before they go on.
                continue

    def _timestamp_ms(self, round_: int) -> int:
        return self.genesis_ms + round_ * self.settings.round_ms

    def _epoch(self, round_: int) -> int:
        return round_ // self.settings.rounds_per_epoch

    def _place(self, shard: int, nonce: int, head: Block | None, fork: int) -> Place:
        epoch, now = self._epoch(self.round), self._timestamp_ms(self.round)
        return Place(
            shard=shard,
            nonce=nonce,
            round=self.round,
            epoch=epoch,
            timestamp_ms=now,
            previous=head.hash if head is not None else GENESIS,
            fork=fork,
            chain_id=self.network.chain_id,
            leader=self.validators.leader(shard, self.round)[1],
            proposes=self.settings.proposes_in(self.round),
            stamp=now if epoch >= self.settings.supernova_epoch else now // 1000,
        )

    def _finalise(self, shard: Shard) -> list[Block]:
        """Make final what is old enough, oldest first."""
        ripe = [block for block in shard.blocks if not block.final and block.round + self.finality_rounds <= self.round]
        for block in ripe:
            shard.finalise(block)
            self._metachain.waiting.append(block)
        return ripe

    def _announce(self, made: Block | None, final: list[Block], ledger: Ledger) -> list[NodeEvent]:
        """The events of one shard's round, in the order in which a node sends them."""
        ends = [NodeEvent(block.shard, outport.FINALIZED_BLOCK, announce.finalized(block)) for block in final]
        if made is None:
            return ends
        newest = final[-1] if final else self.newest_final(made.shard)
        index, _ = self.validators.leader(made.shard, made.round)
        payload = announce.save_block(made, ledger, newest, index, self.network.shards, self.settings.max_block_gas)
        saved = [NodeEvent(made.shard, outport.SAVE_BLOCK, payload)]
        skipped = range(self._last_round[made.shard] + 1, made.round)[-100:]
        self._last_round[made.shard] = made.round
        rounds = [NodeEvent(made.shard, outport.SAVE_ROUNDS_INFO, announce.rounds(made, skipped))]
        return ends + saved + rounds if self.settings.finalized_first else saved + ends + rounds

    def _advance_metachain(self) -> list[NodeEvent]:
        """A metachain block that names what the shards' new final headers tell, and hands their miniblocks on."""
        head, epoch = self._metachain.head, self._epoch(self.round)
        began = epoch != (head.epoch if head is not None else 0)
        place = self._place(METACHAIN, head.nonce + 1 if head else 1, head, 0)
        shard_heads = [block for number in self.shards if (block := self.newest_final(number)) is not None]
        closes_epoch = self._epoch(self.round + 1) != epoch
        block, named = self._metachain.make_block(place, shard_heads, closes_epoch=closes_epoch)
        for source in named:
            for executed in source.told:
                self._hand_on(executed, block.hash)
        return self._announce(block, [block], Ledger()) + (self._tell_epoch(epoch) if began else [])

    def _tell_epoch(self, epoch: int) -> list[NodeEvent]:
        """What a metachain node tells when an epoch begins: who validates, and their ratings."""
        keys = announce.validators_keys(METACHAIN, self.validators, epoch)
        ratings = [announce.validators_rating(shard, self.validators, epoch) for shard in self.validators.by_shard]
        return [
            NodeEvent(METACHAIN, outport.SAVE_VALIDATORS_PUB_KEYS, keys),
            *(NodeEvent(METACHAIN, outport.SAVE_VALIDATORS_RATING, rating) for rating in ratings),
        ]

    def _hand_on(self, source: Block, meta_hash: bytes) -> None:
        for mini in self.shards[source.shard].outgoing(source):
            items = [source.content.entries[tx_hash].item for tx_hash in mini.tx_hashes]
            target = self.shards.get(mini.receiver_shard)
            if target is not None:
                target.waiting.append(Arrival(mini, items, meta_hash))
        source.handed_on = True
