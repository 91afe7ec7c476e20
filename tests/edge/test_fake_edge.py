"""The fake edge keeps the promises of the interfaces it stands in for."""

from zope.interface.verify import verifyObject

from iop import events
from iop.interfaces import IEdgeService, IRunCursor
from iop.proto import run_pb2
from iop.runs import START, EventId
from iop.testing.edge import FakeEdge, script


def _submitted(edge, target="tiny"):
    edge.submit(run_pb2.RunRequest(adapter="openai", target=target, prompt="hi"), run_pb2.Source(principal="me"))
    return edge.last


def _cursor(edge, run, after=START):
    taken = []
    edge.cursor(run.record.run_id, after).addCallback(taken.append)
    return taken[0]


def test_it_provides_what_it_says():
    edge = FakeEdge()
    verifyObject(IEdgeService, edge)
    verifyObject(IRunCursor, _cursor(edge, _submitted(edge)))


def test_a_script_plays_a_whole_run():
    edge = FakeEdge()
    edge.scripts["tiny"] = script(events.output("a"), events.output("b"))
    cursor = _cursor(edge, _submitted(edge))
    kinds = [event.WhichOneof("kind") for entry in cursor.take(1 << 20) for event in entry.batch.events]
    assert kinds == ["started", "output", "output", "completed"]
    assert cursor.ended


def test_a_cursor_begins_behind_the_event_it_was_given():
    edge = FakeEdge()
    edge.scripts["tiny"] = script(events.output("a"), events.output("b"))
    entries = _cursor(edge, _submitted(edge), EventId(1, 2)).take(1 << 20)
    assert entries[0].first_seq == 3
    assert entries[0].batch.events[0].output == "b"


def test_a_reader_is_told_once_a_batch():
    edge = FakeEdge()
    run = _submitted(edge)
    told = []
    _cursor(edge, run).notify(lambda: told.append(1))
    run.emit(events.output("a"), events.output("b"))
    assert told == [1]
