"""Nodes, sessions and models at the management API."""

from iop.proto import node_pb2
from iop.records import SessionRecord


def test_nodes_are_shown_labelled_and_drained(world):
    assert [node["node_id"] for node in world.call("GET", "/api/v1/nodes").json["nodes"]] == ["n1"]
    assert world.call("GET", "/api/v1/nodes/n2").status == 404
    answer = world.call("PATCH", "/api/v1/nodes/n1", {"labels": {"gpu": "a100", "room": None}, "drain": True}).json
    assert (answer["labels"], answer["draining"]) == ({"gpu": "a100"}, True)
    assert [asked for asked, _ in world.edge.asked] == ["label n1", "drain n1 True"]
    assert world.edge.asked[0][1].principal == "op"
    assert world.call("PATCH", "/api/v1/nodes/n1", {"labels": {"": "x"}}).status == 400


def test_a_node_carries_out_a_command(world):
    world.edge.answers["status"] = node_pb2.NodeCommandResponse(ok=True, result=b'{"running": 0}')
    answer = world.call("POST", "/api/v1/nodes/n1/commands", {"line": "status"})
    assert answer.json == {"ok": True, "result": {"running": 0}}
    refused = world.call("POST", "/api/v1/nodes/n1/commands", {"line": "explode"})
    assert (refused.status, refused.code) == (400, "invalid_request")
    assert world.call("POST", "/api/v1/nodes/n2/commands", {"line": "status"}).status == 404


def test_sessions_are_listed_and_closed(world):
    world.edge.sessions_by_id["s1"] = SessionRecord(session_id="s1", node_id="n1", adapter="cli", target="echo", created_us=1,
                                                    used_us=2, runs=3)
    listed = world.call("GET", "/api/v1/sessions").json["sessions"]
    assert [(one["session_id"], one["closed_at"]) for one in listed] == [("s1", None)]
    assert world.call("DELETE", "/api/v1/sessions/s1").json["closed_at"]
    assert world.call("DELETE", "/api/v1/sessions/s2").status == 409


def test_models_are_listed(world):
    assert {"name": "small", "adapter": "openai", "target": "tiny"}.items() <= world.call(
        "GET", "/api/v1/models").json["models"][1].items()
