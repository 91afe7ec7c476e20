"""A further node, made with the script that `iop node-config` prints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from tests.e2e.up import eventually


def test_the_printed_script_makes_a_node_that_joins_and_is_configured_by_sighup(bring_up, tmp_path):
    up = bring_up()
    script = up.iop("node-config", "laptop").stdout
    home = tmp_path / "home"
    home.mkdir()
    subprocess.run(["sh"], input=script, text=True, check=True, env={"HOME": str(home), "PATH": os.environ["PATH"]})
    node = subprocess.Popen([sys.executable, "-P", "-m", "iop.tap", "--nodaemon", "--pidfile=", "iop-node", "-c",
                             str(home / "iop-node" / "node.yaml")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        def laptop() -> dict:
            nodes = {one["node_id"]: one for one in json.loads(up.iop("nodes", "--json").stdout)}
            return nodes.get("laptop") or {"state": "down", "targets": []}

        eventually(lambda: laptop()["state"] == "up", "the new node is up")
        file = up.state / "edge" / "edge.yaml"
        file.write_text(file.read_text() + "- id: laptop\n  adapters: {mock: {targets: {far: {echo: true}}}}\n")
        up.process.send_signal(signal.SIGHUP)
        eventually(lambda: laptop()["targets"], "the new node is configured")
        assert up.iop("run", "-a", "mock", "-t", "far", "hi").stdout.strip() == "hi"
    finally:
        node.terminate()
        node.wait(40)


def test_a_node_of_another_machine_needs_tls_first(bring_up):
    told = bring_up().iop("node-config", "laptop", "--host", "192.0.2.1")
    assert told.returncode == 2 and "iop tls init" in told.stderr and told.stdout == ""
