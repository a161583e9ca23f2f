"""Blocks as node events: what an observer of a shard tells its event consumer (mx-chain-core-go `data/outport`)."""

from __future__ import annotations

from collections.abc import Iterable

from millrace.chain import address, bigint, outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.shard import METACHAIN
from millrace.chain.token import NATIVE
from millrace.chain.transaction import Transaction, to_proto
from millrace.localnet.chain.block import Block, Execution
from millrace.localnet.chain.content import Content, Entry, FeeInfo, Log, Result
from millrace.localnet.chain.header import proof
from millrace.localnet.chain.validators import Validators
from millrace.localnet.contracts.calls import Event
from millrace.localnet.contracts.ledger import NONCE, Ledger

GENESIS_RATING = 50.0


def save_block(
    block: Block, ledger: Ledger, final: Block | None, leader_index: int, shards: int, max_gas: int
) -> bytes:
    """SaveBlock: the whole block, and what its header tells as executed. `final` is the shard's newest final block.

    Accounts are told as they are in the ledger now, which may be ahead of the executions told here.
    """
    message = pb.OutportBlock(
        shardID=block.shard,
        blockData=block_data(block),
        transactionPool=pb.TransactionPool(),
        notarizedHeadersHashes=[block_hash.hex() for block_hash in block.notarized],
        numberOfShards=shards,
        leaderIndex=leader_index,
        leaderKey=block.leader,
    )
    if block.proposes:
        message.blockData.proof.CopyFrom(proof(block))
        for executed in block.results:
            message.blockData.results[executed.hash.hex()].CopyFrom(_result(executed, ledger, max_gas))
    elif block.execution is not None:
        message.signersIndexes.extend((0, 1, 2))
        message.transactionPool.CopyFrom(_pool(block.content))
        message.headerGasConsumption.CopyFrom(_gas(block.content, max_gas))
        for text, account in _altered(block.execution, ledger).items():
            message.alteredAccounts[text].CopyFrom(account)
    if final is not None:
        message.highestFinalBlockNonce, message.highestFinalBlockHash = final.nonce, final.hash
    return outport.serialize(message)


def revert(block: Block) -> bytes:
    """RevertIndexedBlock: the bare block data; what its header told as executed is in the header alone."""
    return outport.serialize(block_data(block))


def finalized(block: Block) -> bytes:
    """FinalizedBlock: shard and hash."""
    return pb.FinalizedBlock(shardID=block.shard, headerHash=block.hash).SerializeToString()


def rounds(block: Block, skipped: Iterable[int]) -> bytes:
    """SaveRoundsInfo: the block's round, and each round before it in which this shard made no block."""
    own = _round(block, block.round, proposed=True)
    return pb.RoundsInfo(
        shardID=block.shard, roundsInfo=[own, *(_round(block, number, proposed=False) for number in skipped)]
    ).SerializeToString()


def validators_keys(shard: int, validators: Validators, epoch: int) -> bytes:
    """SaveValidatorsPubKeys: the eligible validators of all shards."""
    message = pb.ValidatorsPubKeys(shardID=shard, epoch=epoch)
    for number, keys in validators.by_shard.items():
        message.validatorsPubKeys[number].keys.extend(keys)
    return outport.serialize(message)


def validators_rating(shard: int, validators: Validators, epoch: int) -> bytes:
    """SaveValidatorsRating: one message per shard."""
    ratings = [pb.ValidatorRatingInfo(publicKey=key.hex(), rating=GENESIS_RATING) for key in validators.by_shard[shard]]
    return pb.ValidatorsRating(shardID=shard, epoch=epoch, validatorsRatingInfo=ratings).SerializeToString()


def genesis_accounts(shard: int, ledger: Ledger, timestamp_ms: int) -> bytes:
    """SaveAccounts: every user account that holds something when the chain begins."""
    users = {
        pubkey: {NATIVE, *account.tokens}
        for pubkey, account in ledger.accounts.items()
        if not address.is_contract(pubkey)
    }
    return outport.serialize(
        pb.Accounts(
            shardID=shard,
            blockTimestamp=timestamp_ms // 1000,
            blockTimestampMs=timestamp_ms,
            alteredAccounts=altered_accounts(users, ledger, frozenset()),
        )
    )


def altered_accounts(
    changed: dict[bytes, set[str]], ledger: Ledger, left_out: Iterable[bytes]
) -> dict[str, pb.AlteredAccount]:
    """Accounts as they are now, each with the tokens that changed; relayers that only paid fees are left out."""
    hidden = set(left_out)
    result = {}
    for pubkey, tokens in changed.items():
        if pubkey in hidden and tokens == {NATIVE}:
            continue
        account = ledger.account(pubkey)
        text = address.encode(pubkey)
        result[text] = pb.AlteredAccount(
            address=text,
            nonce=account.nonce,
            balance=str(account.balance),
            tokens=[
                pb.AccountTokenData(
                    identifier=token.encode(), balance=str(account.tokens.get(token, 0)), type="FungibleESDT"
                )
                for token in sorted(tokens - {NATIVE, NONCE})
            ],
            additionalAccountData=pb.AdditionalAccountData(isSender=NONCE in tokens, balanceChanged=NATIVE in tokens),
        )
    return result


