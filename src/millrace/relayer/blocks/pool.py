"""Reads what a block's pool says of each transaction: of whole blocks, and of the results of those executed later."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from millrace.chain import address, bigint, outport
from millrace.chain.address import is_contract
from millrace.chain.network import NetworkProfile
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.shard import ALL_SHARDS
from millrace.chain.transaction import Transaction, early_hashes
from millrace.relayer.blocks.facts import TxFact

TX_BLOCK, SCR_BLOCK, INVALID_BLOCK = 0, 90, 120
_SCHEDULED, _PROCESSED = 1, 2
GUARDING = frozenset((b"SetGuardian", b"GuardAccount", b"UnGuardAccount"))
"""Built-in functions that change who has to sign for an account; the chain writes an event of the same name."""
GAS_REFUND = b"gas refund for relayer"
MAX_REASON = 256
_HEX = b"0123456789abcdefABCDEF"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


Miniblock = tuple[pb.MiniBlock, pb.MiniBlockHeader | None]
"""One of a block's body, and what the block's header says of it; `None` where that is nothing."""


class _Hops(NamedTuple):
    """The results of one transaction that this shard executed: a log of theirs has its hash once the hub tells it."""

    names: set[bytes]
    """Their hashes, and of what they came from: `completedTxEvent` names one of them, the latter if nodes write it."""
    accounts: set[bytes]
    """Their receivers, in whose names the chain writes the logs."""


_NO_HOPS = _Hops(set(), set())


class PoolReader:
    """Collects the facts of one block, transaction by transaction."""

    def __init__(
        self,
        message: pb.OutportBlock,
        body: Sequence[Miniblock],
        network: NetworkProfile,
        watched: frozenset[bytes] = frozenset(),
    ) -> None:
        self._data = message.blockData
        self._shard = message.blockData.shardID
        self._pool = message.transactionPool
        self._network = network
        self._watched = watched
        self._got: list[tuple[bytes, bytes, int]] = []
        """Hash, receiver and value of what watched accounts got."""
        self._body = body
        self._facts: dict[bytes, dict[str, object]] = {}
        self._scrs: dict[str, pb.SmartContractResult] = {}
        self._came: set[bytes] = set()
        """Results that this block executes."""
        self._hops: dict[bytes, _Hops] = {}
        """By the transaction that it all began with."""
        self._before: set[bytes] = set()
        """What this block names as processed before: of what its predecessor scheduled, the results are told here."""
        self._scheduled: set[bytes] = set()
        """What it schedules: whether that is refused is told by the next one."""
        self.gas_prices: list[tuple[int, int]] = []
        self.executed = 0
        self.guarding: set[bytes] = set()
        self.relayers: set[bytes] = set()

    def read(self) -> None:
        invalid: list[bytes] = []
        for miniblock, executed in self._executed_miniblocks():
            if miniblock.type == TX_BLOCK:
                self._read_transactions(miniblock, executed)
            elif miniblock.type == INVALID_BLOCK:
                invalid += executed
            elif miniblock.type == SCR_BLOCK and self._is_for_us(miniblock):
                self._read_results_in(executed, from_elsewhere=miniblock.senderShardID != self._shard)
        invalid += sorted(hashes_of(self._pool.invalidTxs))  # also where their miniblock is left out
        invalid += hashes_of(self._pool.scheduledExecutedInvalidTxsHashesPrevBlock)
        self._read_invalid(dict.fromkeys(invalid))
        self._read_results()
        self._read_logs()
        self.executed = sum(1 for fact in self._facts.values() if fact.get("included") and not fact.get("failed"))

    def facts(self) -> tuple[TxFact, ...]:
        return tuple(TxFact(tx_hash=tx_hash, **fact) for tx_hash, fact in self._facts.items())  # type: ignore[arg-type]

    def credits(self) -> tuple[tuple[bytes, int], ...]:
        """What watched accounts got. A transfer that failed brought nothing."""
        return tuple(
            (receiver, value) for name, receiver, value in self._got if not self._facts.get(name, {}).get("failed")
        )

    def _executed_miniblocks(self) -> Iterable[tuple[pb.MiniBlock, list[bytes]]]:
        """Each miniblock with the hashes this block executed of it; those executed before are skipped."""
        for miniblock, header in self._body:
            hashes = list(miniblock.txHashes)
            if header is not None:
                reserved = outport.decode_reserved(header)
                if reserved.executionType == _PROCESSED:
                    self._before.update(hashes)
                    if miniblock.type == TX_BLOCK:
                        for tx_hash in hashes:
                            self._fact(tx_hash)["is_confirmed"] = True
                    continue
                if reserved.executionType == _SCHEDULED:
                    self._scheduled.update(hashes)
                if header.reserved:
                    hashes = hashes[reserved.indexOfFirstTxProcessed : reserved.indexOfLastTxProcessed + 1]
            yield miniblock, hashes
        for miniblock in self._data.intraShardMiniBlocks:
            yield miniblock, list(miniblock.txHashes)

    def _is_for_us(self, miniblock: pb.MiniBlock) -> bool:
        """All shards get what the metachain says of a token as a whole: that it is paused, for one."""
        sender, receiver = miniblock.senderShardID, miniblock.receiverShardID
        return receiver == self._shard or (receiver == ALL_SHARDS and sender != self._shard)

    def _fact(self, tx_hash: bytes) -> dict[str, object]:
        return self._facts.setdefault(tx_hash, {})

    def _read_transactions(self, miniblock: pb.MiniBlock, hashes: list[bytes]) -> None:
        for tx_hash in hashes:
            info = self._pool.transactions.get(tx_hash.hex())
            fact = self._fact(tx_hash)
            if miniblock.senderShardID == self._shard:
                fact["included"] = True
            if info is None:  # named and not shown: whether it calls a contract is not known, so it is not over
                continue
            if miniblock.receiverShardID == self._shard:
                fact["executed"] = True
                tx = info.transaction
                if tx.receiver in self._watched and tx.sender != tx.receiver and (value := _number(tx.value) or 0) > 0:
                    self._got.append((tx_hash, tx.receiver, value))
            if is_contract(info.transaction.receiver):
                fact["is_call"] = names_function(info.transaction.data)
                fact["is_scheduled"] = tx_hash in self._scheduled and not fact["is_call"]
            if miniblock.senderShardID == self._shard:
                self._read_at_source(fact, info)
                if (tx_hash in self._scheduled or "executed" not in fact) and _is_fee_of_moving(info):
                    fact["fee"] = None
            self._read_transaction(fact, info)

    def _read_transaction(self, fact: dict[str, object], info: pb.TxInfo) -> None:
        tx = info.transaction
        if tx.data.partition(b"@")[0] in GUARDING:
            self.guarding.add(tx.sender)
        fact["client_hash"], fact["sdk_hash"] = early_hashes_of(tx)

    def _read_at_source(self, fact: dict[str, object], info: pb.TxInfo) -> None:
        self._read_fee(fact, info)
        tx = info.transaction
        paid = _number(info.feeInfo.initialPaidFee) or 0
        self.gas_prices.append((tx.gasPrice, paid // tx.gasLimit if paid and tx.gasLimit else tx.gasPrice))

    def _read_invalid(self, hashes: Iterable[bytes]) -> None:
        texts = {receipt.txHash: receipt.data for receipt in self._pool.receipts.values()}
        for tx_hash in hashes:
            fact = self._fact(tx_hash)
            fact["included"] = True
            fact["failed"] = _text(texts.get(tx_hash, b"")) or "invalid transaction"
            info = self._pool.invalidTxs.get(tx_hash.hex())
            if info is not None:
                self._read_fee(fact, info)
                fact["client_hash"], fact["sdk_hash"] = early_hashes_of(info.transaction)

    def _read_fee(self, fact: dict[str, object], info: pb.TxInfo) -> None:
        fact["fee"] = _fee(info)
        tx = info.transaction
        if tx.relayerSignature and len(tx.relayer) == address.SIZE:
            self.relayers.add(tx.relayer)
            if tx.relayer in self._watched:
                fact["paid"] = tx.relayer, _number(info.feeInfo.initialPaidFee) or tx.gasLimit * tx.gasPrice
                fact["signature"] = tx.relayerSignature

    def _read_results_in(self, hashes: list[bytes], *, from_elsewhere: bool) -> None:
        for scr_hash in hashes:
            info = self._pool.smartContractResults.get(scr_hash.hex())
            # A refund that was made here is in the fee its block tells already.
            if info is not None and from_elsewhere and info.smartContractResult.receiver in self._watched:
                value = _number(info.smartContractResult.value) or 0
                if value > 0:
                    self._got.append((scr_hash, info.smartContractResult.receiver, value))
            if info is not None and info.smartContractResult.originalTxHash:
                fact = self._fact(info.smartContractResult.originalTxHash)
                self._came.add(scr_hash)
                fact["results_in"] = fact.get("results_in", frozenset()) | {scr_hash}  # type: ignore[operator]

    def _read_results(self) -> None:
        """Contract results made or executed here: what is still to do elsewhere, and errors they return."""
        for scr_hash, info in self._pool.smartContractResults.items():
            scr = info.smartContractResult
            item = _hash_of(scr_hash)
            if not scr.originalTxHash or not item:
                continue
            self._scrs[scr_hash] = scr
            fact = self._fact(scr.originalTxHash)
            if item not in self._came and is_shard_user(scr) and self._network.shard_of(scr.receiver) != self._shard:
                fact["results_out"] = fact.get("results_out", frozenset()) | {item}  # type: ignore[operator]
            else:
                hops = self._hops.setdefault(scr.originalTxHash, _Hops(set(), set()))
                hops.names.update((item, scr.prevTxHash, scr.originalTxHash))
                hops.accounts.add(scr.receiver)
            if scr.returnMessage and scr.returnMessage != GAS_REFUND and not _number(scr.value):
                fact.setdefault("failed", _failure(scr.returnMessage))

    def _read_logs(self) -> None:
        for entry in self._pool.logs:
            scr = self._scrs.get(entry.txHash)
            owner = _hash_of(entry.txHash) if scr is None else scr.originalTxHash
            if owner in self._facts or owner in self._before:  # else of a result whose transaction is not named here
                self._read_events(owner, entry.log)

    def _read_events(self, owner: bytes, entries: pb.Log) -> None:
        fact = self._fact(owner)
        for event in entries.events:
            match event.identifier:
                case b"signalError":
                    message = event.topics[1] if len(event.topics) > 1 else event.data
                    fact["failed"] = _failure(message)
                case b"internalVMErrors":
                    fact.setdefault("failed", _failure(_first_line(event.data)))
                case b"completedTxEvent" if self._is_end(owner, event, entries.address):
                    fact["completed"] = True
                case b"SCDeploy":
                    fact["ran_ok"] = True
                case name if name in GUARDING:
                    self.guarding.add(event.address)
                case b"writeLog" if event.data.startswith(b"@6f6b") or not event.data:
                    fact["ran_ok"] = True

    def _is_end(self, owner: bytes, event: pb.Event, filed_under: bytes) -> bool:
        """Whether the chain itself could have written that a step is over: contracts write events of any name."""
        names, accounts = self._hops.get(owner, _NO_HOPS)
        info = self._pool.transactions.get(owner.hex())
        receiver = info.transaction.receiver if info is not None else b""
        return (
            len(event.topics) == 1
            and (event.topics[0] == owner or event.topics[0] in names)
            and (event.address in (receiver, filed_under, b"") or event.address in accounts)
        )


def names_function(data: bytes) -> bool:
    """Whether nodes take data for a call. They only move the value of any other, and say nothing of it: to a contract
    that takes no payments it fails, with a log as that of a call."""
    function, *arguments = data.split(b"@")
    return bool(function) and all(len(part) % 2 == 0 and not part.strip(_HEX) for part in arguments)


def is_shard_user(scr: pb.SmartContractResult) -> bool:
    """Whether a result has a receiver at all; results to nobody are only notes."""
    return len(scr.receiver) == address.SIZE


def _hash_of(text: str) -> bytes:
    """A hash written in hex; nothing where it is none."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def hashes_of(texts: Iterable[str]) -> list[bytes]:
    """Hashes written in hex; what is none is left out."""
    return [bytes.fromhex(text) for text in texts if re.fullmatch("[0-9a-f]{64}", text)]


