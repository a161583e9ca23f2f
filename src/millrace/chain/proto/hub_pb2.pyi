from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubscribeEvent(_message.Message):
    __slots__ = ("event_type", "address", "identifier", "topics", "subscription_id", "resume_after", "resume_id", "handled", "resume_journal")
    EVENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    IDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    RESUME_AFTER_FIELD_NUMBER: _ClassVar[int]
    RESUME_ID_FIELD_NUMBER: _ClassVar[int]
    HANDLED_FIELD_NUMBER: _ClassVar[int]
    RESUME_JOURNAL_FIELD_NUMBER: _ClassVar[int]
    event_type: str
    address: str
    identifier: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    subscription_id: str
    resume_after: int
    resume_id: str
    handled: _containers.RepeatedCompositeFieldContainer[Handled]
    resume_journal: str
    def __init__(self, event_type: _Optional[str] = ..., address: _Optional[str] = ..., identifier: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., subscription_id: _Optional[str] = ..., resume_after: _Optional[int] = ..., resume_id: _Optional[str] = ..., handled: _Optional[_Iterable[_Union[Handled, _Mapping]]] = ..., resume_journal: _Optional[str] = ...) -> None: ...

class Handled(_message.Message):
    __slots__ = ("id", "since")
    ID_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    id: str
    since: int
    def __init__(self, id: _Optional[str] = ..., since: _Optional[int] = ...) -> None: ...

class SubscribeReply(_message.Message):
    __slots__ = ("subscription_id", "ok", "reason", "head", "oldest", "journal")
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    subscription_id: str
    ok: bool
    reason: str
    head: int
    oldest: int
    journal: str
    def __init__(self, subscription_id: _Optional[str] = ..., ok: bool = ..., reason: _Optional[str] = ..., head: _Optional[int] = ..., oldest: _Optional[int] = ..., journal: _Optional[str] = ...) -> None: ...

class Gap(_message.Message):
    __slots__ = ("first", "last", "resumes_after", "uncounted")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    RESUMES_AFTER_FIELD_NUMBER: _ClassVar[int]
    UNCOUNTED_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    resumes_after: int
    uncounted: bool
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ..., resumes_after: _Optional[int] = ..., uncounted: bool = ...) -> None: ...
