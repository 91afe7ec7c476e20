"""The log of the spool: what is torn is dropped, what is damaged is seen, and nothing of a failed write is there."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from iop.node.segments import HEAD_BYTES, SegmentLog, records

PAYLOADS = [b"one", b"", b"three" * 20, bytes(range(256))]


def filled(folder, payloads=PAYLOADS) -> tuple[bytes, bytes]:
    """(word, data) of one segment."""
    log = SegmentLog(str(folder))
    for payload in payloads:
        segment = log.append([payload])
    log.close()
    with open(segment.path, "rb") as stream:
        return segment.word, stream.read()


def ends(payloads=PAYLOADS) -> list[int]:
    found = [0]
    for payload in payloads:
        found.append(found[-1] + HEAD_BYTES + len(payload))
    return found


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "spool").mkdir()
    return tmp_path / "spool"


def test_what_is_appended_is_read_by_the_next_start_in_order_and_only_by_its_owner(folder) -> None:
    log = SegmentLog(str(folder), segment_bytes=100)
    for number in range(20):
        log.append([b"%d" % number, b"x" * 30])
    log.close()
    read = [payload for _, payload in SegmentLog(str(folder)).read()]
    assert read == [part for number in range(20) for part in (b"%d" % number, b"x" * 30)]
    assert len(list(folder.iterdir())) > 5
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_a_torn_tail_is_dropped_at_every_byte(folder) -> None:
    word, data = filled(folder)
    whole = ends()
    for length in range(len(data) + 1):
        read = list(records(data[:length], word))
        assert read == PAYLOADS[:sum(end <= length for end in whole[1:])], length


def test_a_flipped_byte_anywhere_is_damage_of_that_record_alone(folder) -> None:
    word, data = filled(folder)
    whole = ends()
    for at in range(len(data)):
        spoilt = bytearray(data)
        spoilt[at] ^= 0x41
        hit = sum(end <= at for end in whole[1:])
        wanted: list[bytes | None] = [*PAYLOADS]
        wanted[hit] = None
        assert list(records(bytes(spoilt), word)) == wanted, at


def test_a_payload_that_looks_like_records_hides_nothing(folder) -> None:
    word, data = filled(folder)
    other = SegmentLog(str(folder))
    segment = other.append([data, b"behind"])
    other.close()
    with open(segment.path, "rb") as stream:
        spoilt = bytearray(stream.read())
    spoilt[HEAD_BYTES + 1] ^= 1
    assert list(records(bytes(spoilt), segment.word)) == [None, b"behind"]


def test_a_stretch_of_zeros_is_damage(folder) -> None:
    word, data = filled(folder)
    assert list(records(data + bytes(100), word)) == [*PAYLOADS, None]


def test_each_start_begins_a_segment_of_its_own(folder) -> None:
    for number in range(3):
        log = SegmentLog(str(folder))
        list(log.read())
        log.append([b"%d" % number])
        log.close()
    assert [payload for _, payload in SegmentLog(str(folder)).read()] == [b"0", b"1", b"2"]
    assert len(list(folder.iterdir())) == 3


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process may grow above `size` bytes: what a full disk is, but for the error's number."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_the_disk_takes_in_part_is_not_there_at_all(folder) -> None:
    log = SegmentLog(str(folder))
    segment = log.append([b"a" * 3000])
    with largest_file(4096), pytest.raises(OSError) as failed:
        log.append([b"b" * 500, b"c" * 3000])
    assert failed.value.errno == errno.EFBIG
    assert os.stat(segment.path).st_size == segment.size
    log.append([b"d"])
    log.close()
    assert [payload for _, payload in SegmentLog(str(folder)).read()] == [b"a" * 3000, b"d"]


def test_after_an_input_output_error_the_next_write_goes_elsewhere(folder, monkeypatch) -> None:
    log = SegmentLog(str(folder))
    first = log.append([b"a"])

    def fails(descriptor, data, at):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch, pytest.raises(OSError):
        patch.setattr(os, "pwrite", fails)
        log.append([b"b"])
    assert log.append([b"c"]) is not first
    log.close()
    assert [payload for _, payload in SegmentLog(str(folder)).read()] == [b"a", b"c"]


@pytest.mark.parametrize("deleted", ["file", "folder"])
def test_what_is_written_behind_a_deleted_segment_is_kept(folder, deleted: str) -> None:
    log = SegmentLog(str(folder))
    first = log.append([b"a"])
    shutil.rmtree(folder) if deleted == "folder" else os.unlink(first.path)
    log.look()
    second = log.append([b"b"])
    log.append([b"c"])
    log.remove(first)
    assert log.size_bytes == second.size
    log.close()
    assert [payload for _, payload in SegmentLog(str(folder)).read()] == [b"b", b"c"]


def test_a_spool_whose_state_folder_is_away_is_not_begun_elsewhere(folder) -> None:
    log = SegmentLog(str(folder))
    log.append([b"a"])
    shutil.rmtree(folder.parent)
    log.look()
    with pytest.raises(FileNotFoundError):
        log.append([b"b"])
    folder.parent.mkdir()
    log.append([b"c"])
    log.close()
    assert [payload for _, payload in SegmentLog(str(folder)).read()] == [b"c"]


def test_what_else_is_in_the_folder_is_left_alone(folder) -> None:
    filled(folder, [b"a"])
    (folder / "00000000000000aa.0011aabb").mkdir()
    os.mkfifo(folder / "00000000000000ab.0011aabb")
    (folder / "notes").write_bytes(b"\xff")
    log = SegmentLog(str(folder))
    assert [payload for _, payload in log.read()] == [b"a"]
    log.append([b"b"])
    log.close()


def test_what_was_put_aside_is_not_read_and_its_number_not_used_again(folder) -> None:
    filled(folder)
    log = SegmentLog(str(folder))
    segments = {segment for segment, _ in log.read()}
    kept = log.set_aside(segments.pop())
    assert kept.endswith(".damaged") and log.size_bytes == 0
    log.append([b"new"])
    log.close()
    assert [payload for _, payload in SegmentLog(str(folder)).read()] == [b"new"]
    assert sorted(path.name[:16] for path in folder.iterdir()) == ["0" * 15 + "1", "0" * 15 + "2"]
