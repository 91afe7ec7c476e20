"""vLLM: the OpenAI-compatible wire with vLLM's own health check, which lies beside /v1 and not under it."""

from __future__ import annotations

from typing import ClassVar

from iop.adapters.openai import OpenAIAdapter, OpenAIFactory, OpenAISettings


class VllmSettings(OpenAISettings):
    """As `openai`, with vLLM's defaults; a first token may wait for a long prefill."""

    first_byte_s: float = 300.0
    health_path: str = "/health"


class VllmAdapter(OpenAIAdapter):
    """The targets of one node at vLLM servers."""

    def _health_url(self, settings: OpenAISettings) -> str:
        return settings.url.removesuffix("/v1") + settings.health_path


class VllmFactory(OpenAIFactory):
    """`vllm`: see the module."""

    name: ClassVar[str] = "vllm"
    kind: ClassVar[type[OpenAISettings]] = VllmSettings
    adapter: ClassVar[type[OpenAIAdapter]] = VllmAdapter


factory = VllmFactory()
