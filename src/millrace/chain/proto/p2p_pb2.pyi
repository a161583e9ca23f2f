from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Batch(_message.Message):
    __slots__ = ("data", "reference", "chunkIndex", "maxChunks")
    DATA_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    CHUNKINDEX_FIELD_NUMBER: _ClassVar[int]
    MAXCHUNKS_FIELD_NUMBER: _ClassVar[int]
    data: _containers.RepeatedScalarFieldContainer[bytes]
    reference: bytes
    chunkIndex: int
    maxChunks: int
    def __init__(self, data: _Optional[_Iterable[bytes]] = ..., reference: _Optional[bytes] = ..., chunkIndex: _Optional[int] = ..., maxChunks: _Optional[int] = ...) -> None: ...

class TopicMessage(_message.Message):
    __slots__ = ("Version", "Payload", "Timestamp", "Pk", "SignatureOnPid")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    PK_FIELD_NUMBER: _ClassVar[int]
    SIGNATUREONPID_FIELD_NUMBER: _ClassVar[int]
    Version: int
    Payload: bytes
    Timestamp: int
    Pk: bytes
    SignatureOnPid: bytes
    def __init__(self, Version: _Optional[int] = ..., Payload: _Optional[bytes] = ..., Timestamp: _Optional[int] = ..., Pk: _Optional[bytes] = ..., SignatureOnPid: _Optional[bytes] = ...) -> None: ...

class Payload(_message.Message):
    __slots__ = ("Timestamp", "HardforkMessage")
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    HARDFORKMESSAGE_FIELD_NUMBER: _ClassVar[int]
    Timestamp: int
    HardforkMessage: str
    def __init__(self, Timestamp: _Optional[int] = ..., HardforkMessage: _Optional[str] = ...) -> None: ...

class HeartbeatV2(_message.Message):
    __slots__ = ("Payload", "VersionNumber", "NodeDisplayName", "Identity", "Nonce", "PeerSubType", "Pubkey", "NumTrieNodesSynced")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    VERSIONNUMBER_FIELD_NUMBER: _ClassVar[int]
    NODEDISPLAYNAME_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    PEERSUBTYPE_FIELD_NUMBER: _ClassVar[int]
    PUBKEY_FIELD_NUMBER: _ClassVar[int]
    NUMTRIENODESSYNCED_FIELD_NUMBER: _ClassVar[int]
    Payload: bytes
    VersionNumber: str
    NodeDisplayName: str
    Identity: str
    Nonce: int
    PeerSubType: int
    Pubkey: bytes
    NumTrieNodesSynced: int
    def __init__(self, Payload: _Optional[bytes] = ..., VersionNumber: _Optional[str] = ..., NodeDisplayName: _Optional[str] = ..., Identity: _Optional[str] = ..., Nonce: _Optional[int] = ..., PeerSubType: _Optional[int] = ..., Pubkey: _Optional[bytes] = ..., NumTrieNodesSynced: _Optional[int] = ...) -> None: ...

class PeerAuthentication(_message.Message):
    __slots__ = ("Pubkey", "Signature", "Pid", "Payload", "PayloadSignature")
    PUBKEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PAYLOADSIGNATURE_FIELD_NUMBER: _ClassVar[int]
    Pubkey: bytes
    Signature: bytes
    Pid: bytes
    Payload: bytes
    PayloadSignature: bytes
    def __init__(self, Pubkey: _Optional[bytes] = ..., Signature: _Optional[bytes] = ..., Pid: _Optional[bytes] = ..., Payload: _Optional[bytes] = ..., PayloadSignature: _Optional[bytes] = ...) -> None: ...

class PeerShard(_message.Message):
    __slots__ = ("shardId",)
    SHARDID_FIELD_NUMBER: _ClassVar[int]
    shardId: str
    def __init__(self, shardId: _Optional[str] = ...) -> None: ...
