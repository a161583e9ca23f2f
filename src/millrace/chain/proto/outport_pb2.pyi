from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BlockType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TxBlock: _ClassVar[BlockType]
    StateBlock: _ClassVar[BlockType]
    PeerBlock: _ClassVar[BlockType]
    SmartContractResultBlock: _ClassVar[BlockType]
    InvalidBlock: _ClassVar[BlockType]
    ReceiptBlock: _ClassVar[BlockType]
    RewardsBlock: _ClassVar[BlockType]

class ProcessingType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    Normal: _ClassVar[ProcessingType]
    Scheduled: _ClassVar[ProcessingType]
    Processed: _ClassVar[ProcessingType]

class MiniBlockState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    Final: _ClassVar[MiniBlockState]
    Proposed: _ClassVar[MiniBlockState]
    PartialExecuted: _ClassVar[MiniBlockState]

class PeerAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    InvalidAction: _ClassVar[PeerAction]
    PeerRegistration: _ClassVar[PeerAction]
    PeerUnstaking: _ClassVar[PeerAction]
    PeerDeregistration: _ClassVar[PeerAction]
    PeerJailed: _ClassVar[PeerAction]
    PeerUnJailed: _ClassVar[PeerAction]
    PeerSlashed: _ClassVar[PeerAction]
    PeerReStake: _ClassVar[PeerAction]
TxBlock: BlockType
StateBlock: BlockType
PeerBlock: BlockType
SmartContractResultBlock: BlockType
InvalidBlock: BlockType
ReceiptBlock: BlockType
RewardsBlock: BlockType
Normal: ProcessingType
Scheduled: ProcessingType
Processed: ProcessingType
Final: MiniBlockState
Proposed: MiniBlockState
PartialExecuted: MiniBlockState
InvalidAction: PeerAction
PeerRegistration: PeerAction
PeerUnstaking: PeerAction
PeerDeregistration: PeerAction
PeerJailed: PeerAction
PeerUnJailed: PeerAction
PeerSlashed: PeerAction
PeerReStake: PeerAction

class WsMessage(_message.Message):
    __slots__ = ("withAcknowledge", "counter", "type", "payload", "topic", "version", "marks", "id", "traces")
    WITHACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    COUNTER_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TRACES_FIELD_NUMBER: _ClassVar[int]
    withAcknowledge: bool
    counter: int
    type: int
    payload: bytes
    topic: str
    version: int
    marks: int
    id: str
    traces: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, withAcknowledge: bool = ..., counter: _Optional[int] = ..., type: _Optional[int] = ..., payload: _Optional[bytes] = ..., topic: _Optional[str] = ..., version: _Optional[int] = ..., marks: _Optional[int] = ..., id: _Optional[str] = ..., traces: _Optional[_Iterable[str]] = ...) -> None: ...

class OutportBlock(_message.Message):
    __slots__ = ("shardID", "blockData", "transactionPool", "headerGasConsumption", "alteredAccounts", "notarizedHeadersHashes", "numberOfShards", "signersIndexes", "highestFinalBlockNonce", "highestFinalBlockHash", "leaderIndex", "leaderKey", "stateAccesses", "stateAccessesForBlock", "carryingHeaderHash", "carryingHeaderNonce")
    class AlteredAccountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: AlteredAccount
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[AlteredAccount, _Mapping]] = ...) -> None: ...
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
    blockData: BlockData
    transactionPool: TransactionPool
    headerGasConsumption: HeaderGasConsumption
    alteredAccounts: _containers.MessageMap[str, AlteredAccount]
    notarizedHeadersHashes: _containers.RepeatedScalarFieldContainer[str]
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
    def __init__(self, shardID: _Optional[int] = ..., blockData: _Optional[_Union[BlockData, _Mapping]] = ..., transactionPool: _Optional[_Union[TransactionPool, _Mapping]] = ..., headerGasConsumption: _Optional[_Union[HeaderGasConsumption, _Mapping]] = ..., alteredAccounts: _Optional[_Mapping[str, AlteredAccount]] = ..., notarizedHeadersHashes: _Optional[_Iterable[str]] = ..., numberOfShards: _Optional[int] = ..., signersIndexes: _Optional[_Iterable[int]] = ..., highestFinalBlockNonce: _Optional[int] = ..., highestFinalBlockHash: _Optional[bytes] = ..., leaderIndex: _Optional[int] = ..., leaderKey: _Optional[bytes] = ..., stateAccesses: _Optional[_Iterable[bytes]] = ..., stateAccessesForBlock: _Optional[_Iterable[bytes]] = ..., carryingHeaderHash: _Optional[bytes] = ..., carryingHeaderNonce: _Optional[int] = ...) -> None: ...

class BlockData(_message.Message):
    __slots__ = ("shardID", "headerBytes", "headerType", "headerHash", "body", "intraShardMiniBlocks", "proof", "timestampMs", "results")
    class ResultsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: ExecutionResultData
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[ExecutionResultData, _Mapping]] = ...) -> None: ...
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
    headerType: str
    headerHash: bytes
    body: Body
    intraShardMiniBlocks: _containers.RepeatedCompositeFieldContainer[MiniBlock]
    proof: HeaderProof
    timestampMs: int
    results: _containers.MessageMap[str, ExecutionResultData]
    def __init__(self, shardID: _Optional[int] = ..., headerBytes: _Optional[bytes] = ..., headerType: _Optional[str] = ..., headerHash: _Optional[bytes] = ..., body: _Optional[_Union[Body, _Mapping]] = ..., intraShardMiniBlocks: _Optional[_Iterable[_Union[MiniBlock, _Mapping]]] = ..., proof: _Optional[_Union[HeaderProof, _Mapping]] = ..., timestampMs: _Optional[int] = ..., results: _Optional[_Mapping[str, ExecutionResultData]] = ...) -> None: ...

class UnreadBlock(_message.Message):
    __slots__ = ("shardID", "blockData")
    SHARDID_FIELD_NUMBER: _ClassVar[int]
    BLOCKDATA_FIELD_NUMBER: _ClassVar[int]
    shardID: int
    blockData: UnreadBlockData
    def __init__(self, shardID: _Optional[int] = ..., blockData: _Optional[_Union[UnreadBlockData, _Mapping]] = ...) -> None: ...

class UnreadBlockData(_message.Message):
    __slots__ = ("shardID", "headerBytes", "headerHash")
    SHARDID_FIELD_NUMBER: _ClassVar[int]
    HEADERBYTES_FIELD_NUMBER: _ClassVar[int]
    HEADERHASH_FIELD_NUMBER: _ClassVar[int]
    shardID: int
    headerBytes: bytes
    headerHash: bytes
    def __init__(self, shardID: _Optional[int] = ..., headerBytes: _Optional[bytes] = ..., headerHash: _Optional[bytes] = ...) -> None: ...

class ExecutionResultData(_message.Message):
    __slots__ = ("headerNonce", "timestampMs", "body", "intraShardMiniBlocks", "transactionPool", "alteredAccounts", "headerGasConsumption")
    class AlteredAccountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: AlteredAccount
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[AlteredAccount, _Mapping]] = ...) -> None: ...
    HEADERNONCE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPMS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    INTRASHARDMINIBLOCKS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONPOOL_FIELD_NUMBER: _ClassVar[int]
    ALTEREDACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    HEADERGASCONSUMPTION_FIELD_NUMBER: _ClassVar[int]
    headerNonce: int
    timestampMs: int
    body: Body
    intraShardMiniBlocks: _containers.RepeatedCompositeFieldContainer[MiniBlock]
    transactionPool: TransactionPool
    alteredAccounts: _containers.MessageMap[str, AlteredAccount]
    headerGasConsumption: HeaderGasConsumption
    def __init__(self, headerNonce: _Optional[int] = ..., timestampMs: _Optional[int] = ..., body: _Optional[_Union[Body, _Mapping]] = ..., intraShardMiniBlocks: _Optional[_Iterable[_Union[MiniBlock, _Mapping]]] = ..., transactionPool: _Optional[_Union[TransactionPool, _Mapping]] = ..., alteredAccounts: _Optional[_Mapping[str, AlteredAccount]] = ..., headerGasConsumption: _Optional[_Union[HeaderGasConsumption, _Mapping]] = ...) -> None: ...

