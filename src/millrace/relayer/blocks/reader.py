"""Reads what a block, or the result of one, says about transactions and accounts (rules of the node's outport feed).

A block tells only what happened in its own shard, so each transaction gets a list of facts; `tracker` joins
the facts of all shards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec

from millrace.chain import address, outport
from millrace.chain.headers import Header, proposes, read_header
from millrace.chain.network import NetworkProfile
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.shard import METACHAIN
from millrace.relayer.blocks.facts import AccountFact, BlockFacts, BlockHeader, Unexecutable
from millrace.relayer.blocks.pool import TX_BLOCK, Miniblock, PoolReader, early_hashes_of, hashes_of

_AMOUNT = re.compile("[0-9]{1,80}")
_NO_TEXT = re.compile("[\udc80-\udcff]")  # how Python keeps a byte that is no UTF-8


def read_block(
    message: pb.OutportBlock, network: NetworkProfile, watched: frozenset[bytes] = frozenset()
) -> BlockFacts:
    """The facts in a saved block; one that is executed later says what it proposes, and whose results it brings.

    Raises `OutportError` when its miniblocks contradict themselves, it is of two shards or of one that there is not, or
    of a type nobody knows: whether that was executed cannot be told. Of `watched` accounts it is told what they got.
    """
    data = message.blockData
    if data.headerType not in outport.HEADERS:
        raise outport.OutportError(f"a header of type {data.headerType[:64]!r}")
    header = read_header(data)
    shard = _shard_of(message, header, network)
    if not proposes(data.headerType):
        return _read_executed(message, header, _executed_of(data.body.miniBlocks, header), network, watched)
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
        lists=tuple(item.block_hash for item in header.possible_executions),
        sent=frozenset(
            tx_hash
            for miniblock, _ in _named(data.body.miniBlocks, header)
            if miniblock.type == TX_BLOCK and miniblock.senderShardID == shard
            for tx_hash in miniblock.txHashes
        ),
        last_executed=header.last_executed_nonce,
    )


def read_result(
    message: pb.OutportBlock, network: NetworkProfile, watched: frozenset[bytes] = frozenset()
) -> BlockFacts:
    """The facts in the result of a block that was proposed before, as the notifier tells it. Raises `OutportError`."""
    header = read_header(message.blockData)
    _shard_of(message, header, network)
    if header is None or header.proposes:
        raise outport.OutportError("a result without the header of an execution")
    if message.carryingHeaderNonce <= header.nonce:
        raise outport.OutportError(f"a result of block {header.nonce} in header {message.carryingHeaderNonce}")
    named = _named(message.blockData.body.miniBlocks, header)
    facts = _read_executed(message, header, named, network, watched)
    pool = message.transactionPool
    told = {fact.tx_hash for fact in facts.transactions if fact.included or fact.executed}
    told.update(hashes_of(pool.transactions), hashes_of(pool.invalidTxs))
    return msgspec.structs.replace(
        facts,
        prev_hash=b"",
        carrier=message.carryingHeaderNonce,
        carrier_hash=message.carryingHeaderHash,
        settled=frozenset(told) if len(named) == len({item.hash for item in header.miniblocks}) else None,
        unexecutable=tuple(
            _unexecutable(tx_hash, pool.unexecutableTransactions[tx_hash.hex()], facts.timestamp_ms)
            for tx_hash in sorted(hashes_of(pool.unexecutableTransactions))
            if tx_hash not in told
        ),
    )


def _unexecutable(tx_hash: bytes, tx: pb.Transaction, timestamp_ms: int) -> Unexecutable:
    client, sdk = early_hashes_of(tx)
    return Unexecutable(tx_hash, client, timestamp_ms, sdk)


def _shard_of(message: pb.OutportBlock, header: Header | None, network: NetworkProfile) -> int:
    """The shard of a block, which is the same in all that names it. Raises `OutportError`."""
    shard, of_data = message.shardID, message.blockData.shardID
    of_header = shard if header is None else header.shard
    if not shard == of_data == of_header:
        raise outport.OutportError(f"a block of shard {shard}, its data of shard {of_data}, its header of {of_header}")
    if shard >= network.shards and shard != METACHAIN:
        raise outport.OutportError(f"a block of shard {shard}")
    return shard


def _named(miniblocks: Iterable[pb.MiniBlock], header: Header) -> list[Miniblock]:
    """Those of a body that the header names, each once: what no hash stands for could be made up."""
    body = {blake2b(outport.canonical(item), digest_size=32).digest(): item for item in miniblocks}
    named = {item.hash: item for item in header.miniblocks}
    return [(item, named[name]) for name, item in body.items() if name in named]


def _executed_of(miniblocks: Sequence[pb.MiniBlock], header: Header | None) -> list[Miniblock]:
    """The miniblocks of a block of the earlier formats: nodes keep those of body and header in one order."""
    if header is None or not header.miniblocks:
        return [(item, None) for item in miniblocks]
    if len(miniblocks) == len(header.miniblocks):
        return list(zip(miniblocks, header.miniblocks, strict=True))
    return _named(miniblocks, header)


def _read_executed(
    message: pb.OutportBlock,
    header: Header | None,
    miniblocks: Sequence[Miniblock],
    network: NetworkProfile,
    watched: frozenset[bytes],
) -> BlockFacts:
    """The facts in a block that says what it executed."""
    data = message.blockData
    reader = PoolReader(message, miniblocks, network, watched)
    reader.read()
    accounts = read_accounts(message.alteredAccounts.values())
    return BlockFacts(
        shard=message.shardID,
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
    identifier = _go_text(token.identifier)
    if not token.nonce:
        return identifier
    digits = f"{token.nonce:x}"
    return f"{identifier}-{'0' * (len(digits) % 2)}{digits}"


def _go_text(raw: bytes) -> str:
    """As a node writes it in JSON: U+FFFD for each byte that is no UTF-8, where Python has one for several."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return _NO_TEXT.sub("\ufffd", raw.decode("utf-8", "surrogateescape"))


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
