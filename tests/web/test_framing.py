"""Where heads and bodies end, whatever way they are cut."""

import pytest

from iop.errors import InvalidRequest
from iop.web.errors import HeadersTooLarge
from iop.web.framing import HEAD_BYTES, HEADER_BYTES, BodyEnd, check_head, head_end, without_upgrade

HEAD = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"


def test_a_head_ends_behind_its_empty_line():
    assert head_end(HEAD + b"more") == len(HEAD)
    assert [head_end(HEAD[:size]) for size in range(len(HEAD))] == [0] * len(HEAD)


def test_empty_lines_before_a_head_are_passed_over():
    data = b"\r\n\r\n" + HEAD
    assert head_end(data) == len(data)
    assert check_head(data, len(data)) == 4
    assert head_end(b"\r\n\r\n") == 0


@pytest.mark.parametrize("data", [b"\x16\x03\x01", b"\nGET / HTTP/1.1", b"get / HTTP/1.1\r\n", b"GET  / HTTP/1.1\r\n",
                                  b"GET /a b HTTP/1.1\r\n", b"GET /\r\n", b"GET / HTTP/1.1\n"])
def test_what_cannot_become_a_request_is_refused_before_its_end(data):
    with pytest.raises(InvalidRequest):
        head_end(data)


def test_a_head_without_an_end_is_refused_at_its_limits():
    begin = b"GET /a HTTP/1.1\r\n"
    with pytest.raises(HeadersTooLarge):
        head_end(begin + b"X: " + b"y" * HEADER_BYTES)
    with pytest.raises(HeadersTooLarge):
        head_end(begin + (b"X: " + b"y" * 1000 + b"\r\n") * (HEAD_BYTES // 1000 + 1))


@pytest.mark.parametrize("line", [b"Upgrade: h2c", b"uPGRADE:x"])
def test_an_upgrade_is_taken_out_of_a_head(line):
    head = b"GET /a HTTP/1.1\r\nConnection: Upgrade\r\n%b\r\nHost: x\r\n\r\n"
    assert without_upgrade(head % line) == (head % line).replace(line + b"\r\n", b"")
    assert without_upgrade(HEAD) == HEAD


@pytest.mark.parametrize("body", [b"3\r\nabc\r\n0\r\n\r\n", b"8\r\na\r\n\r\n\r\nb\r\n0\r\nTrailer: x\r\n\r\n", b"0\r\n\r\n"])
def test_a_body_in_chunks_is_never_read_beyond_its_end(body):
    for cut in range(len(body)):
        end, left, read = BodyEnd(), [body[:cut], body[cut:] + HEAD], []
        while left:
            data = left.pop(0)
            stop = end.find(data)
            read.append(data[:stop])
            if data[stop:]:
                left.insert(0, data[stop:])
            if b"".join(read) == body:
                break
        assert b"".join(read) == body