class TransactionPool(_message.Message):
    __slots__ = ("transactions", "smartContractResults", "rewards", "receipts", "invalidTxs", "logs", "scheduledExecutedSCRSHashesPrevBlock", "scheduledExecutedInvalidTxsHashesPrevBlock", "unexecutableTransactions")
    class TransactionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: TxInfo
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[TxInfo, _Mapping]] = ...) -> None: ...
    class SmartContractResultsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: SCRInfo
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[SCRInfo, _Mapping]] = ...) -> None: ...
    class RewardsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: RewardInfo
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[RewardInfo, _Mapping]] = ...) -> None: ...
    class ReceiptsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Receipt
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Receipt, _Mapping]] = ...) -> None: ...
    class InvalidTxsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: TxInfo
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[TxInfo, _Mapping]] = ...) -> None: ...
    class UnexecutableTransactionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Transaction
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Transaction, _Mapping]] = ...) -> None: ...
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    SMARTCONTRACTRESULTS_FIELD_NUMBER: _ClassVar[int]
    REWARDS_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    INVALIDTXS_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULEDEXECUTEDSCRSHASHESPREVBLOCK_FIELD_NUMBER: _ClassVar[int]
    SCHEDULEDEXECUTEDINVALIDTXSHASHESPREVBLOCK_FIELD_NUMBER: _ClassVar[int]
    UNEXECUTABLETRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.MessageMap[str, TxInfo]
    smartContractResults: _containers.MessageMap[str, SCRInfo]
    rewards: _containers.MessageMap[str, RewardInfo]
    receipts: _containers.MessageMap[str, Receipt]
    invalidTxs: _containers.MessageMap[str, TxInfo]
    logs: _containers.RepeatedCompositeFieldContainer[LogData]
    scheduledExecutedSCRSHashesPrevBlock: _containers.RepeatedScalarFieldContainer[str]
    scheduledExecutedInvalidTxsHashesPrevBlock: _containers.RepeatedScalarFieldContainer[str]
    unexecutableTransactions: _containers.MessageMap[str, Transaction]
    def __init__(self, transactions: _Optional[_Mapping[str, TxInfo]] = ..., smartContractResults: _Optional[_Mapping[str, SCRInfo]] = ..., rewards: _Optional[_Mapping[str, RewardInfo]] = ..., receipts: _Optional[_Mapping[str, Receipt]] = ..., invalidTxs: _Optional[_Mapping[str, TxInfo]] = ..., logs: _Optional[_Iterable[_Union[LogData, _Mapping]]] = ..., scheduledExecutedSCRSHashesPrevBlock: _Optional[_Iterable[str]] = ..., scheduledExecutedInvalidTxsHashesPrevBlock: _Optional[_Iterable[str]] = ..., unexecutableTransactions: _Optional[_Mapping[str, Transaction]] = ...) -> None: ...

class FeeInfo(_message.Message):
    __slots__ = ("gasUsed", "fee", "initialPaidFee", "gasRefunded", "hadRefund")
    GASUSED_FIELD_NUMBER: _ClassVar[int]
    FEE_FIELD_NUMBER: _ClassVar[int]
    INITIALPAIDFEE_FIELD_NUMBER: _ClassVar[int]
    GASREFUNDED_FIELD_NUMBER: _ClassVar[int]
    HADREFUND_FIELD_NUMBER: _ClassVar[int]
    gasUsed: int
    fee: bytes
    initialPaidFee: bytes
    gasRefunded: int
    hadRefund: bool
    def __init__(self, gasUsed: _Optional[int] = ..., fee: _Optional[bytes] = ..., initialPaidFee: _Optional[bytes] = ..., gasRefunded: _Optional[int] = ..., hadRefund: bool = ...) -> None: ...

class TxInfo(_message.Message):
    __slots__ = ("transaction", "feeInfo", "executionOrder")
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    FEEINFO_FIELD_NUMBER: _ClassVar[int]
    EXECUTIONORDER_FIELD_NUMBER: _ClassVar[int]
    transaction: Transaction
    feeInfo: FeeInfo
    executionOrder: int
    def __init__(self, transaction: _Optional[_Union[Transaction, _Mapping]] = ..., feeInfo: _Optional[_Union[FeeInfo, _Mapping]] = ..., executionOrder: _Optional[int] = ...) -> None: ...

class SCRInfo(_message.Message):
    __slots__ = ("smartContractResult", "feeInfo", "executionOrder")
    SMARTCONTRACTRESULT_FIELD_NUMBER: _ClassVar[int]
    FEEINFO_FIELD_NUMBER: _ClassVar[int]
    EXECUTIONORDER_FIELD_NUMBER: _ClassVar[int]
    smartContractResult: SmartContractResult
    feeInfo: FeeInfo
    executionOrder: int
    def __init__(self, smartContractResult: _Optional[_Union[SmartContractResult, _Mapping]] = ..., feeInfo: _Optional[_Union[FeeInfo, _Mapping]] = ..., executionOrder: _Optional[int] = ...) -> None: ...

class RewardInfo(_message.Message):
    __slots__ = ("reward", "executionOrder")
    REWARD_FIELD_NUMBER: _ClassVar[int]
    EXECUTIONORDER_FIELD_NUMBER: _ClassVar[int]
    reward: RewardTx
    executionOrder: int
    def __init__(self, reward: _Optional[_Union[RewardTx, _Mapping]] = ..., executionOrder: _Optional[int] = ...) -> None: ...

class LogData(_message.Message):
    __slots__ = ("txHash", "log")
    TXHASH_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    txHash: str
    log: Log
    def __init__(self, txHash: _Optional[str] = ..., log: _Optional[_Union[Log, _Mapping]] = ...) -> None: ...

