"""A real node process, with an edge in this one: started, stopped, killed, started again."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_twisted
from twisted.internet import defer, reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from iop.link.limits import default_limits
from iop.link.listen import LinkListener
from iop.link.peers import Peers
from iop.node import processes
from iop.node.orphans import end_all
from iop.proto.node_pb2 import AdapterConfig, NodeConfigPayload, TargetConfig
from iop.proto.run_pb2 import CancelRequest, EventAck, RunRequest
from iop.runs import new_run_id
from iop.testing.links import OpenGreeter
from tests.node.fakes import Edge

pytestmark = pytest.mark.e2e

SLEEPER = "sh -c 'trap \"\" INT TERM; sleep 300' & setsid sleep 300 & echo go; wait"
COUNTER = "echo 1; while [ ! -e go ]; do sleep 0.1; done; echo 2; echo 3"


class Awaited(Edge):
    """An Edge that can be waited for, and that acknowledges."""

    def __init__(self, config: NodeConfigPayload) -> None:
        super().__init__(config)
        self._waiting: list[tuple[Any, Deferred]] = []

    def frame_received(self, link: Any, kind: str, message: Any, packed: bytes) -> None:
        super().frame_received(link, kind, message, packed)
        if kind == "event_batch":
            through = message.first_seq + len(message.events) - 1
            link.send("event_ack", EventAck(run_id=message.run_id, attempt=message.attempt, through_seq=through))
        for condition, deferred in list(self._waiting):
            if condition() and not deferred.called:
                self._waiting.remove((condition, deferred))
                deferred.callback(None)

    def until(self, condition: Any) -> Deferred:
        if condition():
            return defer.succeed(None)
        waiting: Deferred = Deferred()
        self._waiting.append((condition, waiting))
        return waiting.addTimeout(30, reactor)


    def output(self, run_id: str) -> bytes:
        """What the run said, each event once."""
        told = {batch.first_seq + n: event.exact or event.output.encode() for batch in self.of("event_batch")
                if batch.run_id == run_id for n, event in enumerate(batch.events)}
        return b"".join(told[seq] for seq in sorted(told))


class Place:
    """A folder with node.yaml, an edge that listens, and the node processes that were started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        targets = [_cli("sleeper", ["/bin/sh", "-c", SLEEPER]), _cli("lines", ["/bin/sh", "-c", "echo a; echo b >&2; pwd"]),
                   _cli("counter", ["/bin/sh", "-c", COUNTER], folder), _cli("denied", ["/usr/bin/env"])]
        part = AdapterConfig(adapter="cli", targets=targets)
        self.edge = Awaited(NodeConfigPayload(revision=1, whole=True, adapters=[part]))
        self.listener = LinkListener("edge", OpenGreeter(self.edge), Peers(reactor), reactor, default_limits())
        self.port = reactor.listenTCP(0, self.listener, interface="127.0.0.1")
        self.nodes: list[subprocess.Popen] = []
        (folder / "token").write_text("iopn_token")
        (folder / "token").chmod(0o600)
        self.write(f"mode: guided\n  executables: [/bin/sh]\n  roots: [{folder}]\n"
                   f"  interpreters: [{os.path.realpath('/bin/sh')}, /bin/sh]")

    def write(self, policy: str, edge: str | None = None) -> None:
        edge = f"edge: {{port: {self.port.getHost().port}, plain: true}}\n" if edge is None else edge
        (self.folder / "node.yaml").write_text(f"node: {{id: n1, state: state}}\n{edge}policy:\n  {policy}\n")

    def start(self, **more: Any) -> subprocess.Popen:
        command = [sys.executable, "-m", "iop.tap", "--nodaemon", "--pidfile=", "--logfile=node.log"]
        node = subprocess.Popen([*command, "iop-node", "-c", "node.yaml"], cwd=self.folder, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, **more)
        self.nodes.append(node)
        return node

    async def configured(self, count: int = 1) -> None:
        await self.edge.until(lambda: len(self.edge.of("node_status")) >= count)

    async def begin(self, target: str) -> str:
        run_id = new_run_id()
        self.edge.link.send("run_request", RunRequest(run_id=run_id, attempt=1, adapter="cli", target=target, prompt=""))
        return run_id

    async def ended(self, run_id: str) -> tuple[str, Any]:
        await self.edge.until(lambda: any(word.split(":")[1] in ("completed", "failed", "cancelled")
                                          for word in self.edge.seen(run_id)))
        return self.edge.ending(run_id)

    @property
    def log(self) -> str:
        return (self.folder / "node.log").read_text()


