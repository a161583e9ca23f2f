from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SlicedBlock(_message.Message):
    __slots__ = ("shardID", "blockData", "transactionPool", "headerGasConsumption", "alteredAccounts", "notarizedHeadersHashes", "numberOfShards", "signersIndexes", "highestFinalBlockNonce", "highestFinalBlockHash", "leaderIndex", "leaderKey", "stateAccesses", "stateAccessesForBlock", "carryingHeaderHash", "carryingHeaderNonce")
    SHARDID_FIELD_NUMBER: _ClassVar[int]
    BLOCKDATA_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONPOOL_FIELD_NUMBER: _ClassVar[int]
    HEADERGASCONSUMPTION_FIELD_NUMBER: _ClassVar[int]
    ALTEREDACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    NOTARIZEDHEADERSHASHES_FIELD_NUMBER: _ClassVar[int]
    NUMBEROFSHARDS_FIELD_NUMBER: _ClassVar[int]
    SIGNERSINDEXES_FIELD_NUMBER: _ClassVar[int]
    HIGHESTFINALBLOCKNONCE_FIELD_NUMBER: _ClassVar[int]
    HIGHESTFINALBLOCKHASH_FIELD_NUMBER: _ClassVar[int]
    LEADERINDEX_FIELD_NUMBER: _ClassVar[int]
    LEADERKEY_FIELD_NUMBER: _ClassVar[int]
    STATEACCESSES_FIELD_NUMBER: _ClassVar[int]
    STATEACCESSESFORBLOCK_FIELD_NUMBER: _ClassVar[int]
    CARRYINGHEADERHASH_FIELD_NUMBER: _ClassVar[int]
    CARRYINGHEADERNONCE_FIELD_NUMBER: _ClassVar[int]
    shardID: int
    blockData: SlicedBlockData
    transactionPool: SlicedPool
    headerGasConsumption: _containers.RepeatedScalarFieldContainer[bytes]
    alteredAccounts: _containers.RepeatedScalarFieldContainer[bytes]
    notarizedHeadersHashes: _containers.RepeatedScalarFieldContainer[bytes]
    numberOfShards: int
    signersIndexes: _containers.RepeatedScalarFieldContainer[int]
    highestFinalBlockNonce: int
    highestFinalBlockHash: bytes
    leaderIndex: int
    leaderKey: bytes
    stateAccesses: _containers.RepeatedScalarFieldContainer[bytes]
    stateAccessesForBlock: _containers.RepeatedScalarFieldContainer[bytes]
    carryingHeaderHash: bytes
    carryingHeaderNonce: int
    def __init__(self, shardID: _Optional[int] = ..., blockData: _Optional[_Union[SlicedBlockData, _Mapping]] = ..., transactionPool: _Optional[_Union[SlicedPool, _Mapping]] = ..., headerGasConsumption: _Optional[_Iterable[bytes]] = ..., alteredAccounts: _Optional[_Iterable[bytes]] = ..., notarizedHeadersHashes: _Optional[_Iterable[bytes]] = ..., numberOfShards: _Optional[int] = ..., signersIndexes: _Optional[_Iterable[int]] = ..., highestFinalBlockNonce: _Optional[int] = ..., highestFinalBlockHash: _Optional[bytes] = ..., leaderIndex: _Optional[int] = ..., leaderKey: _Optional[bytes] = ..., stateAccesses: _Optional[_Iterable[bytes]] = ..., stateAccessesForBlock: _Optional[_Iterable[bytes]] = ..., carryingHeaderHash: _Optional[bytes] = ..., carryingHeaderNonce: _Optional[int] = ...) -> None: ...

class SlicedBlockData(_message.Message):
    __slots__ = ("shardID", "headerBytes", "headerType", "headerHash", "body", "intraShardMiniBlocks", "proof", "timestampMs", "results")
    SHARDID_FIELD_NUMBER: _ClassVar[int]
    HEADERBYTES_FIELD_NUMBER: _ClassVar[int]
    HEADERTYPE_FIELD_NUMBER: _ClassVar[int]
    HEADERHASH_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    INTRASHARDMINIBLOCKS_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPMS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    shardID: int
    headerBytes: bytes
    headerType: bytes
    headerHash: bytes
    body: _containers.RepeatedScalarFieldContainer[bytes]
    intraShardMiniBlocks: _containers.RepeatedScalarFieldContainer[bytes]
    proof: _containers.RepeatedScalarFieldContainer[bytes]
    timestampMs: int
    results: _containers.RepeatedCompositeFieldContainer[SlicedResultEntry]
    def __init__(self, shardID: _Optional[int] = ..., headerBytes: _Optional[bytes] = ..., headerType: _Optional[bytes] = ..., headerHash: _Optional[bytes] = ..., body: _Optional[_Iterable[bytes]] = ..., intraShardMiniBlocks: _Optional[_Iterable[bytes]] = ..., proof: _Optional[_Iterable[bytes]] = ..., timestampMs: _Optional[int] = ..., results: _Optional[_Iterable[_Union[SlicedResultEntry, _Mapping]]] = ...) -> None: ...

class SlicedResultEntry(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: SlicedResult
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[_Union[SlicedResult, _Mapping]] = ...) -> None: ...