def _failure(text: bytes) -> str:
    words = _text(text)
    return f"execution failed: {words}"[:MAX_REASON] if words else "execution failed"


def _text(data: bytes) -> str:
    """Text from the chain, which anybody can write: printable, and of bounded length."""
    return _CONTROL.sub(" ", data.decode("utf-8", "replace")).strip()[:MAX_REASON]


def _first_line(data: bytes) -> bytes:
    return data.strip().split(b"\n", 1)[0]


def _number(field: bytes) -> int | None:
    return bigint.decode(field) if field else None


def _fee(info: pb.TxInfo) -> int | None:
    """What was charged. Nothing is free: a fee of nothing or less is not known."""
    fee = _number(info.feeInfo.fee)
    return fee if fee is not None and fee > 0 else None


def _is_fee_of_moving(info: pb.TxInfo) -> bool:
    """Whether the block shows what moving a call costs, all its gas at the full price, while more was paid.

    Nothing of it has run yet, and what that leaves comes back later. Where nothing is called it is the whole fee.
    """
    fee, charge = _fee(info), info.feeInfo
    is_moving = charge.gasUsed * info.transaction.gasPrice in (0, fee)  # 0: it does not say what it is of
    return is_moving and fee != _number(charge.initialPaidFee) and names_function(info.transaction.data)


def early_hashes_of(tx: pb.Transaction) -> tuple[bytes, bytes]:
    """The hashes that the sender of a relayed transaction could compute; both empty for any other."""
    return early_hashes(_transaction(tx)) if tx.relayerSignature else (b"", b"")


def _transaction(tx: pb.Transaction) -> Transaction:
    """The chain's message as our value, for its hashes."""
    return Transaction(
        nonce=tx.nonce,
        value=_number(tx.value) or 0,
        receiver=tx.receiver,
        sender=tx.sender,
        gas_price=tx.gasPrice,
        gas_limit=tx.gasLimit,
        chain_id=tx.chainID.decode("latin-1"),
        data=tx.data,
        version=tx.version,
        options=tx.options,
        sender_username=tx.sndUserName,
        receiver_username=tx.rcvUserName,
        guardian=tx.guardian,
        relayer=tx.relayer,
        signature=tx.signature,
        guardian_signature=tx.guardianSignature,
        relayer_signature=tx.relayerSignature,
    )