def _cli(name: str, argv: list[str], folder: Path | None = None) -> TargetConfig:
    settings = {"argv": argv} | ({"cwd": str(folder)} if folder else {})
    return TargetConfig(name=name, settings=msgspec.json.encode(settings))


async def gone(node: subprocess.Popen) -> int:
    while node.poll() is None:
        pause: Deferred = Deferred()
        reactor.callLater(0.05, pause.callback, None)
        await pause
    return node.returncode


def node_marker(place: Place) -> str:
    return f"n1.{hashlib.sha256(os.path.realpath(place.folder / 'state').encode()).hexdigest()[:16]}"


def of_run(run_id: str) -> list[processes.Process]:
    return processes.members(f"IOP_RUN_ID={run_id}".encode(), {})


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path)
    yield place
    for node in place.nodes:
        if node.poll() is None:
            node.kill()
        node.communicate()
    end_all(f"IOP_NODE={node_marker(place)}")
    if place.edge.link is not None:
        place.edge.link.transport.abortConnection()
    pytest_twisted.blockon(defer.maybeDeferred(place.port.stopListening))


@pytest_twisted.ensureDeferred
async def test_a_program_runs_through_a_real_node(place) -> None:
    node = place.start()
    await place.configured()
    assert [fault.path for part in place.edge.of("config_applied")[0].parts for fault in part.faults] == [
        "adapters/cli/targets/denied/argv"]
    ready = json.loads((place.folder / "state/node.ready.json").read_text())
    assert ready["pid"] == node.pid
    run_id = await place.begin("lines")
    kind, outcome = await place.ended(run_id)
    assert (kind, outcome.exit_code, outcome.processes_left) == ("completed", 0, 0)
    node.terminate()
    assert await gone(node) == 0
    assert not (place.folder / "state/runs" / run_id).exists()
    assert not (place.folder / "state/node.ready.json").exists()
    assert "Traceback" not in place.log


@pytest_twisted.ensureDeferred
async def test_a_cancel_leaves_no_process(place) -> None:
    place.start()
    await place.configured()
    run_id = await place.begin("sleeper")
    await place.edge.until(lambda: "2:go\n" in place.edge.seen(run_id))
    assert len(of_run(run_id)) >= 3
    place.edge.link.send("cancel_request", CancelRequest(run_id=run_id))
    kind, outcome = await place.ended(run_id)
    assert (kind, outcome.processes_left) == ("cancelled", 0)
    assert of_run(run_id) == []


@pytest_twisted.ensureDeferred
async def test_a_stop_ends_what_runs_with_a_typed_ending(place) -> None:
    node = place.start()
    await place.configured()
    run_id = await place.begin("sleeper")
    await place.edge.until(lambda: "2:go\n" in place.edge.seen(run_id))
    node.terminate()
    kind, outcome = await place.ended(run_id)
    assert (kind, outcome.code) == ("failed", "node_restarted")
    assert await gone(node) == 0
    assert of_run(run_id) == []


@pytest_twisted.ensureDeferred
async def test_what_a_killed_node_left_goes_on_under_the_next_one(place) -> None:
    node = place.start()
    await place.configured()
    run_id = await place.begin("counter")
    await place.edge.until(lambda: "2:1\n" in place.edge.seen(run_id))
    supervised = {process.pid for process in of_run(run_id)}
    node.kill()
    await gone(node)
    place.start()
    await place.configured(2)
    [report] = place.edge.of("runs_report")[-1].runs
    assert (report.run_id, report.attempt, report.open) == (run_id, 1, True)
    assert supervised & {process.pid for process in of_run(run_id)}
    (place.folder / "go").touch()
    kind, outcome = await place.ended(run_id)
    assert (kind, outcome.exit_code, outcome.processes_left) == ("completed", 0, 0)
    assert place.edge.output(run_id) == b"1\n2\n3\n"
    assert of_run(run_id) == []
    while list((place.folder / "state/programs").iterdir()):
        await deferLater(reactor, 0.05)


