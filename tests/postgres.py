"""A real PostgreSQL for tests: started once a session as an unprivileged user, on a Unix socket in a temporary folder.

``IOP_TEST_POSTGRESQL_URL`` names a server to use instead (its user must be allowed to create databases; it is never
stopped). Without PostgreSQL the tests that need it are skipped, or fail when ``IOP_REQUIRE_POSTGRESQL=1``.

Fixtures: ``postgresql`` (the server: `new_database()`, and `stop()`, `start()`, `kill()` when it is ours) and
``postgresql_url`` (the URL of an empty database, one a test).
"""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator

import pytest

# Durability against a power cut is not what these tests are about; against a killed server it does not need fsync.
_SETTINGS = {"listen_addresses": "", "fsync": "off", "full_page_writes": "off", "max_connections": "200",
             "shared_buffers": "32MB", "log_min_messages": "warning"}
_PORT = "5432"   # only a part of the socket's name


class PostgreSQL:
    """One server that takes connections; `url` is its maintenance database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._count = 0
        self._names: list[str] = []

    ours = False

    def new_database(self) -> str:
        """Make an empty database and give its URL."""
        from sqlalchemy.engine import make_url

        self._count += 1
        name = f"iop_test_{os.getpid()}_{self._count}"
        self.execute(f'CREATE DATABASE "{name}" ENCODING \'UTF8\' TEMPLATE template0')
        self._names.append(name)
        return make_url(self.url).set(database=name).render_as_string(hide_password=False)

    def execute(self, statement: str, url: str = "") -> list[tuple]:
        """Run one statement in a connection of its own."""
        import psycopg
        from sqlalchemy.engine import make_url

        parsed = make_url(url or self.url).set(drivername="postgresql")
        with psycopg.connect(parsed.render_as_string(hide_password=False), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def clean(self) -> None:
        for name in self._names:
            self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


class OwnPostgreSQL(PostgreSQL):
    """A server of our own, which may be stopped, killed and started again."""

    ours = True

    def __init__(self, binaries: str) -> None:
        self._binaries = binaries
        self.folder = tempfile.mkdtemp(prefix="iop-pg-")
        self._data = os.path.join(self.folder, "data")
        self._as_user, user = _unprivileged(self.folder)
        super().__init__(f"postgresql+psycopg://{user}@/postgres?host={self.folder}&port={_PORT}")
        self._process: subprocess.Popen[bytes] | None = None
        self._run([os.path.join(binaries, "initdb"), "-D", self._data, "-U", user, "-A", "trust", "-E", "UTF8",
                   "--locale=C", "--no-sync", "--no-instructions"])
        self.start()

    def _run(self, command: list[str]) -> None:
        done = subprocess.run([*self._as_user, *command], cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stdout}{done.stderr}")

    def start(self) -> None:
        """Start it; returns once it takes connections."""
        settings = [item for name, value in _SETTINGS.items() for item in ("-c", f"{name}={value}")]
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self._process = subprocess.Popen(
                [*self._as_user, os.path.join(self._binaries, "postgres"), "-D", self._data, "-k", self.folder,
                 "-p", _PORT, *settings],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._wait_until_ready(time.monotonic() + 60)

    def _wait_until_ready(self, deadline: float) -> None:
        import psycopg

        while True:
            try:
                self.execute("SELECT 1")
                return
            except psycopg.OperationalError:
                if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                    with open(os.path.join(self.folder, "log"), encoding="utf-8", errors="replace") as log:
                        raise RuntimeError(f"PostgreSQL did not start: {log.read()[-2000:]}") from None
                time.sleep(0.05)

    @property
    def running(self) -> bool:
        return self._process is not None

    def stop(self) -> None:
        """A fast shutdown: sessions are cut, what was committed stays."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """An immediate one, as in a crash: it recovers at the next start."""
        self._end(signal.SIGQUIT)

    def suspend(self) -> None:
        """Let every process of the server stand still: connections stay, answers do not come."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        pid = self._process.pid
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
            for process in [pid, *map(int, children.read().split())]:
                os.kill(process, how)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def clean(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _unprivileged(folder: str) -> tuple[list[str], str]:
    """(The words before a command that runs it as an unprivileged user, that user's name); the folder becomes theirs."""
    if os.geteuid() != 0:
        return [], pwd.getpwuid(os.geteuid()).pw_name
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        os.chown(folder, user.pw_uid, user.pw_gid)
        return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"], name
    raise RuntimeError("PostgreSQL does not run as root, and there is neither a user postgres nor nobody.")


def _binaries() -> str | None:
    """The folder with initdb, of the newest version installed."""
    def version(folder: str) -> int:
        digits = folder.split("/")[-2]
        return int(digits) if digits.isdigit() else 0

    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=version)
    for folder in reversed(found):
        if os.access(os.path.join(folder, "initdb"), os.X_OK):
            return folder
    on_path = shutil.which("initdb")
    return os.path.dirname(os.path.realpath(on_path)) if on_path else None


def _absent(reason: str) -> None:
    if os.environ.get("IOP_REQUIRE_POSTGRESQL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """The server; skips (or fails) when there is none."""
    url = os.environ.get("IOP_TEST_POSTGRESQL_URL")
    binaries = None if url else _binaries()
    if not url and binaries is None:
        _absent("PostgreSQL is not installed: no initdb under /usr/lib/postgresql or on PATH.")
    server = PostgreSQL(url) if url else OwnPostgreSQL(str(binaries))
    try:
        yield server
    finally:
        server.clean()


@pytest.fixture
def postgresql_url(postgresql: PostgreSQL) -> str:
    """An empty database of its own for one test."""
    return postgresql.new_database()
