"""What goes into one commit: writes that wait go with those that do not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest_twisted
from sqlalchemy import Connection
from twisted.internet import defer, reactor

from iop.store.engine import file_url
from iop.store.store import Store
from iop.store.work import Write


@pytest_twisted.ensureDeferred
async def test_a_write_that_can_wait_goes_with_the_next_that_cannot_or_by_itself_after_a_while(tmp_path: Path) -> None:
    commits: list[list[str]] = []

    def carry_out(connection: Connection, writes: Sequence[Write]) -> None:
        commits.append([write.kind for write in writes])

    store = Store(file_url(f"{tmp_path}/history.db"), "history", reactor, lambda connection: None, carry_out)
    await store.open()
    waiting = store.write("patient", None, wait_s=3600.0)
    await defer.gatherResults([waiting, store.write("urgent", None)])
    await store.write("patient", None, wait_s=0.001)
    assert commits == [["patient", "urgent"], ["patient"]]
    left = store.write("patient", None, wait_s=3600.0)
    await store.close()
    await left
    assert commits[2:] == [["patient"]]
