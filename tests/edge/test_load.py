"""The load of the nodes' machines, as the edge keeps and tells it."""

from __future__ import annotations

import pytest_twisted

from iop.edge.node import differ
from iop.metrics import Metrics
from iop.proto.node_pb2 import AdapterState, GpuLoad, MachineLoad, NodeStatus, TargetState
from iop.rendering import load_text
from iop.testing.edge import FakeEdge

LOAD = MachineLoad(busy=0.374, memory_used_bytes=61, memory_total_bytes=100,
                   gpus=[GpuLoad(name="T4", busy=0.9, memory_used_bytes=5, memory_total_bytes=10)])


def status(**more: object) -> NodeStatus:
    return NodeStatus(version="1", adapters=[AdapterState(adapter="cli", targets=[TargetState(target="x")])], **more)


def test_a_change_of_the_load_alone_is_no_event_of_a_nodes_life():
    assert not differ(status(), status(load=LOAD)) and not differ(status(load=MachineLoad(busy=1)), status(load=LOAD))
    assert differ(status(load=LOAD), status(load=LOAD, draining=True)) and differ(None, status())


@pytest_twisted.ensureDeferred
async def test_prometheus_reads_it_of_nodes_that_are_up():
    edge = FakeEdge()
    edge.nodes_by_id["n1"].load = {"busy": 0.374, "memory_used_bytes": 61, "memory_total_bytes": 100, "gpus": [
        {"name": "T4", "busy": 0.9, "memory_used_bytes": 5, "memory_total_bytes": 10}]}
    text = (await Metrics(edge).render()).decode()
    assert 'iop_node_busy_ratio{node="n1"} 0.374' in text and 'iop_node_memory_used_bytes{node="n1"} 61.0' in text
    assert 'iop_node_gpu_busy_ratio{gpu="0",node="n1"} 0.9' in text
    edge.nodes_by_id["n1"].state = "down"
    assert 'iop_node_busy_ratio{' not in (await Metrics(edge).render()).decode()


def test_people_see_it_in_per_cent():
    gpu = {"name": "T4", "busy": 0.9, "memory_used_bytes": 5, "memory_total_bytes": 10}
    assert load_text({"busy": 0.374, "memory_used_bytes": 61, "memory_total_bytes": 100, "gpus": [gpu]}) == "37/61/90%"
    assert load_text({"busy": 0.374, "memory_used_bytes": 0, "memory_total_bytes": 0, "gpus": []}) == "37/?%"
    assert load_text({}) == ""
