"""docs/configuration.md has every key that a configuration may hold, with its default, and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from iop import config
from iop.adapters.cli import CliSettings
from iop.adapters.mock import MockSettings
from iop.adapters.ollama import OllamaSettings
from iop.adapters.openai import OpenAISettings
from iop.adapters.vllm import VllmSettings
from iop.keylimits import KeyLimits
from iop.servers import ServerSpec

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "configuration.md").read_text()
REQUIRED = "*required*"


def documented(heading: str) -> dict[str, str]:
    """The keys of the tables under a heading, and their defaults, as the page has them."""
    section = re.split(r"^#+ ", PAGE.split(f"# {heading}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    rows = re.findall(r"^\| `([^`]+)` \|([^|]*)\|", section, re.MULTILINE)
    assert len(dict(rows)) == len(rows), "a key stands twice"
    return {key: default.strip(" `") for key, default in rows}


def keys_of(kind: type[msgspec.Struct], prefix: str = "") -> dict[str, str]:
    """The keys of a type, and those of the sections below it, with their defaults."""
    found: dict[str, str] = {}
    for field in msgspec.structs.fields(kind):
        name, section = prefix + field.name, section_of(field.type)
        if section is None:
            found[name] = shown(field)
            continue
        if field.required or field.default is None:
            found[name] = shown(field)
        if field.name != "tls":           # whose two files stand in its row
            found |= keys_of(section, name + ".")
    return found


def settings(kind: type[msgspec.Struct]) -> dict[str, str]:
    return {field.name: shown(field) for field in msgspec.structs.fields(kind)}


def section_of(kind: Any) -> type[msgspec.Struct] | None:
    for one in (kind, *getattr(kind, "__args__", ())):
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            return one
    return None


def shown(field: Any) -> str:
    if field.required:
        return REQUIRED
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return value if isinstance(value, str) else json.dumps(msgspec.to_builtins(value))


def test_every_key_of_edge_yaml_stands_there():
    keys = keys_of(config._EdgeFile) | keys_of(config._NodeOfEdge, "nodes[].")
    del keys["nodes"]
    assert documented("edge.yaml") == keys


def test_every_key_of_node_yaml_stands_there():
    assert documented("node.yaml") == keys_of(config._NodeFile)


def test_every_key_of_a_target_stands_there():
    assert documented("Targets") == settings(config.TargetCommon) | {"limits": "{}"}
    assert documented("Limits") == keys_of(config.LimitsConfig)


def test_every_limit_of_a_key_stands_there():
    assert documented("keys.yaml") == settings(KeyLimits)


def test_every_setting_of_a_server_stands_there():
    assert documented("serve") == settings(ServerSpec)


@pytest.mark.parametrize(("adapter", "kind"), [("cli", CliSettings), ("openai", OpenAISettings), ("ollama", OllamaSettings),
                                               ("mock", MockSettings)])
def test_every_setting_of_an_adapter_stands_there(adapter, kind):
    assert documented(adapter) == settings(kind)


def test_what_vllm_has_otherwise_stands_there():
    assert documented("vllm").items() == settings(VllmSettings).items() - settings(OpenAISettings).items()
