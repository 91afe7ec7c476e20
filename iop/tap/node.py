"""``twistd iop-node -c node.yaml``: the wiring of a node process. Nothing is opened before the service starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from twisted.application.service import MultiService
from twisted.logger import Logger

from iop._version import VERSION_TEXT
from iop.addresses import is_loopback
from iop.config import NodeConfig, load_node
from iop.errors import ConfigError, IOPError
from iop.files import make_private, read_secret, remove_ready
from iop.keys import Secret
from iop.link.dial import LinkDialer
from iop.link.session import PROTOCOL
from iop.link.tls import ClientOptions, client_options
from iop.node import processes
from iop.node.commands import node_commands
from iop.node.gpus import find_gpus
from iop.node.lifecycle import Lifecycle
from iop.node.load import LoadWatch
from iop.node.machine import machine_facts
from iop.node.offers import Offers
from iop.node.policy import Policy, gather_facts
from iop.node.segments import SegmentLog
from iop.node.service import NodeService
from iop.node.spawn import Spawner
from iop.node.spool import Spool
from iop.node.tools import Tools
from iop.proto.link_pb2 import Hello
from iop.store.record import NodeRecord
from iop.tap import process
from iop.tap.inherited import adopt_children
from iop.tap.notify import Notifier
from iop.tap.restart import Restart
from iop.tap.signals import Signals
from iop.tap.statelock import StateLock, node_marker

log = Logger()

TAKEN = 75                # EX_TEMPFAIL of sysexits.h: another node uses this state folder


class Options(process.Options):
    """``-c node.yaml``"""

    config: NodeConfig
    policy: Policy
    token: Secret
    tls: ClientOptions | None

    def read(self, file: str) -> None:
        self.config = load_node(file)
        self.policy = read_policy(self.config)
        self.token = read_token(self.config, os.environ)
        self.tls = tls_of(self.config)
        check_adapters(self.config)
        with self.config.document.blamed("node", "state"):
            make_private(self.config.state)


def read_policy(config: NodeConfig) -> Policy:
    """The policy as the file says, on this machine. Raises ConfigError."""
    with config.document.blamed("policy"):
        return Policy(config.policy, gather_facts(os.environ.get("PATH", os.defpath)))


def read_token(config: NodeConfig, environment: Mapping[str, str]) -> Secret:
    """From systemd's credential, where there is one, else from the file that node.yaml names. Raises ConfigError."""
    credentials = environment.get("CREDENTIALS_DIRECTORY", "")
    given = os.path.join(credentials, "token")
    with config.document.blamed("edge", "token_file"):
        text = read_secret(given if credentials and os.path.exists(given) else config.path(config.edge.token_file))
        if not text:
            raise ConfigError(f"The node's token is empty; make one with `iop keys new node {config.node.id}` at the edge.")
    return Secret(text)


def tls_of(config: NodeConfig) -> ClientOptions | None:
    """What the link is checked by; None for plain TCP on loopback. Raises ConfigError."""
    edge = config.edge
    if edge.plain:
        if edge.ca or edge.pin:
            raise config.document.error(("edge", "plain"), "edge.plain does not go with edge.ca or edge.pin; remove one.")
        if not is_loopback(edge.host):
            raise config.document.error(("edge", "plain"), f"edge.plain is for loopback only, and {edge.host} is another "
                                        "machine; give edge.ca or edge.pin instead.")
        return None
    if not edge.ca and not edge.pin:
        raise config.document.error(("edge",), "edge needs `ca` (a PEM file) or `pin` (sha256:…), or `plain: true` on "
                                    "loopback.")
    with config.document.blamed("edge", "pin" if edge.pin else "ca"):
        return client_options(edge.name or edge.host, ca_file=config.path(edge.ca) if edge.ca else "", pin=edge.pin)


def check_adapters(config: NodeConfig) -> None:
    """The targets that this machine's owner defines. Raises ConfigError."""
    for name in process.check_targets(config.document, ("adapters",), config.adapters):
        raise config.document.error(("adapters", name), f"adapters.{name} is not known; allowed here: "
                                    f"{', '.join(sorted(process.adapter_factories()))}.")


