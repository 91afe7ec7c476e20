"""Connections to backends that send at once: a request to one that is kept is one system call."""

from __future__ import annotations

from typing import Any

from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.posixbase import PosixReactorBase
from twisted.internet.tcp import Client, Connector

from iop.directwrite import DirectWrite


class DirectClient(DirectWrite, Client):
    """A client's connection."""


class DirectConnector(Connector):
    """Makes them."""

    def _makeTransport(self) -> DirectClient:
        return DirectClient(self.host, self.port, self.bindAddress, self, self.reactor)


class _Connects:
    """A reactor's connectTCP."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def connectTCP(self, host: str, port: int, factory: Any, timeout: float = 30, bindAddress: Any = None) -> Connector:
        connector = DirectConnector(host, port, factory, timeout, bindAddress, self._reactor)
        connector.connect()
        return connector


def direct_endpoint(reactor: Any, address: str, port: int, timeout_s: float) -> TCP4ClientEndpoint:
    """To an IPv4 address. A reactor that is none of Twisted's own connects in its own way."""
    own = isinstance(reactor, PosixReactorBase)
    return TCP4ClientEndpoint(_Connects(reactor) if own else reactor, address, port, timeout=timeout_s)
