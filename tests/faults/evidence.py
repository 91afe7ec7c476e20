"""What the checker looks at, gathered: the ledgers, the database itself, the API's pages, and what readers were shown."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from iop.proto.link_pb2 import Frame
from iop.proto.run_pb2 import CHANNEL_REASONING, CHANNEL_STDERR, CHANNEL_STDOUT, CHANNEL_TEXT, EventBatch
from tests.faults import child
from tests.faults.armed import digest_of
from tests.faults.client import BROKEN, Client, Refused
from tests.faults.load import Asked, json_digest
from tests.faults.witness import ENDINGS, Event, Id, Program, RolledBack, Run

CHANNELS = {CHANNEL_TEXT: "text", CHANNEL_REASONING: "reasoning", CHANNEL_STDOUT: "stdout", CHANNEL_STDERR: "stderr"}
OUTPUTS = {"stdout": child.STDOUT, "stderr": child.STDERR}
PAGES_AT_ONCE = 4


class Stored(NamedTuple):
    """What one database holds: rows of runs, batches and late batches, by run."""

    states: dict[str, str]
    attempts: dict[str, int]                 # run_id -> the latest
    keys: dict[str, str]                     # idempotency key -> run_id
    batches: dict[str, list[bytes]]
    late: dict[str, list[bytes]]


def read_history(file: Path, url: str = "") -> Stored:
    """Straight from the database; an SQLite file is copied first, so that looking at it changes nothing."""
    if url:
        return _postgresql(url)
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_database(file, Path(folder))
        with closing(sqlite3.connect(copy)) as connection:
            return _stored(lambda statement: connection.execute(statement))


def copy_database(file: Path, folder: Path) -> Path:
    """The file and its log; nobody may be writing to it."""
    for name in (file.name, file.name + "-wal"):
        if (file.parent / name).exists():
            (folder / name).write_bytes((file.parent / name).read_bytes())
            os.chmod(folder / name, 0o600)
    return folder / file.name


def _postgresql(url: str) -> Stored:
    import psycopg

    with psycopg.connect(url.replace("postgresql+psycopg:", "postgresql:")) as connection:
        return _stored(lambda statement: connection.execute(statement))


def _stored(execute: Any) -> Stored:
    states, attempts, keys = {}, {}, {}
    for run_id, state, attempt, key in execute("SELECT run_id, state, attempt, idempotency_key FROM runs"):
        states[run_id], attempts[run_id] = state, attempt
        if key:
            keys[key] = run_id
    tables: list[dict[str, list[bytes]]] = []
    for table in ("batches", "late"):
        found: dict[str, list[bytes]] = defaultdict(list)
        for run_id, packed in execute(f"SELECT run_id, packed FROM {table} ORDER BY run_id, attempt, first_seq"):
            found[run_id].append(zlib.decompress(packed) if packed[:1] == b"\x78" else bytes(packed))
        tables.append(found)
    return Stored(states, attempts, keys, *tables)


def events_of(batches: Iterable[bytes]) -> list[Event]:
    """Every event of a run's rows, in the rows' order."""
    return [event for packed in batches for event in _events(Frame.FromString(packed).event_batch)]


def _events(batch: EventBatch) -> Iterable[Event]:
    for offset, event in enumerate(batch.events):
        kind = event.WhichOneof("kind") or ""
        seq, digest = batch.first_seq + offset, digest_of(event)
        if kind == "output":
            yield Event(batch.attempt, seq, kind, digest, CHANNELS[event.channel],
                        event.exact or event.output.encode("utf-8", "surrogatepass"))
        elif kind == "gap":
            yield Event(batch.attempt, seq, kind, digest, gap_first=event.gap.first_seq)
        elif kind in ENDINGS:
            outcome = getattr(event, kind)
            totals = (outcome.totals.events, outcome.totals.bytes, outcome.totals.digest)
            yield Event(batch.attempt, seq, kind, digest, code=outcome.code,
                        totals=totals if outcome.HasField("totals") else None,
                        exit_code=outcome.exit_code if outcome.HasField("exit_code") else None)
        else:
            yield Event(batch.attempt, seq, kind, digest)


def last_of(events: Iterable[Event]) -> dict[int, int]:
    """attempt -> the last number."""
    last: dict[int, int] = {}
    for event in events:
        last[event.attempt] = max(last.get(event.attempt, 0), event.seq)
    return last


# --- ledgers


def read_ledgers(files: Iterable[Path]) -> dict[str, list[tuple[int, int, str]]]:
    """run_id -> what the nodes spooled; a line that a kill cut short is left out."""
    found: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for file in files:
        if file.exists():
            for line in file.read_text().splitlines():
                words = line.split(" ")
                if len(words) == 4 and len(words[3]) == 16:
                    found[words[0]].append((int(words[1]), int(words[2]), words[3]))
    return found


def read_program(file: Path, token: str) -> Program:
    """The ledger of one program."""
    program = Program()
    said: dict[str, list[int]] = defaultdict(list)
    for line in file.read_text().splitlines() if file.exists() else []:
        word, _, number = line.partition(" ")
        if word == "begin":
            program.begun += 1
        elif word == "end":
            program.code = int(number)
        elif number.isdigit():
            said[word].append(int(number))
    for channel, output in OUTPUTS.items():
        program.said[channel] = len(said[output])
        program.stream[channel] = b"".join(child.line(token, output, number) for number in said[output])
    return program


# --- the API


async def read_api(client: Client, run_ids: Iterable[str]) -> dict[str, dict[Id, str]]:
    """run_id -> what the API shows, whole."""
    found: dict[str, dict[Id, str]] = {}
    left = list(run_ids)

    async def work() -> None:
        while left:
            run_id = left.pop()
            found[run_id] = await _pages(client, run_id)

    await asyncio.gather(*(work() for _ in range(PAGES_AT_ONCE)))
    return found


async def _pages(client: Client, run_id: str) -> dict[Id, str]:
    shown: dict[Id, str] = {}
    after, tries = "0.0", 0
    while True:
        try:
            page = await client.call("GET", f"/api/v1/runs/{run_id}/events?limit=1000&after={after}")
        except Refused as refused:
            if refused.status == 404:
                return shown
            tries += 1
        except BROKEN:
            tries += 1
        else:
            for event in page["events"]:
                shown[event["attempt"], event["seq"]] = json_digest(event)
            if page["ended"] or not page["events"]:
                return shown
            after = page["next"]
            continue
        if tries > 20:
            return shown
        await asyncio.sleep(0.3)


# --- put together


def runs_of(asked: Iterable[Asked], stored: Stored, ledgers: dict[str, list[tuple[int, int, str]]],
            api: dict[str, dict[Id, str]], before: Stored | None, copy: Stored | None) -> list[Run]:
    """The evidence of every run that was accepted, and of every run that history has. `before`, `copy`: of a roll-back."""
    found: list[Run] = []
    by_id: dict[str, Asked] = {}
    for one in asked:
        run_id = one.run_id or stored.keys.get(one.token, "")
        if run_id:
            by_id[run_id] = one
    for run_id in sorted(by_id.keys() | stored.states.keys()):
        one = by_id.get(run_id)
        run = Run(run_id, known=run_id in stored.states, state=stored.states.get(run_id, ""),
                  history=events_of(stored.batches.get(run_id, ())), late=events_of(stored.late.get(run_id, ())),
                  api=api.get(run_id, {}), spooled=ledgers.get(run_id, []), shown=one.shown if one else [])
        if one is not None and one.ledger is not None:
            run.program = read_program(one.ledger, one.token)
        if before is not None and copy is not None:
            again = copy.states.get(run_id) == "queued" or one is not None and before.keys.get(one.token) != run_id
            run.late += events_of(before.late.get(run_id, ()))
            run.before = events_of(before.batches.get(run_id, ()))
            run.rolled = RolledBack(copy.attempts.get(run_id), again, last_of(run.before),
                                    last_of(events_of(copy.batches.get(run_id, ()))))
        found.append(run)
    return found