@pytest_twisted.ensureDeferred
async def test_what_a_killed_node_left_unrecorded_is_ended_before_the_next_one_is_ready(place) -> None:
    node = place.start()
    await place.configured()
    run_id = await place.begin("sleeper")
    await place.edge.until(lambda: "2:go\n" in place.edge.seen(run_id))
    node.kill()
    await gone(node)
    (place.folder / "state/node.db").unlink()
    shutil.rmtree(place.folder / "state/programs")        # nor is its supervisor's folder there
    assert of_run(run_id)
    place.start()
    await place.configured(2)
    assert of_run(run_id) == []


@pytest_twisted.ensureDeferred
async def test_a_second_node_of_the_same_state_folder_is_refused(place) -> None:
    place.start()
    await place.configured()
    second = place.start()
    assert await gone(second) == 75
    assert b"another node is running" in second.stderr.read().lower()


@pytest_twisted.ensureDeferred
async def test_a_record_that_cannot_be_opened_ends_the_node_with_a_sentence(place) -> None:
    (place.folder / "state").mkdir(mode=0o700)
    (place.folder / "state/node.db").mkdir()
    node = place.start()
    assert await gone(node) not in (0, None)
    assert "the node does not start" in place.log
    assert "Unhandled" not in place.log


@pytest_twisted.ensureDeferred
async def test_hangup_reads_the_policy_again(place) -> None:
    node = place.start()
    await place.configured()
    place.write("mode: locked")
    node.send_signal(signal.SIGHUP)
    await place.configured(2)
    status = place.edge.of("node_status")[-1]
    assert (status.policy_mode, [len(adapter.targets) for adapter in status.adapters]) == ("locked", [0])
    place.write("mode: nonsense")
    node.send_signal(signal.SIGHUP)
    while "policy and token stay as they were" not in place.log:
        pause: Deferred = Deferred()
        reactor.callLater(0.05, pause.callback, None)
        await pause


@pytest.mark.parametrize("change, sentence", [
    (lambda place: place.write("mode: nonsense"), b"line 4: policy.mode"),
    (lambda place: (place.folder / "token").chmod(0o644), b"line 2"),
    (lambda place: (place.folder / "token").unlink(), b"cannot be read"),
    (lambda place: (place.folder / "state").mkdir(mode=0o755), b"chmod 700"),
    (lambda place: place.write("env: [LD_PRELOAD]"), b"line 3: policy.env names LD_PRELOAD"),
    (lambda place: place.write("roots: [here]"), b"line 3: policy.roots: here is not an absolute path"),
    (lambda place: place.write("mode: guided\nadapters: {clu: {}}"), b"line 5: adapters.clu is not known; allowed here: "),
    (lambda place: place.write("mode: guided\nadapters:\n  cli:\n    targets:\n      a: {argv: [echo], hue: 1}"),
     b"line 8: hue is not known; allowed here: argv, "),
    (lambda place: place.write("mode: guided\nedge: {host: 192.0.2.1, pin: 'sha256:1'}", edge=""), b": A pin is"),
    (lambda place: place.write("mode: guided\nedge: {host: 192.0.2.1, ca: none.pem}", edge=""), b"none.pem cannot be read"),
    (lambda place: place.write("mode: guided\nedge: {host: 192.0.2.1, plain: true}", edge=""), b"loopback"),
    (lambda place: place.write("mode: guided\nedge: {host: 192.0.2.1}", edge=""), b"pin"),
    (lambda place: (place.folder / "node.yaml").unlink(), b"cannot be read"),
], ids=["policy", "open token", "no token", "open state", "variable", "relative", "adapter", "target", "pin", "ca", "plain",
        "no trust", "no file"])
@pytest_twisted.ensureDeferred
async def test_a_wrong_file_is_one_sentence_and_exit_code_78(place, change, sentence) -> None:
    change(place)
    node = place.start()
    assert await gone(node) == 78
    told = node.stderr.read()
    assert sentence in told
    assert told.count(b"\n") == 1
    assert b"node.yaml" in told
