"""vLLM: the OpenAI-compatible wire with vLLM's own health check, which lies beside /v1 and not under it."""

from __future__ import annotations

from typing import ClassVar

from twisted.plugin import IPlugin
from zope.interface import implementer

from iop.adapters import settings as checks
from iop.adapters.openai import OpenAIAdapter, OpenAIFactory, OpenAISettings, checked
from iop.interfaces import IAdapterFactory, IAdapterTools
from iop.proto.node_pb2 import TargetConfig


class VllmSettings(OpenAISettings):
    """As `openai`, with vLLM's defaults; a first token may wait for a long prefill."""

    first_byte_s: float = 300.0
    health_path: str = "/health"


class VllmAdapter(OpenAIAdapter):
    """The targets of one node at vLLM servers."""

    def health_url(self, settings: OpenAISettings) -> str:
        return settings.url.removesuffix("/v1") + settings.health_path


@implementer(IPlugin, IAdapterFactory)
class VllmFactory(OpenAIFactory):
    """`vllm`: see the module."""

    name: ClassVar[str] = "vllm"

    def settings(self, target: TargetConfig) -> OpenAISettings:
        return checked(checks.read_settings(target, VllmSettings), target)

    def build(self, targets: dict[str, OpenAISettings], tools: IAdapterTools) -> VllmAdapter:
        return VllmAdapter(targets, tools)


factory = VllmFactory()