class SlicedResult(_message.Message):
    __slots__ = ("headerNonce", "timestampMs", "body", "intraShardMiniBlocks", "transactionPool", "alteredAccounts", "headerGasConsumption")
    HEADERNONCE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPMS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    INTRASHARDMINIBLOCKS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONPOOL_FIELD_NUMBER: _ClassVar[int]
    ALTEREDACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    HEADERGASCONSUMPTION_FIELD_NUMBER: _ClassVar[int]
    headerNonce: int
    timestampMs: int
    body: _containers.RepeatedScalarFieldContainer[bytes]
    intraShardMiniBlocks: _containers.RepeatedScalarFieldContainer[bytes]
    transactionPool: SlicedPool
    alteredAccounts: _containers.RepeatedScalarFieldContainer[bytes]
    headerGasConsumption: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, headerNonce: _Optional[int] = ..., timestampMs: _Optional[int] = ..., body: _Optional[_Iterable[bytes]] = ..., intraShardMiniBlocks: _Optional[_Iterable[bytes]] = ..., transactionPool: _Optional[_Union[SlicedPool, _Mapping]] = ..., alteredAccounts: _Optional[_Iterable[bytes]] = ..., headerGasConsumption: _Optional[_Iterable[bytes]] = ...) -> None: ...

class SlicedPool(_message.Message):
    __slots__ = ("transactions", "smartContractResults", "rewards", "receipts", "invalidTxs", "logs", "scheduledExecutedSCRSHashesPrevBlock", "scheduledExecutedInvalidTxsHashesPrevBlock", "unexecutableTransactions")
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    SMARTCONTRACTRESULTS_FIELD_NUMBER: _ClassVar[int]
    REWARDS_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    INVALIDTXS_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULEDEXECUTEDSCRSHASHESPREVBLOCK_FIELD_NUMBER: _ClassVar[int]
    SCHEDULEDEXECUTEDINVALIDTXSHASHESPREVBLOCK_FIELD_NUMBER: _ClassVar[int]
    UNEXECUTABLETRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedScalarFieldContainer[bytes]
    smartContractResults: _containers.RepeatedScalarFieldContainer[bytes]
    rewards: _containers.RepeatedScalarFieldContainer[bytes]
    receipts: _containers.RepeatedScalarFieldContainer[bytes]
    invalidTxs: _containers.RepeatedScalarFieldContainer[bytes]
    logs: _containers.RepeatedScalarFieldContainer[bytes]
    scheduledExecutedSCRSHashesPrevBlock: _containers.RepeatedScalarFieldContainer[bytes]
    scheduledExecutedInvalidTxsHashesPrevBlock: _containers.RepeatedScalarFieldContainer[bytes]
    unexecutableTransactions: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, transactions: _Optional[_Iterable[bytes]] = ..., smartContractResults: _Optional[_Iterable[bytes]] = ..., rewards: _Optional[_Iterable[bytes]] = ..., receipts: _Optional[_Iterable[bytes]] = ..., invalidTxs: _Optional[_Iterable[bytes]] = ..., logs: _Optional[_Iterable[bytes]] = ..., scheduledExecutedSCRSHashesPrevBlock: _Optional[_Iterable[bytes]] = ..., scheduledExecutedInvalidTxsHashesPrevBlock: _Optional[_Iterable[bytes]] = ..., unexecutableTransactions: _Optional[_Iterable[bytes]] = ...) -> None: ...

class SlicedLogData(_message.Message):
    __slots__ = ("txHash", "log")
    TXHASH_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    txHash: str
    log: SlicedLog
    def __init__(self, txHash: _Optional[str] = ..., log: _Optional[_Union[SlicedLog, _Mapping]] = ...) -> None: ...

class SlicedLog(_message.Message):
    __slots__ = ("address", "events")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    address: bytes
    events: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, address: _Optional[bytes] = ..., events: _Optional[_Iterable[bytes]] = ...) -> None: ...

class LogColumns(_message.Message):
    __slots__ = ("txHash",)
    TXHASH_FIELD_NUMBER: _ClassVar[int]
    txHash: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, txHash: _Optional[_Iterable[str]] = ...) -> None: ...

class KeyedLogData(_message.Message):
    __slots__ = ("log",)
    LOG_FIELD_NUMBER: _ClassVar[int]
    log: KeyedLog
    def __init__(self, log: _Optional[_Union[KeyedLog, _Mapping]] = ...) -> None: ...

class KeyedLog(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[EventKey]
    def __init__(self, events: _Optional[_Iterable[_Union[EventKey, _Mapping]]] = ...) -> None: ...

class EventKey(_message.Message):
    __slots__ = ("address", "identifier", "topics")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    IDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    address: bytes
    identifier: bytes
    topics: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, address: _Optional[bytes] = ..., identifier: _Optional[bytes] = ..., topics: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ResultColumns(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: _containers.RepeatedScalarFieldContainer[str]
    value: ResultInfoColumns
    def __init__(self, key: _Optional[_Iterable[str]] = ..., value: _Optional[_Union[ResultInfoColumns, _Mapping]] = ...) -> None: ...

class ResultInfoColumns(_message.Message):
    __slots__ = ("smartContractResult",)
    SMARTCONTRACTRESULT_FIELD_NUMBER: _ClassVar[int]
    smartContractResult: ResultContentColumns
    def __init__(self, smartContractResult: _Optional[_Union[ResultContentColumns, _Mapping]] = ...) -> None: ...

class ResultContentColumns(_message.Message):
    __slots__ = ("originalTxHash",)
    ORIGINALTXHASH_FIELD_NUMBER: _ClassVar[int]
    originalTxHash: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, originalTxHash: _Optional[_Iterable[bytes]] = ...) -> None: ...
