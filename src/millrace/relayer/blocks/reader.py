"""Reads what a block, or the result of one, says about transactions and accounts (rules of the node's outport feed).

A block tells only what happened in its own shard, so each transaction gets a list of facts; `tracker` joins
the facts of all shards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from millrace.chain import address, outport
from millrace.chain.headers import Header, proposes, read_header
from millrace.chain.network import NetworkProfile
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.shard import METACHAIN
from millrace.relayer.blocks.facts import AccountFact, BlockFacts, BlockHeader, Unexecutable
from millrace.relayer.blocks.pool import TX_BLOCK, PoolReader, early_hashes_of, hashes_of

_AMOUNT = re.compile("[0-9]{1,80}")


def read_block(
    message: pb.OutportBlock, network: NetworkProfile, watched: frozenset[bytes] = frozenset()
) -> BlockFacts:
    """The facts in a saved block; one that is executed later says what it proposes, and whose results it brings.

    Raises `OutportError` when its miniblocks contradict themselves, it is of a shard that there is not, or of a type
    nobody knows: whether that was executed cannot be told. Of `watched` accounts it is told what they got.
    """
    data = message.blockData
    if data.headerType not in outport.HEADERS:
        raise outport.OutportError(f"a header of type {data.headerType[:64]!r}")
    shard = _shard_of(message, network)
    header = read_header(data)
    if not proposes(data.headerType):
        return _read_executed(message, shard, header, network, watched)
    if header is None:
        raise outport.OutportError("a header whose bytes are not those its hash is of")
    return BlockFacts(
        shard=shard,
        block_hash=data.headerHash,
        prev_hash=header.prev_hash,
        nonce=header.nonce,
        timestamp_ms=header.timestamp_ms,
        header=_summary(header),
        signers=int.from_bytes(data.proof.pubKeysBitmap).bit_count(),
        proposes=True,
        lists=tuple(item.block_hash for item in header.executions),
        sent=frozenset(
            tx_hash
            for miniblock in _proven(data.body.miniBlocks, header)
            if miniblock.type == TX_BLOCK and miniblock.senderShardID == shard
            for tx_hash in miniblock.txHashes
        ),
        last_executed=header.last_executed_nonce,
    )


def read_result(
    message: pb.OutportBlock, network: NetworkProfile, watched: frozenset[bytes] = frozenset()
) -> BlockFacts:
    """The facts in the result of a block that was proposed before, as the notifier tells it. Raises `OutportError`."""
    shard = _shard_of(message, network)
    header = read_header(message.blockData)
    if header is None or header.proposes:
        raise outport.OutportError("a result without the header of an execution")
    if message.carryingHeaderNonce <= header.nonce:
        raise outport.OutportError(f"a result of block {header.nonce} in header {message.carryingHeaderNonce}")
    facts = _read_executed(message, shard, header, network, watched)
    pool, body = message.transactionPool, message.blockData.body.miniBlocks
    told = {fact.tx_hash for fact in facts.transactions if fact.included or fact.executed}
    told.update(hashes_of(pool.transactions), hashes_of(pool.invalidTxs))
    return msgspec.structs.replace(
        facts,
        prev_hash=b"",
        carrier=message.carryingHeaderNonce,
        carrier_hash=message.carryingHeaderHash,
        settled=frozenset(told) if len(_proven(body, header)) == len(header.miniblocks) else None,
        unexecutable=tuple(
            _unexecutable(tx_hash, pool.unexecutableTransactions[tx_hash.hex()], facts.timestamp_ms)
            for tx_hash in sorted(hashes_of(pool.unexecutableTransactions))
            if tx_hash not in told
        ),
    )


def _unexecutable(tx_hash: bytes, tx: pb.Transaction, timestamp_ms: int) -> Unexecutable:
    client, sdk = early_hashes_of(tx)
    return Unexecutable(tx_hash, client, timestamp_ms, sdk)


def _shard_of(message: pb.OutportBlock, network: NetworkProfile) -> int:
    data = message.blockData
    shard = data.shardID if data.shardID or not message.shardID else message.shardID
    if shard >= network.shards and shard != METACHAIN:
        raise outport.OutportError(f"a block of shard {shard}")
    return shard


def _proven(miniblocks: Iterable[pb.MiniBlock], header: Header) -> list[pb.MiniBlock]:
    """Those of a body that the header names: what no hash stands for could leave out or make up transactions."""
    named = {item.hash for item in header.miniblocks}
    return [item for item in miniblocks if blake2b(outport.canonical(item), digest_size=32).digest() in named]


def _read_executed(
    message: pb.OutportBlock, shard: int, header: Header | None, network: NetworkProfile, watched: frozenset[bytes]
) -> BlockFacts:
    """The facts in a block that says what it executed."""
    data = message.blockData
    reader = PoolReader(message, header.miniblocks if header else (), network, watched)
    reader.read()
    accounts = read_accounts(message.alteredAccounts.values())
    return BlockFacts(
        shard=shard,
        block_hash=data.headerHash,
        prev_hash=header.prev_hash if header else b"",
        nonce=header.nonce if header else 0,
        timestamp_ms=header.timestamp_ms if header else data.timestampMs,
        transactions=reader.facts(),
        accounts=accounts,
        header=_summary(header) if header else None,
        gas_prices=tuple(reader.gas_prices),
        executed=reader.executed,
        signers=len(message.signersIndexes),
        guarding=frozenset(reader.guarding),
        credits=reader.credits(),
        absent=frozenset(reader.relayers - {fact.pubkey for fact in accounts}),
    )


def time_of(data: pb.BlockData) -> int:
    """When a block was made, in ms."""
    header = read_header(data)
    return header.timestamp_ms if header else data.timestampMs


def read_accounts(altered: Iterable[pb.AlteredAccount]) -> tuple[AccountFact, ...]:
    """The accounts a block changed; an entry with an impossible address or balance is left out, a token's alone."""
    facts = []
    for account in altered:
        digits = account.balance or "0"
        try:
            pubkey = address.decode(account.address)
        except address.AddressError:
            continue
        if not _AMOUNT.fullmatch(digits):
            continue
        tokens = {_token_name(token): token.balance or "0" for token in account.tokens}
        possible = {name: held for name, held in tokens.items() if _AMOUNT.fullmatch(held)}
        facts.append(AccountFact(pubkey, account.nonce, int(digits), possible))
    return tuple(facts)


def _token_name(token: pb.AccountTokenData) -> str:
    """Fungible tokens go by their identifier, others with their nonce in hex behind it."""
    if not token.nonce:
        return token.identifier
    digits = f"{token.nonce:x}"
    return f"{token.identifier}-{'0' * (len(digits) % 2)}{digits}"


def _summary(header: Header) -> BlockHeader:
    """The statistics of a header."""
    return BlockHeader(
        nonce=header.nonce,
        round=header.round,
        epoch=header.epoch,
        tx_count=header.tx_count,
        leader_signature=header.leader_signature.hex(),
        accumulated_fees=str(header.accumulated_fees),
        developer_fees=str(header.developer_fees),
    )
