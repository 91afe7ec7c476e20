"""Configurations: what is taken, what is refused, and what happens to what was there before."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock
from zope.interface import implementer

from iop.adapters import cli, openai
from iop.interfaces import IOffersInput
from iop.node.health import HealthWatch
from iop.node.offers import Offers
from iop.node.status import node_status
from iop.proto.node_pb2 import AdapterConfig, NodeConfigPayload, TargetConfig
from iop.proto.run_pb2 import Limits
from tests.node.fakes import HandFactory, House, config, make_tools, target


class Bench:
    """Offers and the factory behind them."""

    def __init__(self, *own: TargetConfig, mode: str = "guided") -> None:
        self.factory = HandFactory()
        self.tools = make_tools(Clock(), mode)
        parts = [AdapterConfig(adapter="hand", targets=own)] if own else []
        self.offers = Offers(parts, self.tools, lambda: [self.factory])

    def apply(self, payload: NodeConfigPayload) -> dict[str, tuple[bool, list[tuple[str, str]]]]:
        return {part.path: (part.accepted, [(fault.path, fault.code) for fault in part.faults])
                for part in self.offers.apply(payload).parts}

    @property
    def names(self) -> list[str]:
        backend = self.offers.backends.get("hand")
        return list(backend.targets) if backend is not None else []


def test_a_refused_target_leaves_its_neighbours() -> None:
    bench = Bench()
    answer = bench.apply(config(target("a"), target("b", bad=1), target("c", argv=["/no/such"]), target("d")))
    assert answer == {"adapters/hand": (True, [("adapters/hand/targets/b", "config_error"),
                                               ("adapters/hand/targets/c/argv", "policy_denied")])}
    assert bench.names == ["a", "d"]


def test_an_adapter_that_is_not_there_is_refused_and_the_others_are_not() -> None:
    bench = Bench()
    payload = config(target("a"))
    payload.adapters.add(adapter="nope")
    assert bench.apply(payload) == {"adapters/hand": (True, []),
                                    "adapters/nope": (False, [("adapters/nope", "no_such_adapter")])}


def test_a_part_that_cannot_be_built_keeps_the_last_good_one() -> None:
    bench = Bench()
    bench.apply(config(target("a")))
    good = bench.offers.backends["hand"]
    bench.factory.refuses = "not today"
    assert bench.apply(config(target("b"))) == {"adapters/hand": (False, [("adapters/hand", "config_error")])}
    assert bench.offers.backends["hand"] is good
    bench.factory.refuses = ""
    assert bench.apply(config(target("a"))) == {"adapters/hand": (True, [])}
    assert bench.offers.backends["hand"] is good
    assert good.adapter.closed == 0


def test_the_same_configuration_again_builds_nothing_and_gives_the_same_answer() -> None:
    bench = Bench()
    first = bench.apply(config(target("a"), target("b", bad=1)))
    assert bench.apply(config(target("a"), target("b", bad=1), revision=2)) == first
    assert len(bench.factory.built) == 1


def test_only_the_parts_that_changed_are_touched() -> None:
    bench = Bench()
    bench.apply(config(target("a")))
    assert bench.apply(NodeConfigPayload(revision=2, labels={"zone": "b"})) == {}
    assert bench.offers.labels == {"zone": "b"}
    assert bench.names == ["a"]
    assert bench.apply(NodeConfigPayload(revision=3, removed_adapters=["hand"])) == {"adapters/hand": (True, [])}
    assert bench.names == []
    assert bench.factory.built[0].closed == 1


def test_a_whole_configuration_removes_what_it_does_not_name() -> None:
    bench = Bench()
    bench.apply(config(target("a")))
    bench.apply(NodeConfigPayload(revision=2, whole=True))
    assert bench.names == []


def test_the_nodes_own_targets_win_and_stay() -> None:
    own = target("a", mine=True)
    own.limits.run_s = 60
    bench = Bench(own)
    theirs = target("a", mine=False)
    theirs.aliases.append("alias")
    theirs.limits.run_s = 600
    theirs.limits.silence_s = 5
    bench.apply(config(theirs, target("b")))
    merged = bench.offers.backends["hand"].targets["a"]
    assert (merged.settings, merged.own, list(merged.config.aliases)) == ({"mine": True}, True, ["alias"])
    assert (merged.ceiling.run_s, merged.ceiling.silence_s) == (60, 5)
    assert bench.names == ["a", "b"]
    bench.apply(NodeConfigPayload(revision=2, whole=True))
    assert bench.names == ["a"]


def test_locked_takes_only_own_targets() -> None:
    bench = Bench(target("a"), mode="locked")
    assert bench.apply(config(target("a"), target("b"))) == {
        "adapters/hand": (True, [("adapters/hand/targets/b", "policy_denied")])}
    assert bench.names == ["a"]


def test_a_stricter_policy_takes_targets_away_and_a_milder_one_gives_them_back() -> None:
    bench = Bench()
    bench.apply(config(target("a")))
    guided = bench.tools.policy
    bench.tools.policy = make_tools(Clock(), "locked").policy
    bench.offers.judge_again()
    assert bench.names == []
    bench.tools.policy = guided
    bench.offers.judge_again()
    assert bench.names == ["a"]


def test_a_fault_of_an_adapter_is_a_fault_of_its_part_only() -> None:
    bench = Bench()

    def broken(targets, tools):
        raise RuntimeError("boom")

    bench.factory.build = broken
    assert bench.apply(config(target("a"))) == {"adapters/hand": (False, [("adapters/hand", "adapter_error")])}


def test_work_that_runs_goes_on_under_the_old_configuration() -> None:
    house = House()
    old = house.adapter
    run = house.begin()
    house.tell("node_config_payload", config(target("u"), revision=2))
    assert house.adapter is not old
    assert old.closed == 0
    run.say("still here")
    run.end()
    house.pair.pump()
    assert house.edge.ending(run.spec.run_id)[0] == "completed"
    assert old.closed == 1
    assert [one.target for one in house.edge.of("node_status")[-1].adapters[0].targets] == ["u"]
    house.tell("run_request", house.request())
    assert house.edge.of("run_rejected")[0].code == "no_such_target"


def test_a_request_cannot_raise_the_owners_limits() -> None:
    own = target("a")
    own.limits.run_s = 60
    house = House(own=[AdapterConfig(adapter="hand", targets=[own])])
    run = house.begin(target="a", limits=Limits(run_s=600, silence_s=7))
    assert (run.spec.limits.run_s, run.spec.limits.silence_s, run.spec.limits.output_bytes) == (60, 7, 1 << 30)
    assert dict(run.spec.marker) == {"IOP_NODE": "n1", "IOP_RUN_ID": run.spec.run_id}


def test_own_requirements_are_allowed_at_the_start_as_well() -> None:
    bench = Bench(target("a", argv=["/bin/sh", "-c", "true"]))
    bench.apply(NodeConfigPayload(whole=True))
    assert bench.names == ["a"]
    bench.tools.require(bench.factory.requirements({"argv": ["/bin/sh", "-c", "true"]}))


@implementer(IOffersInput)
class TalkingFactory(HandFactory):
    """Its targets take input while they run."""

    def takes_input(self, settings: object) -> bool:
        return True


@pytest.mark.parametrize(("factory", "takes"), [(HandFactory, False), (TalkingFactory, True)])
def test_a_node_tells_of_each_target_whether_its_runs_take_input(factory: type[HandFactory], takes: bool) -> None:
    bench = Bench()
    bench.factory = factory()
    bench.apply(config(target("a")))
    watch = HealthWatch(Clock(), lambda: bench.offers.backends, lambda: None)
    told = node_status(bench.offers.backends, watch, bench.tools.servers, policy_mode="guided", draining=False, labels={},
                       facts={})
    state = told.adapters[0].targets[0]
    assert state.HasField("takes_input") and state.takes_input is takes


def test_a_program_takes_input_where_its_target_says_so() -> None:
    settings = [cli.factory.settings(TargetConfig(name="t", settings=text)) for text in (
        b'{"argv": ["cat"]}', b'{"argv": ["cat"], "input": "open"}')]
    assert [cli.factory.takes_input(one) for one in settings] == [False, True]


def serving(mode: str, own: bool) -> tuple[Offers, list[tuple[str, str]]]:
    """A target with a server of the node's own, defined by the node's file or by the edge, and what was refused of it."""
    settings = b'{"serve": {"argv": ["/usr/bin/env", "--port", "{port}"], "env": {"A": "1"}}}'
    part = AdapterConfig(adapter="openai", targets=[TargetConfig(name="m", settings=settings)])
    offers = Offers([part] if own else [], make_tools(Clock(), mode), lambda: [openai.factory])
    offers.apply(NodeConfigPayload(whole=True, adapters=[] if own else [part]))
    return offers, [(fault.path, fault.code) for fault in offers.faults()]


@pytest.mark.parametrize(("mode", "own", "offered"), [
    ("locked", True, True), ("locked", False, False), ("guided", True, True), ("guided", False, False),
    ("trusting", False, True)])
def test_a_server_of_the_nodes_own_is_judged_as_a_program(mode, own, offered) -> None:
    offers, faults = serving(mode, own)
    assert bool(offers.servers()) is offered
    assert faults == ([] if offered else [("adapters/openai/targets/m/argv", "policy_denied")])


def test_its_target_is_safe_to_begin_again_and_cold_until_somebody_needs_it() -> None:
    offers, _ = serving("guided", True)
    watch = HealthWatch(Clock(), lambda: offers.backends, lambda: None)
    status = node_status(offers.backends, watch, make_tools(Clock()).servers, policy_mode="guided", draining=False, labels={},
                         facts={})
    [state] = status.adapters[0].targets
    assert state.retry_safe and state.ready and state.HasField("warm") and not state.warm


@pytest.mark.parametrize(("settings", "word"), [
    (b"{}", "serve"), (b'{"url": "http://127.0.0.1:1/v1", "serve": {"argv": ["/x", "{port}"]}}', "do not go together"),
    (b'{"serve": {"argv": ["/x"]}}', "{port}"), (b'{"serve": {"argv": ["/x", "{port}"], "what": 1}}', "what")])
def test_settings_of_a_server_that_cannot_work_are_refused_with_their_reason(settings, word) -> None:
    offers = Offers([], make_tools(Clock(), "trusting"), lambda: [openai.factory])
    part = AdapterConfig(adapter="openai", targets=[TargetConfig(name="m", settings=settings)])
    offers.apply(NodeConfigPayload(whole=True, adapters=[part]))
    assert [word in fault.reason for fault in offers.faults()] == [True]
