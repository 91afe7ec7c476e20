"""Journals: written whole or continued, read from any place, and never read wrongly."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from iop.node import journal
from iop.node.journal import ENDED, EXITED, HEAD, STARTED, STDERR, STDOUT, Damaged, Reader, Record, Writer
from iop.node.words import GREW, INPUT, KEPT, Strange, Words, word


def writer(folder: Path, segment_bytes: int = 1000) -> Writer:
    head = {"pid": 1, "ticks": 2, "boot": "b", "child": 0, "child_ticks": 0}
    made = Writer(os.open(folder, os.O_RDONLY), head, segment_bytes)
    made.begin()
    return made


def read_all(folder: Path, offset: int = 0, limit_bytes: int = 300) -> list[Record]:
    reader, found = Reader(str(folder), offset), []
    while more := reader.read(limit_bytes):
        found += more
    reader.close()
    return found


def output(found: list[Record]) -> bytes:
    return b"".join(record.payload for record in found if record.kind == STDOUT)


def test_what_is_written_is_read_from_every_place_through_all_segments(tmp_path) -> None:
    pieces = [random.Random(n).randbytes(n * 7 % 900) for n in range(60)]
    made = writer(tmp_path)
    for piece in pieces:
        made.append(STDOUT, piece)
    assert len(journal.segments(str(tmp_path))) > 10
    whole = read_all(tmp_path)
    assert output(whole) == b"".join(pieces) and whole[-1].offset == made.end
    for at, record in enumerate(whole):
        assert read_all(tmp_path, record.offset) == whole[at + 1:]


def test_a_record_that_is_larger_than_what_is_read_at_once_is_read(tmp_path) -> None:
    made = writer(tmp_path)
    made.append(STDOUT, b"x" * 5000)
    assert output(read_all(tmp_path, limit_bytes=64)) == b"x" * 5000


def test_only_whole_segments_go_and_the_rest_stays_readable(tmp_path) -> None:
    made = writer(tmp_path)
    for n in range(40):
        made.append(STDOUT, bytes([n]) * 200)
    whole = read_all(tmp_path)
    place = next(record.offset for record in whole if record.offset > made.end // 2)
    made.forget(place)
    starts = journal.segments(str(tmp_path))
    assert 0 < starts[0] <= place < made.end
    assert read_all(tmp_path, place) == [record for record in whole if record.offset > place]
    with pytest.raises(Damaged):
        read_all(tmp_path, 0)
    made.forget(1 << 60)
    assert len(journal.segments(str(tmp_path))) == 1


def test_every_segment_tells_whose_journal_it_is(tmp_path) -> None:
    made = writer(tmp_path)
    made.head |= {"child": 5, "child_ticks": 6}
    made.append(STARTED, b'{"child": 5, "child_ticks": 6}')
    assert journal.identity(str(tmp_path))["child"] == 5
    for _ in range(20):
        made.append(STDERR, b"y" * 300)
    made.forget(made.end)
    assert journal.identity(str(tmp_path)) == {"pid": 1, "ticks": 2, "boot": "b", "child": 5, "child_ticks": 6}
    assert journal.identity(str(tmp_path / "none")) == {}


def test_a_disk_that_takes_half_a_record_gets_the_other_half_later(tmp_path, monkeypatch) -> None:
    made = writer(tmp_path)
    real, room = os.write, [150]

    def write(descriptor: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        written = real(descriptor, data[:room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr(journal.os, "write", write)
    made.append(STDOUT, b"z" * 400)
    made.append(ENDED, b"{}")
    assert made.waiting and not made.flush()
    assert output(read_all(tmp_path)) == b""
    room[0] = 10_000
    assert made.flush() and not made.waiting
    assert [record.kind for record in read_all(tmp_path)] == [HEAD, STDOUT, ENDED]


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_torn_tail_is_not_read(tmp_path, cut) -> None:
    made = writer(tmp_path)
    made.append(STDOUT, b"whole")
    made.append(STDOUT, b"the last of all")
    path = tmp_path / "journal.0000000000000000"
    path.write_bytes(path.read_bytes()[:-cut])
    assert output(read_all(tmp_path)) in (b"whole", b"")


def test_a_changed_byte_is_damage_and_what_stands_before_it_is_read(tmp_path) -> None:
    made = writer(tmp_path)
    made.append(STDOUT, b"first")
    made.append(STDOUT, b"second")
    path = tmp_path / "journal.0000000000000000"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))
    reader = Reader(str(tmp_path))
    assert output(reader.read(10_000)) == b"first"
    with pytest.raises(Damaged):
        reader.read(10_000)


@pytest.mark.parametrize("name", ["journal.bak", "journal.", "journal.zz", "journal.0000000000000001.gz", "notes"])
def test_what_else_is_in_the_folder_is_left_alone(tmp_path, name: str) -> None:
    writer(tmp_path).append(STDOUT, b"said")
    (tmp_path / name).mkdir()
    assert output(read_all(tmp_path)) == b"said" and journal.identity(str(tmp_path))["pid"] == 1


@pytest.mark.parametrize("kind", [HEAD, STARTED, EXITED, ENDED])
@pytest.mark.parametrize("payload", [b"", b"{}", b"[1]", b"null", b"\xff", b"[" * 100_000, b'{"pid": "1", "exit_code": []}'])
def test_a_record_that_checks_and_says_nothing_is_damage(tmp_path, kind: int, payload: bytes) -> None:
    with pytest.raises(Damaged):
        Record(kind, payload, 9).fields()
    (tmp_path / "journal.0000000000000000").write_bytes(journal.packed(kind, payload))
    assert journal.identity(str(tmp_path)) == {}


@pytest.mark.parametrize("said", [word(KEPT, b"abc"), word(GREW), b"\xff" * 5])
def test_what_is_no_word_is_strange(said: bytes) -> None:
    with pytest.raises(Strange):
        Words().feed(said)


def test_words_come_out_of_any_cut() -> None:
    stream = word(INPUT, b"abc") + word(INPUT, b"") + word(KEPT, b"12345678")
    for step in (1, 2, 5, 100):
        words, told = Words(), []
        for at in range(0, len(stream), step):
            told += words.feed(stream[at:at + step])
        assert told == [(INPUT, b"abc"), (INPUT, b""), (KEPT, b"12345678")]


def test_the_ending_is_the_last_record_or_none(tmp_path) -> None:
    assert journal.ending(str(tmp_path)) == {}
    said = writer(tmp_path)
    said.append(STDOUT, b"said")
    assert journal.ending(str(tmp_path)) == {}
    told = {"error": "", "steps": ["SIGINT"], "processes_left": 0, "exit_code": None, "signal": 2}
    said.append(ENDED, json.dumps(told).encode())
    assert journal.ending(str(tmp_path)) == told
