"""edge.yaml and node.yaml as types, and how they are read. Unknown keys are errors; every fault names its line.

Relative paths are relative to the file they stand in.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from iop import yamlfile
from iop.proto import node_pb2, run_pb2
from iop.schema import convert
from iop.yamlfile import Document, Path

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}\Z",
                           description="letters, digits and . _ : / @ + -, at most 128")]
Id = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z",
                         description="letters, digits and . _ -, at most 64")]
Port = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(ge=0, le=100_000)]
Seconds = Annotated[float, Meta(ge=0, le=31_536_000)]
Weight = Annotated[float, Meta(gt=0, le=1000)]
Bytes = Annotated[int, Meta(ge=0, le=2 ** 53)]   # beyond, JSON readers and 64 bits disagree
SpoolBytes = Annotated[int, Meta(ge=32 * 1024 * 1024, le=2 ** 53)]   # a few of its segments, or nothing could ever move


class _Strict(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    pass


class LimitsConfig(_Strict):
    queue_s: Seconds = 0
    start_s: Seconds = 0
    run_s: Seconds = 0
    first_output_s: Seconds = 0
    silence_s: Seconds = 0
    output_bytes: Bytes = 0

    def message(self) -> run_pb2.Limits:
        return run_pb2.Limits(**msgspec.structs.asdict(self))


LIMITS = LimitsConfig.__struct_fields__      # the fields of a Limits message, each 0 where nothing is set
TIME_LIMITS = tuple(name for name in LIMITS if name.endswith("_s"))


class TargetCommon(_Strict):
    """The keys every target may have; all its other keys are its adapter's own settings."""

    aliases: list[Name] = []
    concurrency: Count = 0
    limits: LimitsConfig = LimitsConfig()
    retry: Literal["safe", "never"] | None = None
    weight: Weight = 1.0             # its share where several targets offer the same


class TlsFiles(_Strict):
    cert: str
    key: str


class LinkListen(_Strict):
    host: str = "127.0.0.1"
    port: Port = 7410
    tls: TlsFiles | None = None


Origin = Annotated[str, Meta(pattern=r"^https?://[^/*?#\s]+$")]


class HttpListen(_Strict):
    host: str = "127.0.0.1"
    port: Port = 7411
    tls: TlsFiles | None = None
    names: list[str] = []            # further Host names to answer to
    body_bytes: Bytes = 32 * 1024 * 1024
    heartbeat: Literal["comments", "chunks"] = "comments"    # of a quiet stream; chunks: for clients that pass over comments
    cors_origins: list[Origin] = []     # of web pages that may ask the model APIs, e.g. https://chat.example; none otherwise


class ConsoleListen(_Strict):
    host: str = "127.0.0.1"
    port: Port = 7412
    authorized_keys: str = "authorized_keys"
    host_key: str = "console_host_key"
    manhole: bool = False            # allow /python, to the keys in manhole_keys
    manhole_keys: str = "manhole_keys"


class Listen(_Strict):
    link: LinkListen = LinkListen()
    http: HttpListen = HttpListen()
    console: ConsoleListen | None = None


class QueueConfig(_Strict):
    limit: Count = 1000
    deadline_s: Seconds = 600


class Price(_Strict):
    """Of a model, in dollars for a million tokens."""

    input: Annotated[float, Meta(ge=0, le=10 ** 6)] = 0.0
    output: Annotated[float, Meta(ge=0, le=10 ** 6)] = 0.0


class EdgeIdentity(_Strict):
    id: Id = "edge"
    state: str = "state"
    lost_after_s: Seconds = 600      # a node away this long has lost its runs
    tail_bytes: Bytes = 4 * 1024 * 1024          # of one run, kept in memory for its readers
    run_window_bytes: Bytes = 1024 * 1024        # un-acknowledged output of one run
    link_window_bytes: Bytes = 8 * 1024 * 1024   # and of one node


class _EdgeFile(_Strict):
    edge: EdgeIdentity = EdgeIdentity()
    listen: Listen = Listen()
    history: str = ""                # an SQLAlchemy URL; empty: history.db in the state folder
    keys: str = "keys.yaml"
    queue: QueueConfig = QueueConfig()
    limits: LimitsConfig = LimitsConfig()
    prices: dict[Name, Price] = {}
    nodes: list[dict[str, Any]] = []


class _NodeOfEdge(_Strict):
    id: Id
    labels: dict[str, str] = {}
    adapters: dict[str, Any] = {}


class NodeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One node as edge.yaml configures it."""

    id: str
    labels: dict[str, str]
    adapters: list[node_pb2.AdapterConfig]


class _Config(msgspec.Struct, frozen=True, kw_only=True):
    """A file, read."""

    file: str
    document: Document

    def path(self, name: str) -> str:
        """`name` beside the file."""
        return os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(self.file)), name))


class EdgeConfig(_Config, frozen=True, kw_only=True):
    """edge.yaml, read."""

    edge: EdgeIdentity
    listen: Listen
    history: str
    keys: str
    queue: QueueConfig
    limits: LimitsConfig
    nodes: list[NodeEntry]
    prices: dict[str, Price] = {}    # by alias, ADAPTER/TARGET or target

    @property
    def state(self) -> str:
        return self.path(self.edge.state)


class NodeIdentity(_Strict):
    id: Id
    state: str = "state"
    labels: dict[str, str] = {}


class EdgeAddress(_Strict):
    """Where the node dials, and how it knows that it is the right one."""

    host: str = "127.0.0.1"
    port: Port = 7410
    plain: bool = False              # no TLS; loopback only
    ca: str = ""                     # a PEM file; the edge's certificate must come from it
    pin: str = ""                    # sha256:<64 hex digits> of the edge's public key, instead of a CA
    name: str = ""                   # the name in the certificate, when it is not `host`
    token_file: str = "token"


class SpoolConfig(_Strict):
    """Events on the node's disk that the edge has not acknowledged."""

    quota_bytes: SpoolBytes = 256 * 1024 * 1024      # above it, all runs of the node are held back


