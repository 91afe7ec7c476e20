from iop.proto import run_pb2 as _run_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TargetConfig(_message.Message):
    __slots__ = ("name", "aliases", "concurrency", "settings", "limits", "retry_safe", "weight")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    RETRY_SAFE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    name: str
    aliases: _containers.RepeatedScalarFieldContainer[str]
    concurrency: int
    settings: bytes
    limits: _run_pb2.Limits
    retry_safe: bool
    weight: float
    def __init__(self, name: _Optional[str] = ..., aliases: _Optional[_Iterable[str]] = ..., concurrency: _Optional[int] = ..., settings: _Optional[bytes] = ..., limits: _Optional[_Union[_run_pb2.Limits, _Mapping]] = ..., retry_safe: _Optional[bool] = ..., weight: _Optional[float] = ...) -> None: ...

class AdapterConfig(_message.Message):
    __slots__ = ("adapter", "concurrency", "targets")
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    adapter: str
    concurrency: int
    targets: _containers.RepeatedCompositeFieldContainer[TargetConfig]
    def __init__(self, adapter: _Optional[str] = ..., concurrency: _Optional[int] = ..., targets: _Optional[_Iterable[_Union[TargetConfig, _Mapping]]] = ...) -> None: ...

class NodeConfigPayload(_message.Message):
    __slots__ = ("revision", "whole", "adapters", "removed_adapters", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REVISION_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    whole: bool
    adapters: _containers.RepeatedCompositeFieldContainer[AdapterConfig]
    removed_adapters: _containers.RepeatedScalarFieldContainer[str]
    labels: _containers.ScalarMap[str, str]
    def __init__(self, revision: _Optional[int] = ..., whole: _Optional[bool] = ..., adapters: _Optional[_Iterable[_Union[AdapterConfig, _Mapping]]] = ..., removed_adapters: _Optional[_Iterable[str]] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ConfigFault(_message.Message):
    __slots__ = ("path", "code", "reason")
    PATH_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    path: str
    code: str
    reason: str
    def __init__(self, path: _Optional[str] = ..., code: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ConfigPartApplied(_message.Message):
    __slots__ = ("path", "accepted", "faults")
    PATH_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    path: str
    accepted: bool
    faults: _containers.RepeatedCompositeFieldContainer[ConfigFault]
    def __init__(self, path: _Optional[str] = ..., accepted: _Optional[bool] = ..., faults: _Optional[_Iterable[_Union[ConfigFault, _Mapping]]] = ...) -> None: ...

class ConfigApplied(_message.Message):
    __slots__ = ("revision", "parts")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    parts: _containers.RepeatedCompositeFieldContainer[ConfigPartApplied]
    def __init__(self, revision: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[ConfigPartApplied, _Mapping]]] = ...) -> None: ...

class TargetState(_message.Message):
    __slots__ = ("adapter", "target", "aliases", "concurrency", "ready", "detail", "retry_safe", "takes_input", "warm", "weight", "context_tokens")
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    RETRY_SAFE_FIELD_NUMBER: _ClassVar[int]
    TAKES_INPUT_FIELD_NUMBER: _ClassVar[int]
    WARM_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    adapter: str
    target: str
    aliases: _containers.RepeatedScalarFieldContainer[str]
    concurrency: int
    ready: bool
    detail: str
    retry_safe: bool
    takes_input: bool
    warm: bool
    weight: float
    context_tokens: int
    def __init__(self, adapter: _Optional[str] = ..., target: _Optional[str] = ..., aliases: _Optional[_Iterable[str]] = ..., concurrency: _Optional[int] = ..., ready: _Optional[bool] = ..., detail: _Optional[str] = ..., retry_safe: _Optional[bool] = ..., takes_input: _Optional[bool] = ..., warm: _Optional[bool] = ..., weight: _Optional[float] = ..., context_tokens: _Optional[int] = ...) -> None: ...

class AdapterState(_message.Message):
    __slots__ = ("adapter", "concurrency", "targets")
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    adapter: str
    concurrency: int
    targets: _containers.RepeatedCompositeFieldContainer[TargetState]
    def __init__(self, adapter: _Optional[str] = ..., concurrency: _Optional[int] = ..., targets: _Optional[_Iterable[_Union[TargetState, _Mapping]]] = ...) -> None: ...

class NodeStatus(_message.Message):
    __slots__ = ("version", "policy_mode", "draining", "labels", "adapters", "facts", "load")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class FactsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    POLICY_MODE_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    version: str
    policy_mode: str
    draining: bool
    labels: _containers.ScalarMap[str, str]
    adapters: _containers.RepeatedCompositeFieldContainer[AdapterState]
    facts: _containers.ScalarMap[str, str]
    load: MachineLoad
    def __init__(self, version: _Optional[str] = ..., policy_mode: _Optional[str] = ..., draining: _Optional[bool] = ..., labels: _Optional[_Mapping[str, str]] = ..., adapters: _Optional[_Iterable[_Union[AdapterState, _Mapping]]] = ..., facts: _Optional[_Mapping[str, str]] = ..., load: _Optional[_Union[MachineLoad, _Mapping]] = ...) -> None: ...

class GpuLoad(_message.Message):
    __slots__ = ("name", "memory_used_bytes", "memory_total_bytes", "busy")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    name: str
    memory_used_bytes: int
    memory_total_bytes: int
    busy: float
    def __init__(self, name: _Optional[str] = ..., memory_used_bytes: _Optional[int] = ..., memory_total_bytes: _Optional[int] = ..., busy: _Optional[float] = ...) -> None: ...

class MachineLoad(_message.Message):
    __slots__ = ("busy", "memory_used_bytes", "memory_total_bytes", "gpus")
    BUSY_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    busy: float
    memory_used_bytes: int
    memory_total_bytes: int
    gpus: _containers.RepeatedCompositeFieldContainer[GpuLoad]
    def __init__(self, busy: _Optional[float] = ..., memory_used_bytes: _Optional[int] = ..., memory_total_bytes: _Optional[int] = ..., gpus: _Optional[_Iterable[_Union[GpuLoad, _Mapping]]] = ...) -> None: ...

class NodeCommandRequest(_message.Message):
    __slots__ = ("command_id", "line", "name", "arguments", "timeout_s", "source")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    line: str
    name: str
    arguments: bytes
    timeout_s: float
    source: _run_pb2.Source
    def __init__(self, command_id: _Optional[str] = ..., line: _Optional[str] = ..., name: _Optional[str] = ..., arguments: _Optional[bytes] = ..., timeout_s: _Optional[float] = ..., source: _Optional[_Union[_run_pb2.Source, _Mapping]] = ...) -> None: ...

class NodeCommandResponse(_message.Message):
    __slots__ = ("command_id", "ok", "result", "code", "message")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    ok: bool
    result: bytes
    code: str
    message: str
    def __init__(self, command_id: _Optional[str] = ..., ok: _Optional[bool] = ..., result: _Optional[bytes] = ..., code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class EdgeNodeEvent(_message.Message):
    __slots__ = ("event_id", "at_us", "kind", "node_id", "run_id", "source", "detail")
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    AT_US_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    event_id: int
    at_us: int
    kind: str
    node_id: str
    run_id: str
    source: _run_pb2.Source
    detail: bytes
    def __init__(self, event_id: _Optional[int] = ..., at_us: _Optional[int] = ..., kind: _Optional[str] = ..., node_id: _Optional[str] = ..., run_id: _Optional[str] = ..., source: _Optional[_Union[_run_pb2.Source, _Mapping]] = ..., detail: _Optional[bytes] = ...) -> None: ...
