from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ActionType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    Read: _ClassVar[ActionType]
    Write: _ClassVar[ActionType]
Read: ActionType
Write: ActionType

class DataTrieChange(_message.Message):
    __slots__ = ("type", "key", "val", "version", "operation")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VAL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    type: ActionType
    key: bytes
    val: bytes
    version: int
    operation: int
    def __init__(self, type: _Optional[_Union[ActionType, str]] = ..., key: _Optional[bytes] = ..., val: _Optional[bytes] = ..., version: _Optional[int] = ..., operation: _Optional[int] = ...) -> None: ...

class StateAccess(_message.Message):
    __slots__ = ("type", "index", "txHash", "mainTrieKey", "mainTrieVal", "operation", "dataTrieChanges", "accountChanges")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TXHASH_FIELD_NUMBER: _ClassVar[int]
    MAINTRIEKEY_FIELD_NUMBER: _ClassVar[int]
    MAINTRIEVAL_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    DATATRIECHANGES_FIELD_NUMBER: _ClassVar[int]
    ACCOUNTCHANGES_FIELD_NUMBER: _ClassVar[int]
    type: ActionType
    index: int
    txHash: bytes
    mainTrieKey: bytes
    mainTrieVal: bytes
    operation: int
    dataTrieChanges: _containers.RepeatedCompositeFieldContainer[DataTrieChange]
    accountChanges: int
    def __init__(self, type: _Optional[_Union[ActionType, str]] = ..., index: _Optional[int] = ..., txHash: _Optional[bytes] = ..., mainTrieKey: _Optional[bytes] = ..., mainTrieVal: _Optional[bytes] = ..., operation: _Optional[int] = ..., dataTrieChanges: _Optional[_Iterable[_Union[DataTrieChange, _Mapping]]] = ..., accountChanges: _Optional[int] = ...) -> None: ...

class StateAccesses(_message.Message):
    __slots__ = ("stateAccess",)
    STATEACCESS_FIELD_NUMBER: _ClassVar[int]
    stateAccess: _containers.RepeatedCompositeFieldContainer[StateAccess]
    def __init__(self, stateAccess: _Optional[_Iterable[_Union[StateAccess, _Mapping]]] = ...) -> None: ...

class StateAccessesEntry(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: StateAccesses
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[_Union[StateAccesses, _Mapping]] = ...) -> None: ...

class StateAccessesForBlock(_message.Message):
    __slots__ = ("stateAccesses",)
    STATEACCESSES_FIELD_NUMBER: _ClassVar[int]
    stateAccesses: _containers.RepeatedCompositeFieldContainer[StateAccessesEntry]
    def __init__(self, stateAccesses: _Optional[_Iterable[_Union[StateAccessesEntry, _Mapping]]] = ...) -> None: ...

class StateAccessesForBlockEntry(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: StateAccessesForBlock
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[_Union[StateAccessesForBlock, _Mapping]] = ...) -> None: ...
