"""What a person at a terminal sees: `iop run` on a real pseudo-terminal, and the console of `iop up` over real ssh."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess

import pytest

from tests.e2e.up import IOP

needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None and not os.environ.get("IOP_REQUIRE_TOOLS"), reason="needs ssh")


def on_a_terminal(*argv: str) -> bytes:
    """Run a command with a pseudo-terminal as its standard output, and return what came to the screen."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    while True:
        try:
            data = os.read(ours, 4096)
        except OSError:        # EIO: the other side is closed
            break
        if not data:
            break
        seen += data
    os.close(ours)
    assert process.wait(30) == 0, seen
    return seen


def ssh(up, *words: str) -> subprocess.CompletedProcess:
    host, port = up.ready["console"].rsplit(":", 1)
    return subprocess.run(
        ["ssh", "-F", "/dev/null", "-p", port, "-i", up.ready["console_key"], "-o", "StrictHostKeyChecking=no", "-o",
         "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "BatchMode=yes", f"operator@{host}", *words],
        capture_output=True, text=True, timeout=60)


def test_a_program_cannot_speak_to_the_terminal(shared_up):
    seen = on_a_terminal(IOP, "--state", str(shared_up.state), "run", "-a", "cli", "-t", "escape", "x")
    assert b"\x1b" not in seen and b"\x07" not in seen and b"\\x1b]0;owned\\x07ok" in seen


def test_a_list_fits_the_terminal(shared_up):
    assert b"node-1" in on_a_terminal(IOP, "--state", str(shared_up.state), "nodes")


@needs_ssh
def test_the_console_answers_to_the_key_that_iop_up_made(shared_up):
    told = ssh(shared_up, "nodes", "--json")
    assert told.returncode == 0, told.stderr
    assert "node-1" in json.dumps([json.loads(line) for line in told.stdout.splitlines()])


@needs_ssh
def test_a_one_shot_of_the_console_has_an_exit_code(shared_up):
    assert ssh(shared_up, "nonsense").returncode != 0


@needs_ssh
def test_a_run_by_the_console_is_in_the_history_with_its_face(shared_up):
    told = ssh(shared_up, "run", "hello", "from-the-console")
    assert told.returncode == 0, told.stdout + told.stderr
    latest = json.loads(shared_up.iop("runs", "--json", "--limit", "1").stdout)
    assert latest["source"]["face"] in ("console", "ssh")
