from iop.proto import run_pb2 as _run_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SpoolEntry(_message.Message):
    __slots__ = ("run_id", "attempt", "batches", "mark", "ended", "last_seq", "bytes", "digest", "dropped", "accepted_us", "started_us", "output_us", "is_program", "stopped")
    class DroppedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_US_FIELD_NUMBER: _ClassVar[int]
    STARTED_US_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_US_FIELD_NUMBER: _ClassVar[int]
    IS_PROGRAM_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    attempt: int
    batches: _containers.RepeatedScalarFieldContainer[bytes]
    mark: bytes
    ended: bool
    last_seq: int
    bytes: int
    digest: bytes
    dropped: _containers.ScalarMap[int, int]
    accepted_us: int
    started_us: int
    output_us: int
    is_program: bool
    stopped: _run_pb2.Outcome
    def __init__(self, run_id: _Optional[str] = ..., attempt: _Optional[int] = ..., batches: _Optional[_Iterable[bytes]] = ..., mark: _Optional[bytes] = ..., ended: _Optional[bool] = ..., last_seq: _Optional[int] = ..., bytes: _Optional[int] = ..., digest: _Optional[bytes] = ..., dropped: _Optional[_Mapping[int, int]] = ..., accepted_us: _Optional[int] = ..., started_us: _Optional[int] = ..., output_us: _Optional[int] = ..., is_program: _Optional[bool] = ..., stopped: _Optional[_Union[_run_pb2.Outcome, _Mapping]] = ...) -> None: ...
