from iop.proto import run_pb2 as _run_pb2
from iop.proto import node_pb2 as _node_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNKNOWN: _ClassVar[Verdict]
    VERDICT_CONTINUE: _ClassVar[Verdict]
    VERDICT_FENCED: _ClassVar[Verdict]
    VERDICT_CANCEL: _ClassVar[Verdict]
VERDICT_UNKNOWN: Verdict
VERDICT_CONTINUE: Verdict
VERDICT_FENCED: Verdict
VERDICT_CANCEL: Verdict

class Hello(_message.Message):
    __slots__ = ("peer_id", "token", "instance", "protocol", "labels", "version")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PEER_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    peer_id: str
    token: str
    instance: str
    protocol: int
    labels: _containers.ScalarMap[str, str]
    version: str
    def __init__(self, peer_id: _Optional[str] = ..., token: _Optional[str] = ..., instance: _Optional[str] = ..., protocol: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ..., version: _Optional[str] = ...) -> None: ...

class LinkLimits(_message.Message):
    __slots__ = ("frame_bytes", "part_bytes", "transfer_bytes", "run_window_bytes", "link_window_bytes", "ping_after_s", "dead_after_s")
    FRAME_BYTES_FIELD_NUMBER: _ClassVar[int]
    PART_BYTES_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_BYTES_FIELD_NUMBER: _ClassVar[int]
    RUN_WINDOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    LINK_WINDOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    PING_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    DEAD_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    frame_bytes: int
    part_bytes: int
    transfer_bytes: int
    run_window_bytes: int
    link_window_bytes: int
    ping_after_s: float
    dead_after_s: float
    def __init__(self, frame_bytes: _Optional[int] = ..., part_bytes: _Optional[int] = ..., transfer_bytes: _Optional[int] = ..., run_window_bytes: _Optional[int] = ..., link_window_bytes: _Optional[int] = ..., ping_after_s: _Optional[float] = ..., dead_after_s: _Optional[float] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("peer_id", "epoch", "limits", "protocol")
    PEER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    peer_id: str
    epoch: int
    limits: LinkLimits
    protocol: int
    def __init__(self, peer_id: _Optional[str] = ..., epoch: _Optional[int] = ..., limits: _Optional[_Union[LinkLimits, _Mapping]] = ..., protocol: _Optional[int] = ...) -> None: ...

class Reject(_message.Message):
    __slots__ = ("code", "message", "retry_after_s")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    retry_after_s: float
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., retry_after_s: _Optional[float] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    def __init__(self, nonce: _Optional[int] = ...) -> None: ...

class Pong(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    def __init__(self, nonce: _Optional[int] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class RunReport(_message.Message):
    __slots__ = ("run_id", "attempt", "first_unacked", "last_spooled", "open")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FIRST_UNACKED_FIELD_NUMBER: _ClassVar[int]
    LAST_SPOOLED_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    attempt: int
    first_unacked: int
    last_spooled: int
    open: bool
    def __init__(self, run_id: _Optional[str] = ..., attempt: _Optional[int] = ..., first_unacked: _Optional[int] = ..., last_spooled: _Optional[int] = ..., open: _Optional[bool] = ...) -> None: ...

class RunsReport(_message.Message):
    __slots__ = ("runs", "last")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[RunReport]
    last: bool
    def __init__(self, runs: _Optional[_Iterable[_Union[RunReport, _Mapping]]] = ..., last: _Optional[bool] = ...) -> None: ...

class RunVerdict(_message.Message):
    __slots__ = ("run_id", "attempt", "committed_seq", "verdict")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_SEQ_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    attempt: int
    committed_seq: int
    verdict: Verdict
    def __init__(self, run_id: _Optional[str] = ..., attempt: _Optional[int] = ..., committed_seq: _Optional[int] = ..., verdict: _Optional[_Union[Verdict, str]] = ...) -> None: ...

class Verdicts(_message.Message):
    __slots__ = ("runs", "last")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[RunVerdict]
    last: bool
    def __init__(self, runs: _Optional[_Iterable[_Union[RunVerdict, _Mapping]]] = ..., last: _Optional[bool] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("transfer_id", "index", "last", "data")
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    transfer_id: int
    index: int
    last: bool
    data: bytes
    def __init__(self, transfer_id: _Optional[int] = ..., index: _Optional[int] = ..., last: _Optional[bool] = ..., data: _Optional[bytes] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("hello", "welcome", "reject", "ping", "pong", "goodbye", "part", "runs_report", "verdicts", "run_request", "run_accepted", "run_rejected", "cancel_request", "run_input", "event_batch", "event_ack", "resend", "node_command_request", "node_command_response", "node_config_payload", "config_applied", "node_status", "edge_node_event", "check")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    REJECT_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    RUNS_REPORT_FIELD_NUMBER: _ClassVar[int]
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    RUN_REQUEST_FIELD_NUMBER: _ClassVar[int]
    RUN_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    RUN_REJECTED_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REQUEST_FIELD_NUMBER: _ClassVar[int]
    RUN_INPUT_FIELD_NUMBER: _ClassVar[int]
    EVENT_BATCH_FIELD_NUMBER: _ClassVar[int]
    EVENT_ACK_FIELD_NUMBER: _ClassVar[int]
    RESEND_FIELD_NUMBER: _ClassVar[int]
    NODE_COMMAND_REQUEST_FIELD_NUMBER: _ClassVar[int]
    NODE_COMMAND_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    NODE_CONFIG_PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CONFIG_APPLIED_FIELD_NUMBER: _ClassVar[int]
    NODE_STATUS_FIELD_NUMBER: _ClassVar[int]
    EDGE_NODE_EVENT_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    welcome: Welcome
    reject: Reject
    ping: Ping
    pong: Pong
    goodbye: Goodbye
    part: Part
    runs_report: RunsReport
    verdicts: Verdicts
    run_request: _run_pb2.RunRequest
    run_accepted: _run_pb2.RunAccepted
    run_rejected: _run_pb2.RunRejected
    cancel_request: _run_pb2.CancelRequest
    run_input: _run_pb2.RunInput
    event_batch: _run_pb2.EventBatch
    event_ack: _run_pb2.EventAck
    resend: _run_pb2.Resend
    node_command_request: _node_pb2.NodeCommandRequest
    node_command_response: _node_pb2.NodeCommandResponse
    node_config_payload: _node_pb2.NodeConfigPayload
    config_applied: _node_pb2.ConfigApplied
    node_status: _node_pb2.NodeStatus
    edge_node_event: _node_pb2.EdgeNodeEvent
    check: int
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., reject: _Optional[_Union[Reject, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., pong: _Optional[_Union[Pong, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., part: _Optional[_Union[Part, _Mapping]] = ..., runs_report: _Optional[_Union[RunsReport, _Mapping]] = ..., verdicts: _Optional[_Union[Verdicts, _Mapping]] = ..., run_request: _Optional[_Union[_run_pb2.RunRequest, _Mapping]] = ..., run_accepted: _Optional[_Union[_run_pb2.RunAccepted, _Mapping]] = ..., run_rejected: _Optional[_Union[_run_pb2.RunRejected, _Mapping]] = ..., cancel_request: _Optional[_Union[_run_pb2.CancelRequest, _Mapping]] = ..., run_input: _Optional[_Union[_run_pb2.RunInput, _Mapping]] = ..., event_batch: _Optional[_Union[_run_pb2.EventBatch, _Mapping]] = ..., event_ack: _Optional[_Union[_run_pb2.EventAck, _Mapping]] = ..., resend: _Optional[_Union[_run_pb2.Resend, _Mapping]] = ..., node_command_request: _Optional[_Union[_node_pb2.NodeCommandRequest, _Mapping]] = ..., node_command_response: _Optional[_Union[_node_pb2.NodeCommandResponse, _Mapping]] = ..., node_config_payload: _Optional[_Union[_node_pb2.NodeConfigPayload, _Mapping]] = ..., config_applied: _Optional[_Union[_node_pb2.ConfigApplied, _Mapping]] = ..., node_status: _Optional[_Union[_node_pb2.NodeStatus, _Mapping]] = ..., edge_node_event: _Optional[_Union[_node_pb2.EdgeNodeEvent, _Mapping]] = ..., check: _Optional[int] = ...) -> None: ...