class Log(_message.Message):
    __slots__ = ("address", "events")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    address: bytes
    events: _containers.RepeatedCompositeFieldContainer[Event]
    def __init__(self, address: _Optional[bytes] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("address", "identifier", "topics", "data", "additionalData")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    IDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    ADDITIONALDATA_FIELD_NUMBER: _ClassVar[int]
    address: bytes
    identifier: bytes
    topics: _containers.RepeatedScalarFieldContainer[bytes]
    data: bytes
    additionalData: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, address: _Optional[bytes] = ..., identifier: _Optional[bytes] = ..., topics: _Optional[_Iterable[bytes]] = ..., data: _Optional[bytes] = ..., additionalData: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Transaction(_message.Message):
    __slots__ = ("nonce", "value", "receiver", "rcvUserName", "sender", "sndUserName", "gasPrice", "gasLimit", "data", "chainID", "version", "signature", "options", "guardian", "guardianSignature", "relayer", "relayerSignature")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    RCVUSERNAME_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    SNDUSERNAME_FIELD_NUMBER: _ClassVar[int]
    GASPRICE_FIELD_NUMBER: _ClassVar[int]
    GASLIMIT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CHAINID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    GUARDIAN_FIELD_NUMBER: _ClassVar[int]
    GUARDIANSIGNATURE_FIELD_NUMBER: _ClassVar[int]
    RELAYER_FIELD_NUMBER: _ClassVar[int]
    RELAYERSIGNATURE_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    value: bytes
    receiver: bytes
    rcvUserName: bytes
    sender: bytes
    sndUserName: bytes
    gasPrice: int
    gasLimit: int
    data: bytes
    chainID: bytes
    version: int
    signature: bytes
    options: int
    guardian: bytes
    guardianSignature: bytes
    relayer: bytes
    relayerSignature: bytes
    def __init__(self, nonce: _Optional[int] = ..., value: _Optional[bytes] = ..., receiver: _Optional[bytes] = ..., rcvUserName: _Optional[bytes] = ..., sender: _Optional[bytes] = ..., sndUserName: _Optional[bytes] = ..., gasPrice: _Optional[int] = ..., gasLimit: _Optional[int] = ..., data: _Optional[bytes] = ..., chainID: _Optional[bytes] = ..., version: _Optional[int] = ..., signature: _Optional[bytes] = ..., options: _Optional[int] = ..., guardian: _Optional[bytes] = ..., guardianSignature: _Optional[bytes] = ..., relayer: _Optional[bytes] = ..., relayerSignature: _Optional[bytes] = ...) -> None: ...

class SmartContractResult(_message.Message):
    __slots__ = ("nonce", "value", "receiver", "sender", "relayer", "relayedValue", "code", "data", "prevTxHash", "originalTxHash", "gasLimit", "gasPrice", "callType", "codeMetadata", "returnMessage", "originalSender")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RELAYER_FIELD_NUMBER: _ClassVar[int]
    RELAYEDVALUE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PREVTXHASH_FIELD_NUMBER: _ClassVar[int]
    ORIGINALTXHASH_FIELD_NUMBER: _ClassVar[int]
    GASLIMIT_FIELD_NUMBER: _ClassVar[int]
    GASPRICE_FIELD_NUMBER: _ClassVar[int]
    CALLTYPE_FIELD_NUMBER: _ClassVar[int]
    CODEMETADATA_FIELD_NUMBER: _ClassVar[int]
    RETURNMESSAGE_FIELD_NUMBER: _ClassVar[int]
    ORIGINALSENDER_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    value: bytes
    receiver: bytes
    sender: bytes
    relayer: bytes
    relayedValue: bytes
    code: bytes
    data: bytes
    prevTxHash: bytes
    originalTxHash: bytes
    gasLimit: int
    gasPrice: int
    callType: int
    codeMetadata: bytes
    returnMessage: bytes
    originalSender: bytes
    def __init__(self, nonce: _Optional[int] = ..., value: _Optional[bytes] = ..., receiver: _Optional[bytes] = ..., sender: _Optional[bytes] = ..., relayer: _Optional[bytes] = ..., relayedValue: _Optional[bytes] = ..., code: _Optional[bytes] = ..., data: _Optional[bytes] = ..., prevTxHash: _Optional[bytes] = ..., originalTxHash: _Optional[bytes] = ..., gasLimit: _Optional[int] = ..., gasPrice: _Optional[int] = ..., callType: _Optional[int] = ..., codeMetadata: _Optional[bytes] = ..., returnMessage: _Optional[bytes] = ..., originalSender: _Optional[bytes] = ...) -> None: ...

class RewardTx(_message.Message):
    __slots__ = ("round", "epoch", "value", "receiver")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    round: int
    epoch: int
    value: bytes
    receiver: bytes
    def __init__(self, round: _Optional[int] = ..., epoch: _Optional[int] = ..., value: _Optional[bytes] = ..., receiver: _Optional[bytes] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("value", "sender", "data", "txHash")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TXHASH_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    sender: bytes
    data: bytes
    txHash: bytes
    def __init__(self, value: _Optional[bytes] = ..., sender: _Optional[bytes] = ..., data: _Optional[bytes] = ..., txHash: _Optional[bytes] = ...) -> None: ...

class HeaderGasConsumption(_message.Message):
    __slots__ = ("gasProvided", "gasRefunded", "gasPenalized", "maxGasPerBlock")
    GASPROVIDED_FIELD_NUMBER: _ClassVar[int]
    GASREFUNDED_FIELD_NUMBER: _ClassVar[int]
    GASPENALIZED_FIELD_NUMBER: _ClassVar[int]
    MAXGASPERBLOCK_FIELD_NUMBER: _ClassVar[int]
    gasProvided: int
    gasRefunded: int
    gasPenalized: int
    maxGasPerBlock: int
    def __init__(self, gasProvided: _Optional[int] = ..., gasRefunded: _Optional[int] = ..., gasPenalized: _Optional[int] = ..., maxGasPerBlock: _Optional[int] = ...) -> None: ...

class AlteredAccount(_message.Message):
    __slots__ = ("address", "nonce", "balance", "tokens", "additionalAccountData")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    BALANCE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    ADDITIONALACCOUNTDATA_FIELD_NUMBER: _ClassVar[int]
    address: str
    nonce: int
    balance: str
    tokens: _containers.RepeatedCompositeFieldContainer[AccountTokenData]
    additionalAccountData: AdditionalAccountData
    def __init__(self, address: _Optional[str] = ..., nonce: _Optional[int] = ..., balance: _Optional[str] = ..., tokens: _Optional[_Iterable[_Union[AccountTokenData, _Mapping]]] = ..., additionalAccountData: _Optional[_Union[AdditionalAccountData, _Mapping]] = ...) -> None: ...

class AccountTokenData(_message.Message):
    __slots__ = ("nonce", "identifier", "balance", "properties", "metaData", "additionalData", "type")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    IDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    BALANCE_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ADDITIONALDATA_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    identifier: bytes
    balance: str
    properties: str
    metaData: TokenMetaData
    additionalData: AdditionalAccountTokenData
    type: str
    def __init__(self, nonce: _Optional[int] = ..., identifier: _Optional[bytes] = ..., balance: _Optional[str] = ..., properties: _Optional[str] = ..., metaData: _Optional[_Union[TokenMetaData, _Mapping]] = ..., additionalData: _Optional[_Union[AdditionalAccountTokenData, _Mapping]] = ..., type: _Optional[str] = ...) -> None: ...

class TokenMetaData(_message.Message):
    __slots__ = ("nonce", "name", "creator", "royalties", "hash", "uris", "attributes")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREATOR_FIELD_NUMBER: _ClassVar[int]
    ROYALTIES_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    URIS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    name: bytes
    creator: str
    royalties: int
    hash: bytes
    uris: _containers.RepeatedScalarFieldContainer[bytes]
    attributes: bytes
    def __init__(self, nonce: _Optional[int] = ..., name: _Optional[bytes] = ..., creator: _Optional[str] = ..., royalties: _Optional[int] = ..., hash: _Optional[bytes] = ..., uris: _Optional[_Iterable[bytes]] = ..., attributes: _Optional[bytes] = ...) -> None: ...

class AdditionalAccountTokenData(_message.Message):
    __slots__ = ("isNFTCreate",)
    ISNFTCREATE_FIELD_NUMBER: _ClassVar[int]
    isNFTCreate: bool
    def __init__(self, isNFTCreate: bool = ...) -> None: ...

class AdditionalAccountData(_message.Message):
    __slots__ = ("isSender", "balanceChanged", "currentOwner", "userName", "developerRewards", "codeHash", "rootHash", "codeMetadata")
    ISSENDER_FIELD_NUMBER: _ClassVar[int]
    BALANCECHANGED_FIELD_NUMBER: _ClassVar[int]
    CURRENTOWNER_FIELD_NUMBER: _ClassVar[int]
    USERNAME_FIELD_NUMBER: _ClassVar[int]
    DEVELOPERREWARDS_FIELD_NUMBER: _ClassVar[int]
    CODEHASH_FIELD_NUMBER: _ClassVar[int]
    ROOTHASH_FIELD_NUMBER: _ClassVar[int]
    CODEMETADATA_FIELD_NUMBER: _ClassVar[int]
    isSender: bool
    balanceChanged: bool
    currentOwner: str
    userName: bytes
    developerRewards: str
    codeHash: bytes
    rootHash: bytes
    codeMetadata: bytes
    def __init__(self, isSender: bool = ..., balanceChanged: bool = ..., currentOwner: _Optional[str] = ..., userName: _Optional[bytes] = ..., developerRewards: _Optional[str] = ..., codeHash: _Optional[bytes] = ..., rootHash: _Optional[bytes] = ..., codeMetadata: _Optional[bytes] = ...) -> None: ...

class Body(_message.Message):
    __slots__ = ("miniBlocks",)
    MINIBLOCKS_FIELD_NUMBER: _ClassVar[int]
    miniBlocks: _containers.RepeatedCompositeFieldContainer[MiniBlock]
    def __init__(self, miniBlocks: _Optional[_Iterable[_Union[MiniBlock, _Mapping]]] = ...) -> None: ...

class MiniBlock(_message.Message):
    __slots__ = ("txHashes", "receiverShardID", "senderShardID", "type", "reserved")
    TXHASHES_FIELD_NUMBER: _ClassVar[int]
    RECEIVERSHARDID_FIELD_NUMBER: _ClassVar[int]
    SENDERSHARDID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    RESERVED_FIELD_NUMBER: _ClassVar[int]
    txHashes: _containers.RepeatedScalarFieldContainer[bytes]
    receiverShardID: int
    senderShardID: int
    type: BlockType
    reserved: bytes
    def __init__(self, txHashes: _Optional[_Iterable[bytes]] = ..., receiverShardID: _Optional[int] = ..., senderShardID: _Optional[int] = ..., type: _Optional[_Union[BlockType, str]] = ..., reserved: _Optional[bytes] = ...) -> None: ...

class MiniBlockHeader(_message.Message):
    __slots__ = ("hash", "senderShardID", "receiverShardID", "txCount", "type", "reserved")
    HASH_FIELD_NUMBER: _ClassVar[int]
    SENDERSHARDID_FIELD_NUMBER: _ClassVar[int]
    RECEIVERSHARDID_FIELD_NUMBER: _ClassVar[int]
    TXCOUNT_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    RESERVED_FIELD_NUMBER: _ClassVar[int]
    hash: bytes
    senderShardID: int
    receiverShardID: int
    txCount: int
    type: BlockType
    reserved: bytes
    def __init__(self, hash: _Optional[bytes] = ..., senderShardID: _Optional[int] = ..., receiverShardID: _Optional[int] = ..., txCount: _Optional[int] = ..., type: _Optional[_Union[BlockType, str]] = ..., reserved: _Optional[bytes] = ...) -> None: ...

class MiniBlockHeaderReserved(_message.Message):
    __slots__ = ("executionType", "state", "indexOfFirstTxProcessed", "indexOfLastTxProcessed")
    EXECUTIONTYPE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    INDEXOFFIRSTTXPROCESSED_FIELD_NUMBER: _ClassVar[int]
    INDEXOFLASTTXPROCESSED_FIELD_NUMBER: _ClassVar[int]
    executionType: ProcessingType
    state: MiniBlockState
    indexOfFirstTxProcessed: int
    indexOfLastTxProcessed: int
    def __init__(self, executionType: _Optional[_Union[ProcessingType, str]] = ..., state: _Optional[_Union[MiniBlockState, str]] = ..., indexOfFirstTxProcessed: _Optional[int] = ..., indexOfLastTxProcessed: _Optional[int] = ...) -> None: ...

class PeerChange(_message.Message):
    __slots__ = ("pubKey", "shardIdDest")
    PUBKEY_FIELD_NUMBER: _ClassVar[int]
    SHARDIDDEST_FIELD_NUMBER: _ClassVar[int]
    pubKey: bytes
    shardIdDest: int
    def __init__(self, pubKey: _Optional[bytes] = ..., shardIdDest: _Optional[int] = ...) -> None: ...

class HeaderProof(_message.Message):
    __slots__ = ("pubKeysBitmap", "aggregatedSignature", "headerHash", "headerEpoch", "headerNonce", "headerShardId", "headerRound", "isStartOfEpoch")
    PUBKEYSBITMAP_FIELD_NUMBER: _ClassVar[int]
    AGGREGATEDSIGNATURE_FIELD_NUMBER: _ClassVar[int]
    HEADERHASH_FIELD_NUMBER: _ClassVar[int]
    HEADEREPOCH_FIELD_NUMBER: _ClassVar[int]
    HEADERNONCE_FIELD_NUMBER: _ClassVar[int]
    HEADERSHARDID_FIELD_NUMBER: _ClassVar[int]
    HEADERROUND_FIELD_NUMBER: _ClassVar[int]
    ISSTARTOFEPOCH_FIELD_NUMBER: _ClassVar[int]
    pubKeysBitmap: bytes
    aggregatedSignature: bytes
    headerHash: bytes
    headerEpoch: int
    headerNonce: int
    headerShardId: int
    headerRound: int
    isStartOfEpoch: bool
    def __init__(self, pubKeysBitmap: _Optional[bytes] = ..., aggregatedSignature: _Optional[bytes] = ..., headerHash: _Optional[bytes] = ..., headerEpoch: _Optional[int] = ..., headerNonce: _Optional[int] = ..., headerShardId: _Optional[int] = ..., headerRound: _Optional[int] = ..., isStartOfEpoch: bool = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("nonce", "prevHash", "prevRandSeed", "randSeed", "pubKeysBitmap", "shardID", "timeStamp", "round", "epoch", "blockBodyType", "signature", "leaderSignature", "miniBlockHeaders", "peerChanges", "rootHash", "metaBlockHashes", "txCount", "epochStartMetaHash", "receiptsHash", "chainID", "softwareVersion", "accumulatedFees", "developerFees", "reserved")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    PREVHASH_FIELD_NUMBER: _ClassVar[int]
    PREVRANDSEED_FIELD_NUMBER: _ClassVar[int]
    RANDSEED_FIELD_NUMBER: _ClassVar[int]
    PUBKEYSBITMAP_FIELD_NUMBER: _ClassVar[int]
    SHARDID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BLOCKBODYTYPE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    LEADERSIGNATURE_FIELD_NUMBER: _ClassVar[int]
    MINIBLOCKHEADERS_FIELD_NUMBER: _ClassVar[int]
    PEERCHANGES_FIELD_NUMBER: _ClassVar[int]
    ROOTHASH_FIELD_NUMBER: _ClassVar[int]
    METABLOCKHASHES_FIELD_NUMBER: _ClassVar[int]
    TXCOUNT_FIELD_NUMBER: _ClassVar[int]
    EPOCHSTARTMETAHASH_FIELD_NUMBER: _ClassVar[int]
    RECEIPTSHASH_FIELD_NUMBER: _ClassVar[int]
    CHAINID_FIELD_NUMBER: _ClassVar[int]
    SOFTWAREVERSION_FIELD_NUMBER: _ClassVar[int]
    ACCUMULATEDFEES_FIELD_NUMBER: _ClassVar[int]
    DEVELOPERFEES_FIELD_NUMBER: _ClassVar[int]
    RESERVED_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    prevHash: bytes
    prevRandSeed: bytes
    randSeed: bytes
    pubKeysBitmap: bytes
    shardID: int
    timeStamp: int
    round: int
    epoch: int
    blockBodyType: BlockType
    signature: bytes
    leaderSignature: bytes
    miniBlockHeaders: _containers.RepeatedCompositeFieldContainer[MiniBlockHeader]
    peerChanges: _containers.RepeatedCompositeFieldContainer[PeerChange]
    rootHash: bytes
    metaBlockHashes: _containers.RepeatedScalarFieldContainer[bytes]
    txCount: int
    epochStartMetaHash: bytes
    receiptsHash: bytes
    chainID: bytes
    softwareVersion: bytes
    accumulatedFees: bytes
    developerFees: bytes
    reserved: bytes
    def __init__(self, nonce: _Optional[int] = ..., prevHash: _Optional[bytes] = ..., prevRandSeed: _Optional[bytes] = ..., randSeed: _Optional[bytes] = ..., pubKeysBitmap: _Optional[bytes] = ..., shardID: _Optional[int] = ..., timeStamp: _Optional[int] = ..., round: _Optional[int] = ..., epoch: _Optional[int] = ..., blockBodyType: _Optional[_Union[BlockType, str]] = ..., signature: _Optional[bytes] = ..., leaderSignature: _Optional[bytes] = ..., miniBlockHeaders: _Optional[_Iterable[_Union[MiniBlockHeader, _Mapping]]] = ..., peerChanges: _Optional[_Iterable[_Union[PeerChange, _Mapping]]] = ..., rootHash: _Optional[bytes] = ..., metaBlockHashes: _Optional[_Iterable[bytes]] = ..., txCount: _Optional[int] = ..., epochStartMetaHash: _Optional[bytes] = ..., receiptsHash: _Optional[bytes] = ..., chainID: _Optional[bytes] = ..., softwareVersion: _Optional[bytes] = ..., accumulatedFees: _Optional[bytes] = ..., developerFees: _Optional[bytes] = ..., reserved: _Optional[bytes] = ...) -> None: ...

class HeaderV2(_message.Message):
    __slots__ = ("header", "scheduledRootHash", "scheduledAccumulatedFees", "scheduledDeveloperFees", "scheduledGasProvided", "scheduledGasPenalized", "scheduledGasRefunded")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SCHEDULEDROOTHASH_FIELD_NUMBER: _ClassVar[int]
    SCHEDULEDACCUMULATEDFEES_FIELD_NUMBER: _ClassVar[int]
    SCHEDULEDDEVELOPERFEES_FIELD_NUMBER: _ClassVar[int]
    SCHEDULEDGASPROVIDED_FIELD_NUMBER: _ClassVar[int]
    SCHEDULEDGASPENALIZED_FIELD_NUMBER: _ClassVar[int]
    SCHEDULEDGASREFUNDED_FIELD_NUMBER: _ClassVar[int]
    header: Header
    scheduledRootHash: bytes
    scheduledAccumulatedFees: bytes
    scheduledDeveloperFees: bytes
    scheduledGasProvided: int
    scheduledGasPenalized: int
    scheduledGasRefunded: int
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., scheduledRootHash: _Optional[bytes] = ..., scheduledAccumulatedFees: _Optional[bytes] = ..., scheduledDeveloperFees: _Optional[bytes] = ..., scheduledGasProvided: _Optional[int] = ..., scheduledGasPenalized: _Optional[int] = ..., scheduledGasRefunded: _Optional[int] = ...) -> None: ...

class HeaderV3(_message.Message):
    __slots__ = ("nonce", "prevHash", "prevRandSeed", "randSeed", "shardID", "timestampMs", "round", "epoch", "blockBodyType", "leaderSignature", "miniBlockHeaders", "peerChanges", "metaBlockHashes", "txCount", "epochStartMetaHash", "receiptsHash", "chainID", "softwareVersion", "reserved", "gasLimit", "lastExecutionResult", "executionResults")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    PREVHASH_FIELD_NUMBER: _ClassVar[int]
    PREVRANDSEED_FIELD_NUMBER: _ClassVar[int]
    RANDSEED_FIELD_NUMBER: _ClassVar[int]
    SHARDID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPMS_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BLOCKBODYTYPE_FIELD_NUMBER: _ClassVar[int]
    LEADERSIGNATURE_FIELD_NUMBER: _ClassVar[int]
    MINIBLOCKHEADERS_FIELD_NUMBER: _ClassVar[int]
    PEERCHANGES_FIELD_NUMBER: _ClassVar[int]
    METABLOCKHASHES_FIELD_NUMBER: _ClassVar[int]
    TXCOUNT_FIELD_NUMBER: _ClassVar[int]
    EPOCHSTARTMETAHASH_FIELD_NUMBER: _ClassVar[int]
    RECEIPTSHASH_FIELD_NUMBER: _ClassVar[int]
    CHAINID_FIELD_NUMBER: _ClassVar[int]
    SOFTWAREVERSION_FIELD_NUMBER: _ClassVar[int]
    RESERVED_FIELD_NUMBER: _ClassVar[int]
    GASLIMIT_FIELD_NUMBER: _ClassVar[int]
    LASTEXECUTIONRESULT_FIELD_NUMBER: _ClassVar[int]
    EXECUTIONRESULTS_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    prevHash: bytes
    prevRandSeed: bytes
    randSeed: bytes
    shardID: int
    timestampMs: int
    round: int
    epoch: int
    blockBodyType: BlockType
    leaderSignature: bytes
    miniBlockHeaders: _containers.RepeatedCompositeFieldContainer[MiniBlockHeader]
    peerChanges: _containers.RepeatedCompositeFieldContainer[PeerChange]
    metaBlockHashes: _containers.RepeatedScalarFieldContainer[bytes]
    txCount: int
    epochStartMetaHash: bytes
    receiptsHash: bytes
    chainID: bytes
    softwareVersion: bytes
    reserved: bytes
    gasLimit: int
    lastExecutionResult: ExecutionResultInfo
    executionResults: _containers.RepeatedCompositeFieldContainer[ExecutionResult]
    def __init__(self, nonce: _Optional[int] = ..., prevHash: _Optional[bytes] = ..., prevRandSeed: _Optional[bytes] = ..., randSeed: _Optional[bytes] = ..., shardID: _Optional[int] = ..., timestampMs: _Optional[int] = ..., round: _Optional[int] = ..., epoch: _Optional[int] = ..., blockBodyType: _Optional[_Union[BlockType, str]] = ..., leaderSignature: _Optional[bytes] = ..., miniBlockHeaders: _Optional[_Iterable[_Union[MiniBlockHeader, _Mapping]]] = ..., peerChanges: _Optional[_Iterable[_Union[PeerChange, _Mapping]]] = ..., metaBlockHashes: _Optional[_Iterable[bytes]] = ..., txCount: _Optional[int] = ..., epochStartMetaHash: _Optional[bytes] = ..., receiptsHash: _Optional[bytes] = ..., chainID: _Optional[bytes] = ..., softwareVersion: _Optional[bytes] = ..., reserved: _Optional[bytes] = ..., gasLimit: _Optional[int] = ..., lastExecutionResult: _Optional[_Union[ExecutionResultInfo, _Mapping]] = ..., executionResults: _Optional[_Iterable[_Union[ExecutionResult, _Mapping]]] = ...) -> None: ...

class BaseExecutionResult(_message.Message):
    __slots__ = ("headerHash", "headerNonce", "headerRound", "headerEpoch", "rootHash", "gasUsed")
    HEADERHASH_FIELD_NUMBER: _ClassVar[int]
    HEADERNONCE_FIELD_NUMBER: _ClassVar[int]
    HEADERROUND_FIELD_NUMBER: _ClassVar[int]
    HEADEREPOCH_FIELD_NUMBER: _ClassVar[int]
    ROOTHASH_FIELD_NUMBER: _ClassVar[int]
    GASUSED_FIELD_NUMBER: _ClassVar[int]
    headerHash: bytes
    headerNonce: int
    headerRound: int
    headerEpoch: int
    rootHash: bytes
    gasUsed: int
    def __init__(self, headerHash: _Optional[bytes] = ..., headerNonce: _Optional[int] = ..., headerRound: _Optional[int] = ..., headerEpoch: _Optional[int] = ..., rootHash: _Optional[bytes] = ..., gasUsed: _Optional[int] = ...) -> None: ...

class ExecutionResultInfo(_message.Message):
    __slots__ = ("notarizedInRound", "executionResult")
    NOTARIZEDINROUND_FIELD_NUMBER: _ClassVar[int]
    EXECUTIONRESULT_FIELD_NUMBER: _ClassVar[int]
    notarizedInRound: int
    executionResult: BaseExecutionResult
    def __init__(self, notarizedInRound: _Optional[int] = ..., executionResult: _Optional[_Union[BaseExecutionResult, _Mapping]] = ...) -> None: ...

class ExecutionResult(_message.Message):
    __slots__ = ("baseExecutionResult", "receiptsHash", "miniBlockHeaders", "developerFees", "accumulatedFees", "executedTxCount")
    BASEEXECUTIONRESULT_FIELD_NUMBER: _ClassVar[int]
    RECEIPTSHASH_FIELD_NUMBER: _ClassVar[int]
    MINIBLOCKHEADERS_FIELD_NUMBER: _ClassVar[int]
    DEVELOPERFEES_FIELD_NUMBER: _ClassVar[int]
    ACCUMULATEDFEES_FIELD_NUMBER: _ClassVar[int]
    EXECUTEDTXCOUNT_FIELD_NUMBER: _ClassVar[int]
    baseExecutionResult: BaseExecutionResult
    receiptsHash: bytes
    miniBlockHeaders: _containers.RepeatedCompositeFieldContainer[MiniBlockHeader]
    developerFees: bytes
    accumulatedFees: bytes
    executedTxCount: int
    def __init__(self, baseExecutionResult: _Optional[_Union[BaseExecutionResult, _Mapping]] = ..., receiptsHash: _Optional[bytes] = ..., miniBlockHeaders: _Optional[_Iterable[_Union[MiniBlockHeader, _Mapping]]] = ..., developerFees: _Optional[bytes] = ..., accumulatedFees: _Optional[bytes] = ..., executedTxCount: _Optional[int] = ...) -> None: ...

class MetaBlockV3(_message.Message):
    __slots__ = ("nonce", "epoch", "round", "timestampMs", "shardInfo", "peerInfo", "leaderSignature", "prevHash", "prevRandSeed", "randSeed", "miniBlockHeaders", "epochChangeProposed", "epochStart", "chainID", "softwareVersion", "reserved", "gasLimit", "txCount", "lastExecutionResult", "executionResults", "shardInfoProposal")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPMS_FIELD_NUMBER: _ClassVar[int]
    SHARDINFO_FIELD_NUMBER: _ClassVar[int]
    PEERINFO_FIELD_NUMBER: _ClassVar[int]
    LEADERSIGNATURE_FIELD_NUMBER: _ClassVar[int]
    PREVHASH_FIELD_NUMBER: _ClassVar[int]
    PREVRANDSEED_FIELD_NUMBER: _ClassVar[int]
    RANDSEED_FIELD_NUMBER: _ClassVar[int]
    MINIBLOCKHEADERS_FIELD_NUMBER: _ClassVar[int]
    EPOCHCHANGEPROPOSED_FIELD_NUMBER: _ClassVar[int]
    EPOCHSTART_FIELD_NUMBER: _ClassVar[int]
    CHAINID_FIELD_NUMBER: _ClassVar[int]
    SOFTWAREVERSION_FIELD_NUMBER: _ClassVar[int]
    RESERVED_FIELD_NUMBER: _ClassVar[int]
    GASLIMIT_FIELD_NUMBER: _ClassVar[int]
    TXCOUNT_FIELD_NUMBER: _ClassVar[int]
    LASTEXECUTIONRESULT_FIELD_NUMBER: _ClassVar[int]
    EXECUTIONRESULTS_FIELD_NUMBER: _ClassVar[int]
    SHARDINFOPROPOSAL_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    epoch: int
    round: int
    timestampMs: int
    shardInfo: _containers.RepeatedCompositeFieldContainer[ShardData]
    peerInfo: _containers.RepeatedCompositeFieldContainer[PeerData]
    leaderSignature: bytes
    prevHash: bytes
    prevRandSeed: bytes
    randSeed: bytes
    miniBlockHeaders: _containers.RepeatedCompositeFieldContainer[MiniBlockHeader]
    epochChangeProposed: bool
    epochStart: EpochStart
    chainID: bytes
    softwareVersion: bytes
    reserved: bytes
    gasLimit: int
    txCount: int
    lastExecutionResult: MetaExecutionResultInfo
    executionResults: _containers.RepeatedCompositeFieldContainer[MetaExecutionResult]
    shardInfoProposal: _containers.RepeatedCompositeFieldContainer[ShardDataProposal]
    def __init__(self, nonce: _Optional[int] = ..., epoch: _Optional[int] = ..., round: _Optional[int] = ..., timestampMs: _Optional[int] = ..., shardInfo: _Optional[_Iterable[_Union[ShardData, _Mapping]]] = ..., peerInfo: _Optional[_Iterable[_Union[PeerData, _Mapping]]] = ..., leaderSignature: _Optional[bytes] = ..., prevHash: _Optional[bytes] = ..., prevRandSeed: _Optional[bytes] = ..., randSeed: _Optional[bytes] = ..., miniBlockHeaders: _Optional[_Iterable[_Union[MiniBlockHeader, _Mapping]]] = ..., epochChangeProposed: bool = ..., epochStart: _Optional[_Union[EpochStart, _Mapping]] = ..., chainID: _Optional[bytes] = ..., softwareVersion: _Optional[bytes] = ..., reserved: _Optional[bytes] = ..., gasLimit: _Optional[int] = ..., txCount: _Optional[int] = ..., lastExecutionResult: _Optional[_Union[MetaExecutionResultInfo, _Mapping]] = ..., executionResults: _Optional[_Iterable[_Union[MetaExecutionResult, _Mapping]]] = ..., shardInfoProposal: _Optional[_Iterable[_Union[ShardDataProposal, _Mapping]]] = ...) -> None: ...

class BaseMetaExecutionResult(_message.Message):
    __slots__ = ("baseExecutionResult", "validatorStatsRootHash", "accumulatedFeesInEpoch", "devFeesInEpoch")
    BASEEXECUTIONRESULT_FIELD_NUMBER: _ClassVar[int]
    VALIDATORSTATSROOTHASH_FIELD_NUMBER: _ClassVar[int]
    ACCUMULATEDFEESINEPOCH_FIELD_NUMBER: _ClassVar[int]
    DEVFEESINEPOCH_FIELD_NUMBER: _ClassVar[int]
    baseExecutionResult: BaseExecutionResult
    validatorStatsRootHash: bytes
    accumulatedFeesInEpoch: bytes
    devFeesInEpoch: bytes
    def __init__(self, baseExecutionResult: _Optional[_Union[BaseExecutionResult, _Mapping]] = ..., validatorStatsRootHash: _Optional[bytes] = ..., accumulatedFeesInEpoch: _Optional[bytes] = ..., devFeesInEpoch: _Optional[bytes] = ...) -> None: ...

class MetaExecutionResultInfo(_message.Message):
    __slots__ = ("notarizedInRound", "executionResult")
    NOTARIZEDINROUND_FIELD_NUMBER: _ClassVar[int]
    EXECUTIONRESULT_FIELD_NUMBER: _ClassVar[int]
    notarizedInRound: int
    executionResult: BaseMetaExecutionResult
    def __init__(self, notarizedInRound: _Optional[int] = ..., executionResult: _Optional[_Union[BaseMetaExecutionResult, _Mapping]] = ...) -> None: ...

class MetaExecutionResult(_message.Message):
    __slots__ = ("executionResult", "miniBlockHeaders", "receiptsHash", "developerFees", "accumulatedFees", "executedTxCount")
    EXECUTIONRESULT_FIELD_NUMBER: _ClassVar[int]
    MINIBLOCKHEADERS_FIELD_NUMBER: _ClassVar[int]
    RECEIPTSHASH_FIELD_NUMBER: _ClassVar[int]
    DEVELOPERFEES_FIELD_NUMBER: _ClassVar[int]
    ACCUMULATEDFEES_FIELD_NUMBER: _ClassVar[int]
    EXECUTEDTXCOUNT_FIELD_NUMBER: _ClassVar[int]
    executionResult: BaseMetaExecutionResult
    miniBlockHeaders: _containers.RepeatedCompositeFieldContainer[MiniBlockHeader]
    receiptsHash: bytes
    developerFees: bytes
    accumulatedFees: bytes
    executedTxCount: int
    def __init__(self, executionResult: _Optional[_Union[BaseMetaExecutionResult, _Mapping]] = ..., miniBlockHeaders: _Optional[_Iterable[_Union[MiniBlockHeader, _Mapping]]] = ..., receiptsHash: _Optional[bytes] = ..., developerFees: _Optional[bytes] = ..., accumulatedFees: _Optional[bytes] = ..., executedTxCount: _Optional[int] = ...) -> None: ...

class ShardDataProposal(_message.Message):
    __slots__ = ("headerHash", "round", "nonce", "shardID", "epoch", "numPendingMiniBlocks")
    HEADERHASH_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    SHARDID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMPENDINGMINIBLOCKS_FIELD_NUMBER: _ClassVar[int]
    headerHash: bytes
    round: int
    nonce: int
    shardID: int
    epoch: int
    numPendingMiniBlocks: int
    def __init__(self, headerHash: _Optional[bytes] = ..., round: _Optional[int] = ..., nonce: _Optional[int] = ..., shardID: _Optional[int] = ..., epoch: _Optional[int] = ..., numPendingMiniBlocks: _Optional[int] = ...) -> None: ...

class MetaBlock(_message.Message):
    __slots__ = ("nonce", "epoch", "round", "timeStamp", "shardInfo", "peerInfo", "signature", "leaderSignature", "pubKeysBitmap", "prevHash", "prevRandSeed", "randSeed", "rootHash", "validatorStatsRootHash", "miniBlockHeaders", "receiptsHash", "epochStart", "chainID", "softwareVersion", "accumulatedFees", "accumulatedFeesInEpoch", "developerFees", "devFeesInEpoch", "txCount", "reserved")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    SHARDINFO_FIELD_NUMBER: _ClassVar[int]
    PEERINFO_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    LEADERSIGNATURE_FIELD_NUMBER: _ClassVar[int]
    PUBKEYSBITMAP_FIELD_NUMBER: _ClassVar[int]
    PREVHASH_FIELD_NUMBER: _ClassVar[int]
    PREVRANDSEED_FIELD_NUMBER: _ClassVar[int]
    RANDSEED_FIELD_NUMBER: _ClassVar[int]
    ROOTHASH_FIELD_NUMBER: _ClassVar[int]
    VALIDATORSTATSROOTHASH_FIELD_NUMBER: _ClassVar[int]
    MINIBLOCKHEADERS_FIELD_NUMBER: _ClassVar[int]
    RECEIPTSHASH_FIELD_NUMBER: _ClassVar[int]
    EPOCHSTART_FIELD_NUMBER: _ClassVar[int]
    CHAINID_FIELD_NUMBER: _ClassVar[int]
    SOFTWAREVERSION_FIELD_NUMBER: _ClassVar[int]
    ACCUMULATEDFEES_FIELD_NUMBER: _ClassVar[int]
    ACCUMULATEDFEESINEPOCH_FIELD_NUMBER: _ClassVar[int]
    DEVELOPERFEES_FIELD_NUMBER: _ClassVar[int]
    DEVFEESINEPOCH_FIELD_NUMBER: _ClassVar[int]
    TXCOUNT_FIELD_NUMBER: _ClassVar[int]
    RESERVED_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    epoch: int
    round: int
    timeStamp: int
    shardInfo: _containers.RepeatedCompositeFieldContainer[ShardData]
    peerInfo: _containers.RepeatedCompositeFieldContainer[PeerData]
    signature: bytes
    leaderSignature: bytes
    pubKeysBitmap: bytes
    prevHash: bytes
    prevRandSeed: bytes
    randSeed: bytes
    rootHash: bytes
    validatorStatsRootHash: bytes
    miniBlockHeaders: _containers.RepeatedCompositeFieldContainer[MiniBlockHeader]
    receiptsHash: bytes
    epochStart: EpochStart
    chainID: bytes
    softwareVersion: bytes
    accumulatedFees: bytes
    accumulatedFeesInEpoch: bytes
    developerFees: bytes
    devFeesInEpoch: bytes
    txCount: int
    reserved: bytes
    def __init__(self, nonce: _Optional[int] = ..., epoch: _Optional[int] = ..., round: _Optional[int] = ..., timeStamp: _Optional[int] = ..., shardInfo: _Optional[_Iterable[_Union[ShardData, _Mapping]]] = ..., peerInfo: _Optional[_Iterable[_Union[PeerData, _Mapping]]] = ..., signature: _Optional[bytes] = ..., leaderSignature: _Optional[bytes] = ..., pubKeysBitmap: _Optional[bytes] = ..., prevHash: _Optional[bytes] = ..., prevRandSeed: _Optional[bytes] = ..., randSeed: _Optional[bytes] = ..., rootHash: _Optional[bytes] = ..., validatorStatsRootHash: _Optional[bytes] = ..., miniBlockHeaders: _Optional[_Iterable[_Union[MiniBlockHeader, _Mapping]]] = ..., receiptsHash: _Optional[bytes] = ..., epochStart: _Optional[_Union[EpochStart, _Mapping]] = ..., chainID: _Optional[bytes] = ..., softwareVersion: _Optional[bytes] = ..., accumulatedFees: _Optional[bytes] = ..., accumulatedFeesInEpoch: _Optional[bytes] = ..., developerFees: _Optional[bytes] = ..., devFeesInEpoch: _Optional[bytes] = ..., txCount: _Optional[int] = ..., reserved: _Optional[bytes] = ...) -> None: ...

class ShardData(_message.Message):
    __slots__ = ("shardID", "headerHash", "shardMiniBlockHeaders", "prevRandSeed", "pubKeysBitmap", "signature", "txCount", "round", "prevHash", "nonce", "numPendingMiniBlocks", "accumulatedFees", "lastIncludedMetaNonce", "developerFees", "epoch")
    SHARDID_FIELD_NUMBER: _ClassVar[int]
    HEADERHASH_FIELD_NUMBER: _ClassVar[int]
    SHARDMINIBLOCKHEADERS_FIELD_NUMBER: _ClassVar[int]
    PREVRANDSEED_FIELD_NUMBER: _ClassVar[int]
    PUBKEYSBITMAP_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    TXCOUNT_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PREVHASH_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    NUMPENDINGMINIBLOCKS_FIELD_NUMBER: _ClassVar[int]
    ACCUMULATEDFEES_FIELD_NUMBER: _ClassVar[int]
    LASTINCLUDEDMETANONCE_FIELD_NUMBER: _ClassVar[int]
    DEVELOPERFEES_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    shardID: int
    headerHash: bytes
    shardMiniBlockHeaders: _containers.RepeatedCompositeFieldContainer[MiniBlockHeader]
    prevRandSeed: bytes
    pubKeysBitmap: bytes
    signature: bytes
    txCount: int
    round: int
    prevHash: bytes
    nonce: int
    numPendingMiniBlocks: int
    accumulatedFees: bytes
    lastIncludedMetaNonce: int
    developerFees: bytes
    epoch: int
    def __init__(self, shardID: _Optional[int] = ..., headerHash: _Optional[bytes] = ..., shardMiniBlockHeaders: _Optional[_Iterable[_Union[MiniBlockHeader, _Mapping]]] = ..., prevRandSeed: _Optional[bytes] = ..., pubKeysBitmap: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., txCount: _Optional[int] = ..., round: _Optional[int] = ..., prevHash: _Optional[bytes] = ..., nonce: _Optional[int] = ..., numPendingMiniBlocks: _Optional[int] = ..., accumulatedFees: _Optional[bytes] = ..., lastIncludedMetaNonce: _Optional[int] = ..., developerFees: _Optional[bytes] = ..., epoch: _Optional[int] = ...) -> None: ...

class PeerData(_message.Message):
    __slots__ = ("address", "publicKey", "action", "timeStamp", "valueChange")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PUBLICKEY_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    VALUECHANGE_FIELD_NUMBER: _ClassVar[int]
    address: bytes
    publicKey: bytes
    action: PeerAction
    timeStamp: int
    valueChange: bytes
    def __init__(self, address: _Optional[bytes] = ..., publicKey: _Optional[bytes] = ..., action: _Optional[_Union[PeerAction, str]] = ..., timeStamp: _Optional[int] = ..., valueChange: _Optional[bytes] = ...) -> None: ...

class EpochStart(_message.Message):
    __slots__ = ("lastFinalizedHeaders", "economics")
    LASTFINALIZEDHEADERS_FIELD_NUMBER: _ClassVar[int]
    ECONOMICS_FIELD_NUMBER: _ClassVar[int]
    lastFinalizedHeaders: _containers.RepeatedCompositeFieldContainer[EpochStartShardData]
    economics: Economics
    def __init__(self, lastFinalizedHeaders: _Optional[_Iterable[_Union[EpochStartShardData, _Mapping]]] = ..., economics: _Optional[_Union[Economics, _Mapping]] = ...) -> None: ...

class EpochStartShardData(_message.Message):
    __slots__ = ("shardID", "headerHash", "rootHash", "firstPendingMetaBlock", "lastFinishedMetaBlock", "pendingMiniBlockHeaders", "round", "nonce", "epoch", "scheduledRootHash")
    SHARDID_FIELD_NUMBER: _ClassVar[int]
    HEADERHASH_FIELD_NUMBER: _ClassVar[int]
    ROOTHASH_FIELD_NUMBER: _ClassVar[int]
    FIRSTPENDINGMETABLOCK_FIELD_NUMBER: _ClassVar[int]
    LASTFINISHEDMETABLOCK_FIELD_NUMBER: _ClassVar[int]
    PENDINGMINIBLOCKHEADERS_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SCHEDULEDROOTHASH_FIELD_NUMBER: _ClassVar[int]
    shardID: int
    headerHash: bytes
    rootHash: bytes
    firstPendingMetaBlock: bytes
    lastFinishedMetaBlock: bytes
    pendingMiniBlockHeaders: _containers.RepeatedCompositeFieldContainer[MiniBlockHeader]
    round: int
    nonce: int
    epoch: int
    scheduledRootHash: bytes
    def __init__(self, shardID: _Optional[int] = ..., headerHash: _Optional[bytes] = ..., rootHash: _Optional[bytes] = ..., firstPendingMetaBlock: _Optional[bytes] = ..., lastFinishedMetaBlock: _Optional[bytes] = ..., pendingMiniBlockHeaders: _Optional[_Iterable[_Union[MiniBlockHeader, _Mapping]]] = ..., round: _Optional[int] = ..., nonce: _Optional[int] = ..., epoch: _Optional[int] = ..., scheduledRootHash: _Optional[bytes] = ...) -> None: ...

class Economics(_message.Message):
    __slots__ = ("totalSupply", "totalToDistribute", "totalNewlyMinted", "rewardsPerBlock", "rewardsForProtocolSustainability", "nodePrice", "prevEpochStartRound", "prevEpochStartHash")
    TOTALSUPPLY_FIELD_NUMBER: _ClassVar[int]
    TOTALTODISTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    TOTALNEWLYMINTED_FIELD_NUMBER: _ClassVar[int]
    REWARDSPERBLOCK_FIELD_NUMBER: _ClassVar[int]
    REWARDSFORPROTOCOLSUSTAINABILITY_FIELD_NUMBER: _ClassVar[int]
    NODEPRICE_FIELD_NUMBER: _ClassVar[int]
    PREVEPOCHSTARTROUND_FIELD_NUMBER: _ClassVar[int]
    PREVEPOCHSTARTHASH_FIELD_NUMBER: _ClassVar[int]
    totalSupply: bytes
    totalToDistribute: bytes
    totalNewlyMinted: bytes
    rewardsPerBlock: bytes
    rewardsForProtocolSustainability: bytes
    nodePrice: bytes
    prevEpochStartRound: int
    prevEpochStartHash: bytes
    def __init__(self, totalSupply: _Optional[bytes] = ..., totalToDistribute: _Optional[bytes] = ..., totalNewlyMinted: _Optional[bytes] = ..., rewardsPerBlock: _Optional[bytes] = ..., rewardsForProtocolSustainability: _Optional[bytes] = ..., nodePrice: _Optional[bytes] = ..., prevEpochStartRound: _Optional[int] = ..., prevEpochStartHash: _Optional[bytes] = ...) -> None: ...

class FinalizedBlock(_message.Message):
    __slots__ = ("shardID", "headerHash")
    SHARDID_FIELD_NUMBER: _ClassVar[int]
    HEADERHASH_FIELD_NUMBER: _ClassVar[int]
    shardID: int
    headerHash: bytes
    def __init__(self, shardID: _Optional[int] = ..., headerHash: _Optional[bytes] = ...) -> None: ...

class Accounts(_message.Message):
    __slots__ = ("shardID", "blockTimestamp", "alteredAccounts", "blockTimestampMs")
    class AlteredAccountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: AlteredAccount
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[AlteredAccount, _Mapping]] = ...) -> None: ...
    SHARDID_FIELD_NUMBER: _ClassVar[int]
    BLOCKTIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    ALTEREDACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    BLOCKTIMESTAMPMS_FIELD_NUMBER: _ClassVar[int]
    shardID: int
    blockTimestamp: int
    alteredAccounts: _containers.MessageMap[str, AlteredAccount]
    blockTimestampMs: int
    def __init__(self, shardID: _Optional[int] = ..., blockTimestamp: _Optional[int] = ..., alteredAccounts: _Optional[_Mapping[str, AlteredAccount]] = ..., blockTimestampMs: _Optional[int] = ...) -> None: ...

