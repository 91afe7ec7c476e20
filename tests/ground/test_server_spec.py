"""How a server of the node's own is described."""

from __future__ import annotations

import msgspec
import pytest

from iop.errors import IOPError
from iop.servers import ServerSpec, checked_spec
from tests.node.house import spec


@pytest.mark.parametrize(("change", "words"), [
    ({"argv": ()}, "serve.argv"), ({"argv": ("/bin/serve",)}, "{port}"), ({"host": "0.0.0.0"}, "loopback"),
    ({"cwd": "models"}, "absolute"), ({"health_path": "health"}, "health_path"), ({"ready_s": 0}, "ready_s")])
def test_a_spec_that_cannot_work_is_a_fault_that_names_its_key(change, words):
    with pytest.raises(IOPError, match=words.replace("{", "\\{")):
        checked_spec(msgspec.structs.replace(spec(), **change), "/health")


def test_specs_without_a_name_share_a_server_when_they_are_equal():
    one = ServerSpec(argv=("/opt/llama-server", "-m", "x"), port=1)
    assert one.id == ServerSpec(argv=("/opt/llama-server", "-m", "x"), port=1).id and one.id.startswith("llama-server-")
    assert one.id != ServerSpec(argv=("/opt/llama-server", "-m", "y"), port=1).id
