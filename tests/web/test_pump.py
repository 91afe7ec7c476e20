"""Pumping a stream to its reader."""

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from iop.web.pump import Pump


class Source:
    heartbeat = b":\n\n"

    def __init__(self, *takes):
        self.takes, self.ended, self.closed = list(takes), False, 0

    def take(self, limit_bytes):
        taken = self.takes.pop(0) if self.takes else []
        if taken == "end":
            self.ended = True
            return []
        return taken

    def notify(self, callback):
        self.callback = callback

    def close(self):
        self.closed += 1


def pumped(source):
    written, done = [], []
    pump = Pump(source, written.append, done.append, Clock().seconds)
    pump.start()
    return pump, written, done


def test_it_takes_until_there_is_nothing():
    source = Source([b"a", b"b"], [b"c"], [])
    _, written, done = pumped(source)
    assert written == [b"ab", b"c"]
    assert not done


def test_pieces_without_a_byte_are_not_written_and_more_is_asked_for():
    source = Source([b"a"], [b""], [b"", b"b"], [b""], "end")
    _, written, done = pumped(source)
    assert (written, done) == ([b"a", b"b"], [True])


def test_it_waits_for_history_and_goes_on():
    page = Deferred()
    source = Source(page, [b"b"], "end")
    _, written, done = pumped(source)
    source.callback()
    assert not written
    page.callback([b"a"])
    assert written == [b"a", b"b"]
    assert done == [True]
    assert source.closed == 1


def test_a_page_that_is_there_already_does_not_recurse():
    source = Source(*[Deferred() for _ in range(3000)], "end")
    for page in source.takes[:-1]:
        page.callback([b"x"])
    _, written, done = pumped(source)
    assert len(written) == 3000
    assert done == [True]


def test_while_paused_nothing_is_taken():
    source = Source()
    pump, written, _ = pumped(source)
    pump.pauseProducing()
    source.takes = [[b"a"]]
    source.callback()
    assert source.takes
    pump.resumeProducing()
    assert written == [b"a"]


def test_stopping_cancels_what_it_waits_for():
    cancelled = []
    page = Deferred(cancelled.append)
    source = Source(page)
    pump, written, done = pumped(source)
    pump.stop()
    assert cancelled == [page]
    assert source.closed == 1
    assert not done