class RoundInfo(_message.Message):
    __slots__ = ("round", "signersIndexes", "blockWasProposed", "shardId", "epoch", "timestamp", "timestampMs")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    SIGNERSINDEXES_FIELD_NUMBER: _ClassVar[int]
    BLOCKWASPROPOSED_FIELD_NUMBER: _ClassVar[int]
    SHARDID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPMS_FIELD_NUMBER: _ClassVar[int]
    round: int
    signersIndexes: _containers.RepeatedScalarFieldContainer[int]
    blockWasProposed: bool
    shardId: int
    epoch: int
    timestamp: int
    timestampMs: int
    def __init__(self, round: _Optional[int] = ..., signersIndexes: _Optional[_Iterable[int]] = ..., blockWasProposed: bool = ..., shardId: _Optional[int] = ..., epoch: _Optional[int] = ..., timestamp: _Optional[int] = ..., timestampMs: _Optional[int] = ...) -> None: ...

class RoundsInfo(_message.Message):
    __slots__ = ("shardID", "roundsInfo")
    SHARDID_FIELD_NUMBER: _ClassVar[int]
    ROUNDSINFO_FIELD_NUMBER: _ClassVar[int]
    shardID: int
    roundsInfo: _containers.RepeatedCompositeFieldContainer[RoundInfo]
    def __init__(self, shardID: _Optional[int] = ..., roundsInfo: _Optional[_Iterable[_Union[RoundInfo, _Mapping]]] = ...) -> None: ...