class ServersConfig(_Strict):
    """The model servers that this node starts itself."""

    memory_bytes: Bytes = 0          # that they may take together, as their targets say; 0: no limit


class PolicyConfig(_Strict):
    """What the owner of this machine allows. Read at start and on SIGHUP; never from the link."""

    mode: Literal["locked", "guided", "trusting"] = "guided"
    trust_edge_commands: bool = False
    executables: list[str] = []      # absolute paths, beside the known agents found on PATH
    interpreters: list[str] = []     # shells and interpreters among them, by absolute path
    upstreams: list[str] = []        # hosts (or host:port) of model backends, beside loopback
    roots: list[str] = []            # folders that a program's cwd may lie in
    env: list[str] = []              # names of variables that programs get from the node's own environment


class _NodeFile(_Strict):
    node: NodeIdentity
    edge: EdgeAddress
    spool: SpoolConfig = SpoolConfig()
    servers: ServersConfig = ServersConfig()
    policy: PolicyConfig = PolicyConfig()
    adapters: dict[str, Any] = {}    # targets that this machine's owner defines; all there is under `locked`


class NodeConfig(_Config, frozen=True, kw_only=True):
    """node.yaml, read."""

    node: NodeIdentity
    edge: EdgeAddress
    spool: SpoolConfig
    servers: ServersConfig
    policy: PolicyConfig
    adapters: list[node_pb2.AdapterConfig]

    @property
    def state(self) -> str:
        return self.path(self.node.state)


def load_edge(file: str) -> EdgeConfig:
    """Read edge.yaml. Raises ConfigError."""
    document = yamlfile.load(file)
    parsed = convert(document, document.value, _EdgeFile)
    nodes: list[NodeEntry] = []
    for index, entry in enumerate(parsed.nodes):
        path: Path = ("nodes", index)
        node = convert(document, entry, _NodeOfEdge, path)
        if any(other.id == node.id for other in nodes):
            raise document.error((*path, "id"), f"the node {node.id} stands here twice.")
        nodes.append(NodeEntry(id=node.id, labels=node.labels,
                               adapters=read_adapters(document, node.adapters, (*path, "adapters"))))
    return EdgeConfig(file=file, edge=parsed.edge, listen=parsed.listen, history=parsed.history, keys=parsed.keys,
                      queue=parsed.queue, limits=parsed.limits, nodes=nodes, prices=parsed.prices, document=document)


def load_node(file: str) -> NodeConfig:
    """Read node.yaml. Raises ConfigError."""
    document = yamlfile.load(file)
    parsed = convert(document, document.value, _NodeFile)
    if parsed.policy.mode == "trusting" and not parsed.policy.trust_edge_commands:
        raise document.error(("policy", "mode"), "policy.mode `trusting` also needs `trust_edge_commands: true`, since "
                             "it lets the edge run any program on this machine.")
    return NodeConfig(file=file, node=parsed.node, edge=parsed.edge, spool=parsed.spool, servers=parsed.servers,
                      policy=parsed.policy, document=document,
                      adapters=read_adapters(document, parsed.adapters, ("adapters",)))


def load_identity(file: str) -> tuple[str, str]:
    """The id and the state folder of node.yaml's node, whatever fault the rest of the file has. Raises ConfigError."""
    document = yamlfile.load(file)
    whole = document.value if isinstance(document.value, dict) else {}
    node = convert(document, whole.get("node"), NodeIdentity, ("node",))
    return node.id, os.path.join(os.path.dirname(os.path.abspath(file)), node.state)


def read_adapters(document: Document, value: Any, path: Path) -> list[node_pb2.AdapterConfig]:
    """``{adapter: {concurrency, targets: {name: {...}}}}`` as messages, in the file's order."""
    adapters = []
    for name, entry in _mapping(document, value, path).items():
        here = (*path, name)
        known = _mapping(document, entry, here)
        for key in known:
            if key not in ("concurrency", "targets"):
                raise document.error((*here, key), f"{yamlfile.show_path((*here, key))} is not known; allowed here: "
                                     "concurrency, targets.")
        concurrency = convert(document, known.get("concurrency", 0), Count, (*here, "concurrency"))
        config = node_pb2.AdapterConfig(adapter=convert(document, name, Id, here), concurrency=concurrency)
        for target, body in _mapping(document, known.get("targets") or {}, (*here, "targets")).items():
            config.targets.append(_target(document, target, body, (*here, "targets", target)))
        adapters.append(config)
    return adapters


_COMMON = frozenset(TargetCommon.__struct_fields__)


def _target(document: Document, name: str, value: Any, path: Path) -> node_pb2.TargetConfig:
    body = _mapping(document, value or {}, path)
    convert(document, name, Name, path)
    common = convert(document, {k: v for k, v in body.items() if k in _COMMON}, TargetCommon, path)
    target = node_pb2.TargetConfig(
        name=name, aliases=common.aliases, concurrency=common.concurrency, limits=common.limits.message(),
        weight=common.weight, settings=msgspec.json.encode({k: v for k, v in body.items() if k not in _COMMON}))
    if common.retry is not None:
        target.retry_safe = common.retry == "safe"
    return target


def _mapping(document: Document, value: Any, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise document.error(path, f"{yamlfile.show_path(path)} must be a mapping of names.")
    return value