class NodeProcess(MultiService):
    """The node's services, the lock of its state folder, and the signals of its process."""

    name = "iop-node"

    def __init__(self, reactor: Any, options: Options) -> None:
        super().__init__()
        self._reactor = reactor
        self._options = options
        self._token = options.token
        self._config: NodeConfig = options.config
        self._lock = StateLock(options.config.state)
        self._notifier = Notifier(reactor)
        self._restart = Restart(reactor, self._check, self._suspend, self._notifier, self._lock,
                                end_asked=lambda: self._signals.end_asked)
        self._signals = Signals(reactor, self.reload, self._restart.asked_by_signal)
        self._boot_id = processes.boot_id()
        self.node = self._wire()
        self.node.setServiceParent(self)
        LoadWatch(reactor, os.environ.get("PATH", os.defpath), self.node.load_changed).setServiceParent(self)

    def _wire(self) -> NodeService:
        reactor, config = self._reactor, self._config
        marker = {"IOP_NODE": node_marker(config)}
        spawner = Spawner(reactor, os.path.join(config.state, "programs"), marker, self._program_started)
        tools = Tools(reactor, spawner, self._options.policy, os.path.join(config.state, "runs"), dict(os.environ),
                      servers_folder=os.path.join(config.state, "servers"), memory_bytes=config.servers.memory_bytes)
        offers = Offers(config.adapters, tools, lambda: process.adapter_factories().values())
        lifecycle = Lifecycle(reactor, state=config.state, marker=f"IOP_NODE={marker['IOP_NODE']}", dial=self._dial,
                              hang_up=self._hang_up, told=self._notifier.ready,
                              not_started=partial(process.not_started, reactor, "the node"))
        node = NodeService(
            config.node.id, offers=offers, tools=tools, record=NodeRecord(os.path.join(config.state, "node.db"), reactor),
            clock=reactor, marker=marker,
            spool=Spool(SegmentLog(os.path.join(config.state, "spool")), reactor, config.spool.quota_bytes),
            labels=config.node.labels, lifecycle=lifecycle,
            commands=node_commands(self._restart.ask))
        self._dialer = LinkDialer(self._hello, node, reactor, self._not_linked)
        return node

    # --- starting and stopping

    def startService(self) -> None:
        self._lock_state()
        adopt_children()
        self._reactor.callWhenRunning(self._signals.install)
        self.node.facts = machine_facts()
        if self._config.policy.mode == "trusting":
            log.warn("policy.mode is trusting: whoever commands the edge can run any program on this machine")
        super().startService()
        find_gpus(self._reactor, os.environ.get("PATH", os.defpath), self._gpus_found)

    def stopService(self) -> Any:
        if self._restart.suspended is not None:     # what a stop would end goes on
            return self._restart.suspended
        self._notifier.stopping()
        return super().stopService()

    def _lock_state(self) -> None:
        if not self._lock.take():
            sentence = f"Another node is running with the state folder {self._config.state}."
            print(sentence, file=sys.__stderr__, flush=True)  # sys.stderr leads to the log by now
            raise SystemExit(TAKEN)

    # --- the link

    def _hello(self) -> Hello:
        return Hello(peer_id=self._config.node.id, token=self._token.reveal(), instance=self._lock.instance,
                     protocol=PROTOCOL, labels=self._config.node.labels, version=VERSION_TEXT)

    def _dial(self) -> None:
        process.collect_seldom()
        self._dialer.start(self._reactor, self._config.edge.host, self._config.edge.port, self._options.tls)

    def _not_linked(self, error: IOPError) -> None:
        self._notifier.status(f"no link: {error.message}")

    def _hang_up(self) -> Any:
        return self._dialer.stop()

    # --- what happens

    def _program_started(self, run_id: str, pid: int) -> None:
        for run in self.node.runs.of_run(run_id):
            noted = self.node.record.program_started(run_id, run.spec.attempt, pid, processes.start_ticks(pid), self._boot_id)
            noted.addErrback(lambda failure: log.warn("run {run_id}: its program is not in the node's record: {reason}",
                                                      run_id=run_id, reason=failure.getErrorMessage()))

    def _gpus_found(self, names: str) -> None:
        self.node.facts = {**self.node.facts, "gpus": names}
        self.node.tell_status()

    # --- SIGUSR2, and the command `restart`

    def _check(self) -> None:
        """What a new start would refuse, and what it could not take up. Raises ConfigError."""
        fresh = Options()
        fresh.read(self._config.file)
        if node_marker(fresh.config) != node_marker(self._config):
            raise fresh.config.document.error(("node",), "node.id and node.state cannot change under what runs; stop the "
                                              "node and start it.")

    def _suspend(self) -> Any:
        remove_ready(os.path.join(self._config.state, "node.ready.json"))
        return self.node.suspend()

    # --- SIGHUP

    def reload(self) -> None:
        """Read the policy and the token again, and dial at once where no link is; a file that is wrong changes nothing."""
        if self._restart.suspended is not None:
            return
        self._notifier.reloading()
        try:
            config = load_node(self._config.file)
            policy, token = read_policy(config), read_token(config, os.environ)
        except IOPError as error:
            log.error("policy and token stay as they were: {reason}", reason=error.message)
        else:
            self._token = token
            self.node.policy_changed(policy)
            self._dialer.hurry()
            log.info("policy and token were read again: {mode}", mode=policy.mode)
        self._notifier.ready("reloaded")


def makeService(options: Options) -> NodeProcess:
    return NodeProcess(process.steady_reactor(), options)
