from __future__ import annotations

from pathlib import Path

import pytest
from twisted.internet.defer import execute

from iop.edge.nodefile import NodeFile
from iop.edge.registry import Registry
from iop.errors import ConfigError, HistoryUnavailable
from tests.edge.conftest import result_of


def test_labels_and_drains_outlive_the_process(tmp_path: Path) -> None:
    file = str(tmp_path / "nodes.json")
    kept, before = NodeFile(file, execute), Registry(0)
    node = before.known("n1")
    node.draining, node.label_changes = True, {"gpu": "yes", "zone": None}
    result_of(kept.save(node))
    assert (tmp_path / "nodes.json").stat().st_mode & 0o777 == 0o600
    after = Registry(0)
    NodeFile(file, execute).load(after)
    assert after.node("n1").draining and after.node("n1").label_changes == {"gpu": "yes", "zone": None}
    node.draining, node.label_changes = False, {}
    result_of(kept.save(node))
    assert (tmp_path / "nodes.json").read_text() == "{}\n"


def test_a_damaged_file_is_told_and_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "nodes.json"
    file.write_text("{")
    with pytest.raises(ConfigError, match="Mend it"):
        NodeFile(str(file), execute).load(Registry(0))
    assert file.read_text() == "{"


def test_a_full_disk_says_what_is_lost(tmp_path: Path) -> None:
    kept = NodeFile(str(tmp_path / "no" / "nodes.json"), execute)
    with pytest.raises(HistoryUnavailable, match="will not outlive a restart"):
        result_of(kept.save(Registry(0).known("n1")))