class PubKeys(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, keys: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ValidatorsPubKeys(_message.Message):
    __slots__ = ("shardID", "validatorsPubKeys", "epoch")
    class ValidatorsPubKeysEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: PubKeys
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[PubKeys, _Mapping]] = ...) -> None: ...
    SHARDID_FIELD_NUMBER: _ClassVar[int]
    VALIDATORSPUBKEYS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    shardID: int
    validatorsPubKeys: _containers.MessageMap[int, PubKeys]
    epoch: int
    def __init__(self, shardID: _Optional[int] = ..., validatorsPubKeys: _Optional[_Mapping[int, PubKeys]] = ..., epoch: _Optional[int] = ...) -> None: ...

class ValidatorRatingInfo(_message.Message):
    __slots__ = ("publicKey", "rating")
    PUBLICKEY_FIELD_NUMBER: _ClassVar[int]
    RATING_FIELD_NUMBER: _ClassVar[int]
    publicKey: str
    rating: float
    def __init__(self, publicKey: _Optional[str] = ..., rating: _Optional[float] = ...) -> None: ...

class ValidatorsRating(_message.Message):
    __slots__ = ("shardID", "epoch", "validatorsRatingInfo")
    SHARDID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VALIDATORSRATINGINFO_FIELD_NUMBER: _ClassVar[int]
    shardID: int
    epoch: int
    validatorsRatingInfo: _containers.RepeatedCompositeFieldContainer[ValidatorRatingInfo]
    def __init__(self, shardID: _Optional[int] = ..., epoch: _Optional[int] = ..., validatorsRatingInfo: _Optional[_Iterable[_Union[ValidatorRatingInfo, _Mapping]]] = ...) -> None: ...

class OutportConfig(_message.Message):
    __slots__ = ("shardID", "isInImportDBMode")
    SHARDID_FIELD_NUMBER: _ClassVar[int]
    ISINIMPORTDBMODE_FIELD_NUMBER: _ClassVar[int]
    shardID: int
    isInImportDBMode: bool
    def __init__(self, shardID: _Optional[int] = ..., isInImportDBMode: bool = ...) -> None: ...

class Shard(_message.Message):
    __slots__ = ("shardID",)
    SHARDID_FIELD_NUMBER: _ClassVar[int]
    shardID: int
    def __init__(self, shardID: _Optional[int] = ...) -> None: ...
