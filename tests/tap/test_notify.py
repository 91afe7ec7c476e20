"""The word to systemd, over a real datagram socket."""

import os
import socket

import pytest
from twisted.internet.task import Clock

from iop.tap.notify import Notifier


@pytest.fixture
def systemd(tmp_path):
    wire = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    wire.bind(str(tmp_path / "notify"))
    wire.setblocking(False)
    yield wire
    wire.close()


def said(wire):
    lines = []
    while True:
        try:
            lines.append(wire.recv(4096).decode())
        except BlockingIOError:
            return lines


def test_nothing_is_sent_where_no_systemd_asked():
    Notifier(Clock(), {}).ready()


def test_ready_and_stopping_are_told_and_the_socket_leaves_the_environment(systemd):
    environment = {"NOTIFY_SOCKET": systemd.getsockname()}
    notifier = Notifier(Clock(), environment)
    notifier.ready("edge of 2 nodes")
    notifier.stopping()
    assert said(systemd) == ["READY=1\nSTATUS=edge of 2 nodes", "STOPPING=1"]
    assert environment == {}


def test_the_watchdog_is_fed_twice_a_period_until_stopping(systemd):
    clock = Clock()
    notifier = Notifier(clock, {"NOTIFY_SOCKET": systemd.getsockname(), "WATCHDOG_USEC": "30000000",
                                "WATCHDOG_PID": str(os.getpid())})
    notifier.ready()
    clock.advance(15)
    clock.advance(15)
    notifier.stopping()
    clock.advance(15)
    assert said(systemd) == ["READY=1", "WATCHDOG=1", "WATCHDOG=1", "STOPPING=1"]


def test_a_watchdog_of_another_process_is_not_ours(systemd):
    clock = Clock()
    Notifier(clock, {"NOTIFY_SOCKET": systemd.getsockname(), "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}).ready()
    clock.advance(60)
    assert said(systemd) == ["READY=1"]


def test_reloading_carries_the_monotonic_time(systemd):
    Notifier(Clock(), {"NOTIFY_SOCKET": systemd.getsockname()}).reloading()
    assert said(systemd)[0].startswith("RELOADING=1\nMONOTONIC_USEC=")


def test_a_systemd_that_went_away_disturbs_nothing(tmp_path):
    Notifier(Clock(), {"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()


def test_a_start_in_place_speaks_to_the_same_socket():
    environment = {"NOTIFY_SOCKET": "@iop", "PATH": "/bin"}
    notifier = Notifier(Clock(), environment)
    assert notifier.handed_on(environment) == {"NOTIFY_SOCKET": "@iop", "PATH": "/bin"}
    assert Notifier(Clock(), {}).handed_on({"A": "1"}) == {"A": "1"}
