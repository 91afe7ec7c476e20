"""Tells systemd how the service is (sd_notify); does nothing where no systemd asked for it.

The socket and the watchdog's period come from NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, see sd_notify(3). The beat is
a reactor timer: a reactor that hangs misses it, and systemd starts the service again.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, MutableMapping

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall


class Notifier:
    """One service's word to systemd. Takes NOTIFY_SOCKET out of the environment, so that no child speaks for us."""

    def __init__(self, clock: IReactorTime, environment: MutableMapping[str, str] = os.environ) -> None:
        self._given = address = environment.pop("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._beat: LoopingCall | None = None
        period_us = environment.get("WATCHDOG_USEC", "")
        if self._address and period_us.isdigit() and environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
            self._period_s = int(period_us) / 2_000_000  # half of it, as sd_watchdog_enabled(3) advises
            self._beat = LoopingCall(self._send, "WATCHDOG=1")
            self._beat.clock = clock

    def handed_on(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment of a start of this process in place, which speaks for it from then on."""
        return {**environment, **({"NOTIFY_SOCKET": self._given} if self._given else {})}

    def ready(self, status: str = "") -> None:
        """Started, or reloaded, and at work."""
        self._send("READY=1" + (f"\nSTATUS={status}" if status else ""))
        if self._beat is not None and not self._beat.running:
            self._beat.start(self._period_s, now=False)

    def reloading(self) -> None:
        """Reading the configuration again; `ready` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def status(self, text: str) -> None:
        """One line for `systemctl status`."""
        self._send(f"STATUS={text}")

    def stopping(self) -> None:
        self._send("STOPPING=1")
        if self._beat is not None and self._beat.running:
            self._beat.stop()

    def _send(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as wire:
                wire.sendto(text.encode(), self._address)
        except OSError:
            pass  # systemd is busy or gone; the next beat tries again
