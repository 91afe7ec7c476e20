from iop.events import life_dict
from iop.proto.node_pb2 import EdgeNodeEvent
from iop.proto.run_pb2 import Source


def test_a_lifecycle_event_is_shown_with_its_id_and_type() -> None:
    event = EdgeNodeEvent(event_id=7, at_us=1_700_000_000_000_001, kind="operator", node_id="n1",
                          detail=b'{"action":"drain"}',
                          source=Source(face="http", principal="anna", request_id="r1"))
    assert life_dict(event) == {
        "id": 7, "at": "2023-11-14T22:13:20.000001Z", "type": "operator", "node_id": "n1", "run_id": None,
        "source": {"face": "http", "principal": "anna", "request_id": "r1"}, "detail": {"action": "drain"}}


def test_a_lifecycle_event_without_details_has_an_empty_object_of_them() -> None:
    assert life_dict(EdgeNodeEvent(event_id=1, kind="edge_started"))["detail"] == {}
