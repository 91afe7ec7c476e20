"""What the settings of a model may be, and how its health is asked."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor

from iop.adapters import openai, vllm
from iop.errors import ConfigError
from iop.servers import TargetHealth
from tests.adapters.asking import MODELS
from tests.adapters.kit import Tools, target, until
from tests.adapters.upstream import Upstream


@pytest.mark.parametrize(("settings", "words"), [
    ({}, ["url"]),
    ({"url": "ftp://x"}, ["url", "http://"]),
    ({"url": "http://u:p@host/v1"}, ["url", "api_key_file"]),
    ({"url": "http://host/v1?x=1"}, ["url"]),
    ({"url": "http://ho st"}, ["url"]),
    ({"url": "http://h/v1", "modle": "x"}, ["modle", "model", "url"]),
    ({"url": "http://h/v1", "idle_s": 0}, ["idle_s", "0"]),
    ({"url": "http://h/v1", "idle_s": "long"}, ["idle_s"]),
    ({"url": "http://h/v1", "headers": {"Host": "x"}}, ["Host"]),
    ({"url": "http://h/v1", "headers": {"X-A": "a\r\nb"}}, ["X-A"]),
    ({"url": "http://h/v1", "health_path": "models"}, ["health_path"]),
    ({"url": "http://h/v1", "api_key_file": "key"}, ["api_key_file", "absolute"]),
])
def test_wrong_settings_name_the_key_and_what_is_allowed(settings: dict[str, Any], words: list[str]) -> None:
    for factory in (openai.factory, vllm.factory):
        with pytest.raises(ConfigError) as caught:
            factory.settings(target("m", **settings))
        for word in words:
            assert word in caught.value.message


@pytest.mark.parametrize(("factory", "path"), [(openai.factory, "/v1/models"), (vllm.factory, "/health")])
@pytest_twisted.ensureDeferred
async def test_health_is_asked_where_each_server_has_it(upstream: Upstream, factory: Any, path: str) -> None:
    settings = factory.settings(target("m", url=upstream.url))
    adapter = factory.build({"m": settings}, Tools(reactor))
    asking = adapter.check()
    call = await until(lambda: upstream.calls and upstream.calls[0])
    assert upstream.requests[0][0] == f"GET {path} HTTP/1.1"
    call.whole(b"{}", "503 Loading")
    assert "503" in (await asking)["m"].why_not
    asking = adapter.check()
    call = await until(lambda: len(upstream.calls) > 1 and upstream.calls[1])
    call.whole(MODELS if path == "/v1/models" else b"")
    if path != "/v1/models":                 # the list of models is asked for once more, for the context
        call = await until(lambda: len(upstream.calls) > 2 and upstream.calls[2])
        call.whole(MODELS)
    assert await asking == {"m": TargetHealth(warm=True, context_tokens=4096)}
    await adapter.close()
    await upstream.stop()
    assert "cannot be reached" in (await adapter.check())["m"].why_not
