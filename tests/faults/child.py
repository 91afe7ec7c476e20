"""The misbehaving program: numbered unique lines on both outputs, and a ledger of its own. Standard library only.

``child.py JSON``: ``{"ledger": FILE, "token": T, "lines": N, "rate": LINES A SECOND, "code": EXIT CODE, "ways": [...]}``.

Its lines are a pure function of the token, the output and the number, so that nobody needs to keep them: `line()`. The
ledger gets one line for each, *before* it is written to the pipe: what it does not name was never said. `ways`:

* ``ignore``     ignores INT, TERM and HUP
* ``setsid``     becomes a session of its own
* ``scrub``      executes itself again with an empty environment
* ``fork``       leaves a grandchild (double fork, own session) that holds the pipes and lives for ten minutes
* ``quiet-fork`` the same, with the pipes closed
* ``storm``      keeps making short-lived processes that make others
* ``halves``     writes characters in two halves, with a pause between
* ``close``      closes its outputs before it ends, and lingers a little
"""

import hashlib
import json
import os
import signal
import sys
import time

STDOUT, STDERR = "out", "err"
LIVES_S = 600.0          # of what is left behind: longer than any test


def line(token, output, number):
    """Line `number` (from 1) of one output: unique, of varied length, every seventh with bytes that are no UTF-8."""
    seed = hashlib.sha256(f"{token} {output} {number}".encode()).hexdigest()
    body = seed[:8] * (1 + int(seed[8], 16) % 4)
    odd = b" \xff\xfe\x00\x1b" if number % 7 == 0 else " ünï☃".encode()
    return f"{token} {output} {number} {body}".encode() + odd + b"\n"


def output_of(number):
    """Which output the line with this number (of both together) goes to."""
    return STDERR if number % 5 == 0 else STDOUT


def stream(token, output, count):
    """The first `count` lines that a program with this token writes to one output, as bytes."""
    lines, number = [], 0
    while len(lines) < count:
        number += 1
        if output_of(number) == output:
            lines.append(line(token, output, number))
    return b"".join(lines)


def main(text):
    asked = json.loads(text)
    ways = asked.get("ways", ())
    if "scrub" in ways and set(os.environ) - {"LC_CTYPE"}:      # which Python itself sets where it finds no locale
        os.execve(sys.executable, [sys.executable, "-I", "-S", __file__, text], {})
    signal.signal(signal.SIGINT, signal.SIG_DFL)      # Python's own handler would say something that is in no ledger
    ledger = os.open(asked["ledger"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(ledger, f"begin {os.getpid()}\n".encode())
    misbehave(ways)
    talk(asked, ledger, "halves" in ways)
    if "close" in ways:
        os.close(1)
        os.close(2)
        time.sleep(0.3)
    os.write(ledger, f"end {asked.get('code', 0)}\n".encode())
    os._exit(asked.get("code", 0))


def misbehave(ways):
    if "ignore" in ways:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    if "setsid" in ways and os.getpid() != os.getsid(0):
        os.setsid()
    for way in ("fork", "quiet-fork"):
        if way in ways:
            leave_behind(holds_pipes=way == "fork")
    if "storm" in ways:
        storm()


def leave_behind(holds_pipes):
    """A grandchild that nobody waits for, in a session of its own."""
    if os.fork():
        os.wait()
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    if not holds_pipes:
        for descriptor in (0, 1, 2):
            os.close(descriptor)
    time.sleep(LIVES_S)
    os._exit(0)


def storm():
    """A chain of processes, each of which lives for a moment and leaves two others, eight at most at one time."""
    if os.fork():
        return
    os.setsid()
    deadline = time.monotonic() + LIVES_S
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for descriptor in (1, 2):
        os.close(descriptor)
    while time.monotonic() < deadline:
        if os.fork():
            time.sleep(0.02)
            if os.fork():
                os._exit(0)
            os.setsid()
        else:
            time.sleep(0.01)
            os._exit(0)
    os._exit(0)


def talk(asked, ledger, halves):
    token, rate = asked["token"], asked.get("rate", 100)
    pause_s, each = (1 / rate, 1) if rate <= 200 else (0.02, max(1, rate // 50))
    for number in range(1, asked["lines"] + 1):
        output = output_of(number)
        text = line(token, output, number)
        os.write(ledger, f"{output} {number}\n".encode())
        target = 1 if output == STDOUT else 2
        if halves and number % 3 == 0:
            middle = text.find(b"\xc3") + 1
            write(target, text[:middle])
            time.sleep(0.002)
            text = text[middle:]
        write(target, text)
        if number % each == 0:
            time.sleep(pause_s)


def write(target, data):
    while data:
        try:
            data = data[os.write(target, data):]
        except InterruptedError:
            continue


if __name__ == "__main__":
    main(sys.argv[1])
