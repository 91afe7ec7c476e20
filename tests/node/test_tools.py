"""What adapters are given by their node."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from iop.errors import AdapterError
from tests.node.fakes import make_tools


def test_programs_get_little_of_the_nodes_environment() -> None:
    environment = make_tools(Clock()).environment()
    assert environment["PATH"] == "/usr/bin"
    assert set(environment) == {"PATH", "HOME", "LANG", "TERM", "TMPDIR"}


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path) -> None:
    (tmp_path / "runs").touch()
    with pytest.raises(AdapterError, match="run's folder .* cannot be made: "):
        make_tools(Clock(), folder=str(tmp_path / "runs")).workdir("a" * 32)