def block_data(block: Block) -> pb.BlockData:
    """The block itself: header bytes and body."""
    return pb.BlockData(
        shardID=block.shard,
        headerBytes=block.header,
        headerType=block.header_type,
        headerHash=block.hash,
        body=pb.Body(miniBlocks=[mini.message() for mini in block.miniblocks]),
        intraShardMiniBlocks=_intra(block) if not block.proposes else [],
        timestampMs=block.timestamp_ms,
    )


def _result(block: Block, ledger: Ledger, max_gas: int) -> pb.ExecutionResultData:
    """An earlier block's execution, by its own number and time."""
    result = pb.ExecutionResultData(
        headerNonce=block.nonce,
        timestampMs=block.timestamp_ms,
        body=pb.Body(),
        intraShardMiniBlocks=_intra(block),
        transactionPool=_pool(block.content),
        headerGasConsumption=_gas(block.content, max_gas),
    )
    if block.execution is not None:
        result.body.miniBlocks.extend(mini.message() for mini in block.execution.miniblocks)
        for text, account in _altered(block.execution, ledger).items():
            result.alteredAccounts[text].CopyFrom(account)
    for tx_hash, tx in block.content.dropped:
        result.transactionPool.unexecutableTransactions[tx_hash.hex()].CopyFrom(transaction_message(tx))
    return result


def _intra(block: Block) -> list[pb.MiniBlock]:
    return [mini.message() for mini in block.execution.intra_miniblocks] if block.execution is not None else []


def _gas(content: Content, max_gas: int) -> pb.HeaderGasConsumption:
    return pb.HeaderGasConsumption(
        gasProvided=content.gas_provided,
        gasRefunded=content.gas_refunded,
        gasPenalized=content.gas_penalized,
        maxGasPerBlock=max_gas,
    )


def _altered(execution: Execution, ledger: Ledger) -> dict[str, pb.AlteredAccount]:
    return altered_accounts(execution.altered, ledger, execution.content.unannounced)


def _pool(content: Content) -> pb.TransactionPool:
    pool = pb.TransactionPool(logs=[_log(log) for log in content.logs.values()])
    for entry in content.entries.values():
        key = entry.hash.hex()
        if isinstance(entry.item, Result):
            scr = pool.smartContractResults[key]
            scr.smartContractResult.CopyFrom(entry.item.message())
            scr.feeInfo.CopyFrom(_fee(entry.fee))
            scr.executionOrder = entry.order
        else:
            info = (pool.invalidTxs if entry.invalid else pool.transactions)[key]
            info.transaction.CopyFrom(transaction_message(entry.item))
            info.feeInfo.CopyFrom(_fee(entry.fee))
            info.executionOrder = entry.order
            if entry.invalid and entry.hash not in content.logs:
                pool.receipts[key].CopyFrom(_receipt(entry, entry.item))
    return pool


def transaction_message(tx: Transaction) -> pb.Transaction:
    """A transaction's protobuf message."""
    return pb.Transaction.FromString(to_proto(tx))


def _receipt(entry: Entry, tx: Transaction) -> pb.Receipt:
    return pb.Receipt(
        value=bigint.encode(entry.fee.fee), sender=tx.sender, data=entry.invalid.encode(), txHash=entry.hash
    )


def _fee(fee: FeeInfo) -> pb.FeeInfo:
    return pb.FeeInfo(
        gasUsed=fee.gas_used,
        fee=bigint.encode(max(fee.fee, 0)),
        initialPaidFee=bigint.encode(fee.initially_paid),
        gasRefunded=fee.gas_refunded,
        hadRefund=fee.gas_refunded > 0,
    )


def _log(log: Log) -> pb.LogData:
    return pb.LogData(
        txHash=log.hash.hex(), log=pb.Log(address=log.address, events=[_event(event) for event in log.events])
    )


def _event(event: Event) -> pb.Event:
    return pb.Event(
        address=event.address,
        identifier=event.identifier.encode(),
        topics=event.topics,
        data=event.data,
        additionalData=[event.data],
    )


def _round(block: Block, number: int, *, proposed: bool) -> pb.RoundInfo:
    return pb.RoundInfo(
        round=number,
        signersIndexes=[0, 1, 2],
        blockWasProposed=proposed,
        shardId=block.shard,
        epoch=block.epoch,
        timestamp=block.timestamp_ms // 1000,
        timestampMs=block.timestamp_ms,
    )


def shard_label(shard: int) -> str:
    """A shard for people: its number or `meta`."""
    return "meta" if shard == METACHAIN else str(shard)
