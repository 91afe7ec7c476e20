from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Channel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHANNEL_TEXT: _ClassVar[Channel]
    CHANNEL_REASONING: _ClassVar[Channel]
    CHANNEL_STDOUT: _ClassVar[Channel]
    CHANNEL_STDERR: _ClassVar[Channel]
CHANNEL_TEXT: Channel
CHANNEL_REASONING: Channel
CHANNEL_STDOUT: Channel
CHANNEL_STDERR: Channel

class Source(_message.Message):
    __slots__ = ("face", "principal", "request_id")
    FACE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    face: str
    principal: str
    request_id: str
    def __init__(self, face: _Optional[str] = ..., principal: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("queue_s", "run_s", "first_output_s", "silence_s", "output_bytes", "start_s")
    QUEUE_S_FIELD_NUMBER: _ClassVar[int]
    RUN_S_FIELD_NUMBER: _ClassVar[int]
    FIRST_OUTPUT_S_FIELD_NUMBER: _ClassVar[int]
    SILENCE_S_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    START_S_FIELD_NUMBER: _ClassVar[int]
    queue_s: float
    run_s: float
    first_output_s: float
    silence_s: float
    output_bytes: int
    start_s: float
    def __init__(self, queue_s: _Optional[float] = ..., run_s: _Optional[float] = ..., first_output_s: _Optional[float] = ..., silence_s: _Optional[float] = ..., output_bytes: _Optional[int] = ..., start_s: _Optional[float] = ...) -> None: ...

class RunRequest(_message.Message):
    __slots__ = ("run_id", "attempt", "adapter", "target", "prompt", "messages", "body", "api", "session_id", "limits", "labels", "source", "retry_safe", "priority", "created_us", "detach_s", "content_type", "affinity", "headers", "query")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    API_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    RETRY_SAFE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    CREATED_US_FIELD_NUMBER: _ClassVar[int]
    DETACH_S_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    AFFINITY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    attempt: int
    adapter: str
    target: str
    prompt: str
    messages: bytes
    body: bytes
    api: str
    session_id: str
    limits: Limits
    labels: _containers.ScalarMap[str, str]
    source: Source
    retry_safe: bool
    priority: int
    created_us: int
    detach_s: float
    content_type: str
    affinity: str
    headers: _containers.ScalarMap[str, str]
    query: str
    def __init__(self, run_id: _Optional[str] = ..., attempt: _Optional[int] = ..., adapter: _Optional[str] = ..., target: _Optional[str] = ..., prompt: _Optional[str] = ..., messages: _Optional[bytes] = ..., body: _Optional[bytes] = ..., api: _Optional[str] = ..., session_id: _Optional[str] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., source: _Optional[_Union[Source, _Mapping]] = ..., retry_safe: _Optional[bool] = ..., priority: _Optional[int] = ..., created_us: _Optional[int] = ..., detach_s: _Optional[float] = ..., content_type: _Optional[str] = ..., affinity: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., query: _Optional[str] = ...) -> None: ...

class RunAccepted(_message.Message):
    __slots__ = ("run_id", "attempt")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    attempt: int
    def __init__(self, run_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class RunRejected(_message.Message):
    __slots__ = ("run_id", "attempt", "code", "message", "retryable")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    attempt: int
    code: str
    message: str
    retryable: bool
    def __init__(self, run_id: _Optional[str] = ..., attempt: _Optional[int] = ..., code: _Optional[str] = ..., message: _Optional[str] = ..., retryable: _Optional[bool] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("run_id", "reason", "source")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    reason: str
    source: Source
    def __init__(self, run_id: _Optional[str] = ..., reason: _Optional[str] = ..., source: _Optional[_Union[Source, _Mapping]] = ...) -> None: ...

class RunInput(_message.Message):
    __slots__ = ("run_id", "data", "end")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    data: bytes
    end: bool
    def __init__(self, run_id: _Optional[str] = ..., data: _Optional[bytes] = ..., end: _Optional[bool] = ...) -> None: ...

class Started(_message.Message):
    __slots__ = ("adapter", "target", "detail", "pid", "policy_mode", "response")
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    POLICY_MODE_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    adapter: str
    target: str
    detail: str
    pid: int
    policy_mode: str
    response: bytes
    def __init__(self, adapter: _Optional[str] = ..., target: _Optional[str] = ..., detail: _Optional[str] = ..., pid: _Optional[int] = ..., policy_mode: _Optional[str] = ..., response: _Optional[bytes] = ...) -> None: ...

class ToolCall(_message.Message):
    __slots__ = ("call_id", "name", "arguments")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    name: str
    arguments: bytes
    def __init__(self, call_id: _Optional[str] = ..., name: _Optional[str] = ..., arguments: _Optional[bytes] = ...) -> None: ...

class ToolResult(_message.Message):
    __slots__ = ("call_id", "is_error", "text")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    IS_ERROR_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    is_error: bool
    text: str
    def __init__(self, call_id: _Optional[str] = ..., is_error: _Optional[bool] = ..., text: _Optional[str] = ...) -> None: ...

class PermissionRequest(_message.Message):
    __slots__ = ("request_id", "tool", "detail")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tool: str
    detail: bytes
    def __init__(self, request_id: _Optional[str] = ..., tool: _Optional[str] = ..., detail: _Optional[bytes] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("word", "detail", "progress")
    WORD_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    word: str
    detail: str
    progress: float
    def __init__(self, word: _Optional[str] = ..., detail: _Optional[str] = ..., progress: _Optional[float] = ...) -> None: ...

class Artifact(_message.Message):
    __slots__ = ("name", "media_type", "bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    media_type: str
    bytes: int
    def __init__(self, name: _Optional[str] = ..., media_type: _Optional[str] = ..., bytes: _Optional[int] = ...) -> None: ...

class Gap(_message.Message):
    __slots__ = ("first_seq", "reason")
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    first_seq: int
    reason: str
    def __init__(self, first_seq: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Truncated(_message.Message):
    __slots__ = ("channel", "dropped_bytes")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    DROPPED_BYTES_FIELD_NUMBER: _ClassVar[int]
    channel: Channel
    dropped_bytes: int
    def __init__(self, channel: _Optional[_Union[Channel, str]] = ..., dropped_bytes: _Optional[int] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens", "cost_usd")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_USD_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_tokens: int
    cost_usd: float
    def __init__(self, prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., total_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., cost_usd: _Optional[float] = ...) -> None: ...

class Totals(_message.Message):
    __slots__ = ("events", "bytes", "digest")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    events: int
    bytes: int
    digest: bytes
    def __init__(self, events: _Optional[int] = ..., bytes: _Optional[int] = ..., digest: _Optional[bytes] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("code", "message", "retryable", "exit_code", "signal", "processes_left", "upstream_status", "finish_reason", "usage", "totals", "steps", "upstream_body", "said", "retry_after_s")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_LEFT_FIELD_NUMBER: _ClassVar[int]
    UPSTREAM_STATUS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    UPSTREAM_BODY_FIELD_NUMBER: _ClassVar[int]
    SAID_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    retryable: bool
    exit_code: int
    signal: int
    processes_left: int
    upstream_status: int
    finish_reason: str
    usage: Usage
    totals: Totals
    steps: _containers.RepeatedScalarFieldContainer[str]
    upstream_body: bytes
    said: str
    retry_after_s: float
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., retryable: _Optional[bool] = ..., exit_code: _Optional[int] = ..., signal: _Optional[int] = ..., processes_left: _Optional[int] = ..., upstream_status: _Optional[int] = ..., finish_reason: _Optional[str] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., totals: _Optional[_Union[Totals, _Mapping]] = ..., steps: _Optional[_Iterable[str]] = ..., upstream_body: _Optional[bytes] = ..., said: _Optional[str] = ..., retry_after_s: _Optional[float] = ...) -> None: ...

class RuntimeEvent(_message.Message):
    __slots__ = ("at_us", "channel", "raw", "exact", "started", "output", "tool_call", "tool_result", "permission_request", "status", "usage", "artifact", "truncated", "gap", "completed", "failed", "cancelled", "unknown")
    AT_US_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    EXACT_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_FIELD_NUMBER: _ClassVar[int]
    TOOL_RESULT_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_REQUEST_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    at_us: int
    channel: Channel
    raw: bytes
    exact: bytes
    started: Started
    output: str
    tool_call: ToolCall
    tool_result: ToolResult
    permission_request: PermissionRequest
    status: Status
    usage: Usage
    artifact: Artifact
    truncated: Truncated
    gap: Gap
    completed: Outcome
    failed: Outcome
    cancelled: Outcome
    unknown: Outcome
    def __init__(self, at_us: _Optional[int] = ..., channel: _Optional[_Union[Channel, str]] = ..., raw: _Optional[bytes] = ..., exact: _Optional[bytes] = ..., started: _Optional[_Union[Started, _Mapping]] = ..., output: _Optional[str] = ..., tool_call: _Optional[_Union[ToolCall, _Mapping]] = ..., tool_result: _Optional[_Union[ToolResult, _Mapping]] = ..., permission_request: _Optional[_Union[PermissionRequest, _Mapping]] = ..., status: _Optional[_Union[Status, _Mapping]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., artifact: _Optional[_Union[Artifact, _Mapping]] = ..., truncated: _Optional[_Union[Truncated, _Mapping]] = ..., gap: _Optional[_Union[Gap, _Mapping]] = ..., completed: _Optional[_Union[Outcome, _Mapping]] = ..., failed: _Optional[_Union[Outcome, _Mapping]] = ..., cancelled: _Optional[_Union[Outcome, _Mapping]] = ..., unknown: _Optional[_Union[Outcome, _Mapping]] = ...) -> None: ...

class EventBatch(_message.Message):
    __slots__ = ("run_id", "attempt", "first_seq", "events")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    attempt: int
    first_seq: int
    events: _containers.RepeatedCompositeFieldContainer[RuntimeEvent]
    def __init__(self, run_id: _Optional[str] = ..., attempt: _Optional[int] = ..., first_seq: _Optional[int] = ..., events: _Optional[_Iterable[_Union[RuntimeEvent, _Mapping]]] = ...) -> None: ...

class EventAck(_message.Message):
    __slots__ = ("run_id", "attempt", "through_seq")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    THROUGH_SEQ_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    attempt: int
    through_seq: int
    def __init__(self, run_id: _Optional[str] = ..., attempt: _Optional[int] = ..., through_seq: _Optional[int] = ...) -> None: ...

class Resend(_message.Message):
    __slots__ = ("run_id", "attempt", "from_seq")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FROM_SEQ_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    attempt: int
    from_seq: int
    def __init__(self, run_id: _Optional[str] = ..., attempt: _Optional[int] = ..., from_seq: _Optional[int] = ...) -> None: ...
