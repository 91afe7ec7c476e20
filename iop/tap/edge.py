"""``twistd iop-edge``: an edge as a process. Checks its configuration first, opens nothing before it is started."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from iop.addresses import host_port, is_loopback
from iop.config import EdgeConfig, HttpListen, LinkListen, load_edge
from iop.console.server import ConsoleServer
from iop.edge.commands import edge_commands
from iop.edge.nodefile import NodeFile
from iop.edge.routes import make_site
from iop.edge.service import EdgeService
from iop.errors import IOPError
from iop.files import make_private, remove_ready, write_private, write_ready
from iop.keys import SCOPES, KeyRing, add_key, load_keys
from iop.link.limits import default_limits
from iop.link.listen import LinkListener
from iop.link.peers import Peers
from iop.link.tls import server_options
from iop.metrics import Metrics
from iop.store.engine import parse_url
from iop.store.history import History
from iop.tap import process
from iop.tap.notify import Notifier
from iop.tap.signals import Signals
from iop.web import transport
from iop.web.site import Site

STOP_S = 20.0                    # for all of an orderly end
GOODBYE_S = 6.0                  # of which links have this much

log = Logger()


class Options(process.Options):
    """``-c edge.yaml``"""

    config: EdgeConfig
    warnings: list[str]

    def read(self, file: str) -> None:
        self.config = load_edge(file)
        self.warnings = check(self.config)


def check(config: EdgeConfig) -> list[str]:
    """All that can be known before anything is opened. Raises ConfigError; returns what is worth a warning."""
    for name in ("link", "http"):
        listen: LinkListen | HttpListen = getattr(config.listen, name)
        if listen.tls is not None:
            with config.document.blamed("listen", name, "tls"):
                server_options(config.path(listen.tls.cert), config.path(listen.tls.key))
        elif not is_loopback(listen.host):
            raise config.document.error(("listen", name, "host"), f"listen.{name} is open to other machines and has no TLS: "
                                        "tokens would travel in the clear. Give it `tls: {cert, key}` (`iop tls init` makes "
                                        "them) or the host 127.0.0.1.")
    if config.history:
        with config.document.blamed("history"):
            parse_url(config.history)
    load_keys(config.path(config.keys))
    return check_adapters(config)


def check_adapters(config: EdgeConfig) -> list[str]:
    """Nodes may have other adapters than this machine. Raises ConfigError; returns what is worth a warning."""
    return [f"The adapter {name} of {node.id} is not installed here; its targets cannot be checked before the node does."
            for index, node in enumerate(config.nodes)
            for name in process.check_targets(config.document, ("nodes", index, "adapters"), node.adapters)]


def make_keyring(config: EdgeConfig) -> KeyRing:
    """The keys; at the first start, one for the operator is made and left in the state folder."""
    file = config.path(config.keys)
    if not any(key.kind == "api" for key in load_keys(file)):
        _, text = add_key(file, "api", "operator", list(SCOPES))
        place = os.path.join(config.state, "operator.key")
        write_private(place, text.encode("ascii") + b"\n")
        log.info("there was no API key, so one was made for the operator: {place}", place=place)
    return KeyRing(load_keys(file))


class EdgeProcess(Service):
    """The parts of an edge, put together and started in order; stopped in the other."""

    name = "iop-edge"

    def __init__(self, config: EdgeConfig, reactor: Any, warnings: list[str]) -> None:
        self._config = config
        self._reactor = reactor
        self._warnings = warnings
        self._notifier = Notifier(reactor)
        self._ready_file = os.path.join(config.state, "edge.ready.json")
        self._ports: list[Any] = []
        self._history: History | None = None
        self._edge: EdgeService | None = None
        self._links: LinkListener | None = None
        self._site: Site | None = None
        self._console: ConsoleServer | None = None
        self._metrics: Metrics | None = None

    # --- starting ---------------------------------------------------------------------------------------------------

    def startService(self) -> None:
        super().startService()
        for sentence in self._warnings:
            log.warn("{sentence}", sentence=sentence)
        self._reactor.callWhenRunning(Signals(self._reactor, self._reread).install)
        self._reactor.callWhenRunning(self._start)

    def _start(self) -> None:
        Deferred.fromCoroutine(self._begin()).addErrback(partial(process.not_started, self._reactor, "the edge"))

    async def _begin(self) -> None:
        config = self._config
        with config.document.blamed("edge", "state"):
            make_private(config.state)
        keyring = make_keyring(config)
        database = config.history or "sqlite:///" + os.path.join(config.state, "history.db")
        history = History(database, self._reactor)
        await history.open()
        self._history = history
        remove_ready(self._ready_file)       # not before the history is ours: another edge may be at work in this folder
        node_file = NodeFile(os.path.join(config.state, "nodes.json"), self._in_thread)
        edge = self._edge = EdgeService(config, history, self._reactor, keyring, node_file)
        await edge.start()
        if not self.running:
            return
        where = {"link": self._listen_links(edge), "http": self._listen_http(edge),
                 "console": self._listen_console(edge, history)}
        write_ready(self._ready_file, where | {"http_tls": config.listen.http.tls is not None, "pid": os.getpid()})
        process.collect_seldom()
        self._notifier.ready(f"links at {where['link']}, HTTP at {where['http']}")
        log.info("the edge {edge_id} is ready: HTTP at {http}, links at {link}, console {console}",
                 edge_id=config.edge.id, **where | {"console": f"at {where['console']}" if where["console"] else "off"})

    def _in_thread(self, function: Any, *arguments: Any) -> Deferred[Any]:
        return deferToThreadPool(self._reactor, self._reactor.getThreadPool(), function, *arguments)

    def _listen_links(self, edge: EdgeService) -> str:
        config = self._config
        limits = default_limits(run_window_bytes=config.edge.run_window_bytes,
                                link_window_bytes=config.edge.link_window_bytes)
        # Epochs grow over restarts: no edge gives out a million of them in a second.
        peers = Peers(self._reactor, epoch=int(time.time()) << 20)
        self._links = LinkListener(config.edge.id, edge.greeter, peers, self._reactor, limits)
        return self._listen(config.listen.link, self._links)

    def _listen_http(self, edge: EdgeService) -> str:
        self._metrics = Metrics(edge, self._reactor, self._links)
        self._metrics.start()
        self._site = make_site(edge, lambda: edge.keyring, self._config.listen.http, self._metrics, self._reactor)
        return self._listen(self._config.listen.http, self._site, partial(transport.listen, self._reactor))

    def _listen_console(self, edge: EdgeService, history: History) -> str | None:
        listen = self._config.listen.console
        if listen is None:
            return None
        namespace = {"edge": edge, "history": history, "process": self} if listen.manhole else None
        self._console = ConsoleServer(edge_commands(edge), lambda caller: caller, listen, self._console_path, self._reactor,
                                      namespace, history.audit, name=edge.edge_id)
        return self._opened(self._reactor.listenTCP(listen.port, self._console, interface=listen.host))

    def _console_path(self, name: str) -> str:
        """The host key, which the edge makes, lies in the state folder; what a person writes, beside edge.yaml."""
        listen = self._config.listen.console
        made = listen is not None and name == listen.host_key
        return os.path.join(self._config.state, name) if made else self._config.path(name)

    def _listen(self, listen: LinkListen | HttpListen, factory: Any, listen_tcp: Callable[..., Any] | None = None) -> str:
        if listen.tls is None:
            return self._opened((listen_tcp or self._reactor.listenTCP)(listen.port, factory, interface=listen.host))
        options = server_options(self._config.path(listen.tls.cert), self._config.path(listen.tls.key))
        return self._opened(self._reactor.listenSSL(listen.port, factory, options, interface=listen.host))

    def _opened(self, port: Any) -> str:
        self._ports.append(port)
        address = port.getHost()
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)  # noqa: S104  # where to reach it
        return host_port(host, address.port)

    # --- while it runs ----------------------------------------------------------------------------------------------

    def _reread(self) -> None:
        """SIGHUP. A file that cannot be used changes nothing."""
        if self._edge is None:
            return
        self._notifier.reloading()
        try:
            config = load_edge(self._config.file)
            warnings = check(config)
            keyring = KeyRing(load_keys(config.path(config.keys)))
        except IOPError as error:
            log.error("the configuration stays as it was: {why}", why=error.message)
        else:
            for sentence in warnings:
                log.warn("{sentence}", sentence=sentence)
            self._tell_unmoved(config)
            self._config = config
            self._edge.reload(config, keyring)
            log.info("the configuration was read again")
        self._notifier.ready()

    def _tell_unmoved(self, config: EdgeConfig) -> None:
        """What a new start is needed for."""
        old = self._config
        for name, before, now in (("listen", old.listen, config.listen), ("history", old.history, config.history),
                                  ("edge.id", old.edge.id, config.edge.id), ("edge.state", old.state, config.state)):
            if before != now:
                log.warn("{name} has changed in {file}; that takes effect when the edge is started again", name=name,
                         file=config.file)

    # --- stopping ---------------------------------------------------------------------------------------------------

    def stopService(self) -> Deferred[None]:
        """Take nothing more, say goodbye, commit, close; within 20 s."""
        super().stopService()
        self._notifier.stopping()
        if self._history is not None:
            remove_ready(self._ready_file)
        stopped = Deferred.fromCoroutine(self._end()).addTimeout(STOP_S, self._reactor)
        stopped.addErrback(lambda failure: log.failure("the edge did not stop in order", failure))
        return stopped

    async def _end(self) -> None:
        if self._edge is not None:
            self._edge.stop_intake()
        await DeferredList([maybeDeferred(port.stopListening) for port in self._ports], consumeErrors=True)
        if self._console is not None:
            self._console.stop()
        if self._site is not None:       # while the nodes can still be told of the chats whose clients this cuts off
            clients = self._site.disconnect_all().addTimeout(GOODBYE_S, self._reactor)
            await clients.addErrback(lambda failure: log.warn("some clients did not close in time"))
        if self._links is not None:
            links = self._links.stop().addTimeout(GOODBYE_S, self._reactor)
            await links.addErrback(lambda failure: log.warn("some links did not close in time"))
        if self._metrics is not None:
            self._metrics.stop()
        if self._edge is not None:
            self._edge.stop()
        if self._history is not None:
            await self._history.close()
        log.info("the edge has stopped")


def makeService(options: Options) -> EdgeProcess:
    return EdgeProcess(options.config, process.steady_reactor(), options.warnings)
