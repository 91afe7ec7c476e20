"""YAML read strictly, with the line of every value: no aliases, no duplicate keys, no surprises of YAML 1.1.

Limits: 256 KiB and 32 levels (a 294-byte file of aliases expands to 10**8 leaves when walked).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import yaml

from iop.errors import ConfigError

MAX_BYTES = 256 * 1024
MAX_DEPTH = 32

Path = tuple[str | int, ...]


class Document(NamedTuple):
    """A file's content with the line of each value, by its path: ("nodes", 0, "id") -> 7."""

    file: str
    value: Any
    lines: dict[Path, int]

    def line_of(self, path: Path) -> int:
        """The line of `path`, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def error(self, path: Path, sentence: str) -> ConfigError:
        return ConfigError(f"{self.file}, line {self.line_of(path)}: {sentence}")

    @contextmanager
    def blamed(self, *path: str | int) -> Iterator[None]:
        """What is refused inside is the fault of `path`: told with its file and line."""
        try:
            yield
        except ConfigError as error:
            raise self.error(path, error.sentence) from None


class _Loader(yaml.SafeLoader):
    """Plain scalars by the JSON schema of YAML 1.2: `no` is text, `012` is text, `12:30` is text."""

    yaml_implicit_resolvers: dict[str, Any] = {}


for _tag, _pattern, _first in (
    ("bool", r"^(?:true|false)$", "tf"),
    ("null", r"^(?:null|~|)$", ["n", "~", ""]),
    ("int", r"^-?(?:0|[1-9][0-9]*)$", list("-0123456789")),
    ("float", r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?$", list("-0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))


def show_path(path: Path) -> str:
    """``nodes[0].adapters.cli`` for people."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text or "the file"


def load(file: str) -> Document:
    """Read a YAML file; raises ConfigError with file, line and what to do."""
    try:
        data = FilePath(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.") from None
    return parse(data, file)


def parse(data: bytes, file: str) -> Document:
    """Read YAML from memory; `file` is its name in messages."""
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{file} has {len(data)} bytes; a configuration has at most {MAX_BYTES}.")
    try:
        text = data.decode("utf-8")
        _refuse_traps(text, file)
        root = yaml.compose(text, Loader=_Loader)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text (byte {error.start}).") from None
    except yaml.MarkedYAMLError as error:
        line = (error.problem_mark or error.context_mark).line + 1
        raise ConfigError(f"{file}, line {line}: this is not YAML: {error.problem}.") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{file} is not YAML: {str(error).splitlines()[0]}.") from None
    lines: dict[Path, int] = {(): 1}
    value = _value(root, (), lines, file) if root is not None else {}
    return Document(file, value, lines)


def _refuse_traps(text: str, file: str) -> None:
    """Stop at the first alias, and at the first value that lies too deep: before the rest costs anything."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise ConfigError(f"{file}, line {event.start_mark.line + 1}: anchors and aliases are not allowed; "
                              "write the value out.")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ConfigError(f"{file}, line {event.start_mark.line + 1}: nested deeper than {MAX_DEPTH} levels.")


def _value(node: yaml.Node, path: Path, lines: dict[Path, int], file: str) -> Any:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.ScalarNode):
        try:
            return _Loader("").construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            raise ConfigError(f"{file}, line {lines[path]}: {show_path(path)} is not a plain value: {error}.") from None
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*path, index), lines, file) for index, item in enumerate(node.value)]
    mapping: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key, line = key_node.value, key_node.start_mark.line + 1
        if not isinstance(key, str):
            raise ConfigError(f"{file}, line {line}: a key must be plain text.")
        if key in mapping:
            raise ConfigError(f"{file}, line {line}: {show_path((*path, key))} stands here twice.")
        lines[(*path, key)] = line
        mapping[key] = _value(value_node, (*path, key), lines, file)
    return mapping


class _Dumper(yaml.SafeDumper):
    """Quotes exactly the text that `_Loader` would take for something else, and repeats instead of using aliases."""

    yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers

    def ignore_aliases(self, data: Any) -> bool:
        return True


def dump(value: Any) -> str:
    """YAML that `load` reads back as `value`."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
