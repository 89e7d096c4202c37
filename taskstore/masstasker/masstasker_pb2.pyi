import datetime

from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Task(_message.Message):
    __slots__ = ("id", "group", "data", "labels", "not_before", "error")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: int
    group: str
    data: _any_pb2.Any
    labels: _containers.ScalarMap[str, str]
    not_before: _timestamp_pb2.Timestamp
    error: str
    def __init__(self, id: _Optional[int] = ..., group: _Optional[str] = ..., data: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., not_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., error: _Optional[str] = ...) -> None: ...

class TaskRef(_message.Message):
    __slots__ = ("id", "selector", "group")
    ID_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    id: int
    selector: LabelSelector
    group: str
    def __init__(self, id: _Optional[int] = ..., selector: _Optional[_Union[LabelSelector, _Mapping]] = ..., group: _Optional[str] = ...) -> None: ...

class LabelSelector(_message.Message):
    __slots__ = ("labels",)
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LABELS_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.ScalarMap[str, str]
    def __init__(self, labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class UpdateRequest(_message.Message):
    __slots__ = ("created", "deleted", "predicates")
    CREATED_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    PREDICATES_FIELD_NUMBER: _ClassVar[int]
    created: _containers.RepeatedCompositeFieldContainer[Task]
    deleted: _containers.RepeatedCompositeFieldContainer[TaskRef]
    predicates: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, created: _Optional[_Iterable[_Union[Task, _Mapping]]] = ..., deleted: _Optional[_Iterable[_Union[TaskRef, _Mapping]]] = ..., predicates: _Optional[_Iterable[int]] = ...) -> None: ...

class UpdateResponse(_message.Message):
    __slots__ = ("created_ids",)
    CREATED_IDS_FIELD_NUMBER: _ClassVar[int]
    created_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, created_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class QueryRequest(_message.Message):
    __slots__ = ("group", "own_for", "now", "wait")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OWN_FOR_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    group: str
    own_for: _duration_pb2.Duration
    now: _timestamp_pb2.Timestamp
    wait: bool
    def __init__(self, group: _Optional[str] = ..., own_for: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., now: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., wait: _Optional[bool] = ...) -> None: ...

class QueryResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: Task
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ...) -> None: ...

class BulkSetRequest(_message.Message):
    __slots__ = ("ref", "prototype")
    REF_FIELD_NUMBER: _ClassVar[int]
    PROTOTYPE_FIELD_NUMBER: _ClassVar[int]
    ref: _containers.RepeatedCompositeFieldContainer[TaskRef]
    prototype: Task
    def __init__(self, ref: _Optional[_Iterable[_Union[TaskRef, _Mapping]]] = ..., prototype: _Optional[_Union[Task, _Mapping]] = ...) -> None: ...

class BulkSetResponse(_message.Message):
    __slots__ = ("num_updated",)
    NUM_UPDATED_FIELD_NUMBER: _ClassVar[int]
    num_updated: int
    def __init__(self, num_updated: _Optional[int] = ...) -> None: ...

class DebugRequest(_message.Message):
    __slots__ = ("group", "limit")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    group: str
    limit: int
    def __init__(self, group: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class DebugResponse(_message.Message):
    __slots__ = ("tasks", "num_tasks")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    NUM_TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[Task]
    num_tasks: int
    def __init__(self, tasks: _Optional[_Iterable[_Union[Task, _Mapping]]] = ..., num_tasks: _Optional[int] = ...) -> None: ...
