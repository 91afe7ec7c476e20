"""The rules of the house, checked on the source itself: floors, importers, generated code, dependencies, units."""

from __future__ import annotations

import ast
import configparser
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from zope.interface import Interface, implementedBy
from zope.interface.interface import InterfaceClass
from zope.interface.verify import verifyClass

from iop import interfaces

ROOT = Path(__file__).resolve().parent.parent
WIRING, ROLES, TOOLS, GROUND = 4, 3, 2, 1
FLOORS = {"tap": WIRING, "cli": WIRING, "edge": ROLES, "node": ROLES, "control": ROLES, "link": TOOLS, "store": TOOLS,
          "web": TOOLS, "console": TOOLS, "adapters": TOOLS, "metrics": TOOLS}
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None and not os.environ.get("IOP_REQUIRE_TOOLS"), reason="needs systemd-analyze")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path for path in (ROOT / "iop").rglob("*.py") if "__pycache__" not in path.parts}


def imports_of(path: Path) -> set[str]:
    """Every module that a file imports, those of functions and those for types too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def ours(names: set[str]) -> set[str]:
    """The modules of this house among imported names; a name out of a module counts for the module."""
    return {name if name in SOURCES else name.rpartition(".")[0] for name in names
            if name in SOURCES or name.rpartition(".")[0] in SOURCES} - {"iop"}


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def floor(module: str) -> int:
    return FLOORS.get(room(module), GROUND)


def may_import(module: str, imported: str) -> bool:
    if room(module) == room(imported) and floor(module) > GROUND:
        return True
    if room(module) == "testing":
        return floor(imported) <= TOOLS
    if room(imported) == "testing":
        return False
    if floor(module) == floor(imported):
        return floor(module) in (GROUND, WIRING)
    return floor(module) > floor(imported)


def test_an_import_only_goes_down():
    wrong = [f"{module} imports {imported}" for module, path in sorted(SOURCES.items())
             for imported in sorted(ours(imports_of(path))) if imported != module and not may_import(module, imported)]
    assert wrong == []


def test_no_modules_import_one_another_in_a_circle():
    """Nor for their types alone: what two modules need of each other has no home yet."""
    graph = {module: ours(imports_of(path)) - {module} for module, path in SOURCES.items()}
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail[trail.index(module):], module))
        if module not in done:
            for imported in graph[module]:
                visit(imported, (*trail, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_the_reactor_is_imported_in_one_place():
    importers = [module for module, path in SOURCES.items() if "twisted.internet.reactor" in imports_of(path)]
    assert importers == ["iop.tap.process"]


def test_sql_is_known_to_the_store_alone():
    assert [module for module, path in sorted(SOURCES.items()) if room(module) != "store"
            and any(name.split(".")[0] in ("sqlalchemy", "alembic", "sqlite3", "psycopg") for name in imports_of(path))] == []


def implementations() -> dict[type, list[InterfaceClass]]:
    """Every class of this house that says that it implements a seam of it."""
    found: dict[type, list[InterfaceClass]] = {}
    for module in SOURCES:
        if "migrations" not in module and module != "iop.tap.__main__":
            for value in vars(importlib.import_module(module)).values():
                if isinstance(value, type) and value.__module__ == module:
                    seams = [each for each in implementedBy(value) if each.__module__.startswith("iop.interfaces.")]
                    found |= {value: seams} if seams else {}
    return found


def test_an_implementation_has_what_its_interface_states():
    found = implementations()
    for kind, seams in found.items():
        for seam in seams:
            verifyClass(seam, kind)
    stated = {value for value in vars(interfaces).values() if isinstance(value, InterfaceClass) and value is not Interface}
    assert stated - {seam for seams in found.values() for seam in seams} == set()


def test_no_init_stands_under_twisted():
    assert list((ROOT / "twisted").rglob("__init__.py")) == []


def test_an_init_holds_a_docstring_and_nothing_else():
    wrong = []
    for module, path in SOURCES.items():
        if path.name == "__init__.py" and module not in ("iop", "iop.adapters", "iop.interfaces"):
            body = ast.parse(path.read_text()).body
            if len(body) > 1 or (body and not (isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant))):
                wrong.append(module)
    assert wrong == []


def test_regenerating_the_messages_changes_nothing():
    told = subprocess.run([sys.executable, ROOT / "tools" / "proto.py", "--check"], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr


def test_every_dependency_has_its_reason_in_the_docs():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lines = setup["options"]["install_requires"].splitlines()
    lines += [line for extra in setup["options.extras_require"].values() for line in extra.splitlines()]
    names = {re.split(r"[\s\[<>=~!,;]", line.strip())[0] for line in lines if line.strip() and not line.startswith("#")}
    page = (ROOT / "docs" / "dependencies.md").read_text()
    assert sorted(name for name in names if f"`{name}`" not in page) == []


def test_the_pages_lead_nowhere_wrong():
    told = subprocess.run([sys.executable, ROOT / "tools" / "docs.py"], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr


def test_ruff_finds_nothing():
    ruff = Path(sys.executable).parent / "ruff"
    told = subprocess.run([ruff, "check", "iop", "tests", "tools", "twisted"], cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout


def test_no_file_names_a_path_of_one_machine():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    named = re.compile(rb"/home/[a-z]+/|/work" rb"/|/tmp" rb"/pytest")
    assert [name for name in tracked if (ROOT / name).is_file() and named.search((ROOT / name).read_bytes())] == []


UNITS = {"iop-edge.service": 12, "iop-node-http.service": 12, "iop-node.service": 18}


@needs_systemd
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_finds_nothing_wrong_with_a_unit(unit):
    """It exits 0 also for unknown keys, so that any word of it counts."""
    told = subprocess.run(["systemd-analyze", "verify", ROOT / "etc" / "systemd" / unit], capture_output=True, text=True)
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


def exposure(unit: Path, threshold: int) -> subprocess.CompletedProcess:
    return subprocess.run(["systemd-analyze", "security", "--offline=true", f"--threshold={threshold}", unit],
                          capture_output=True, text=True)


@needs_systemd
@pytest.mark.parametrize(("unit", "threshold"), UNITS.items())
def test_a_unit_stays_under_its_exposure(unit, threshold):
    told = exposure(ROOT / "etc" / "systemd" / unit, threshold)
    assert told.returncode == 0, told.stdout[-400:]


@needs_systemd
def test_a_node_with_sandboxing_programs_stays_under_its_exposure(tmp_path):
    unit = tmp_path / "iop-node.service"
    shutil.copy(ROOT / "etc" / "systemd" / "iop-node.service", unit)
    drop_in = tmp_path / "iop-node.service.d"
    drop_in.mkdir()
    shutil.copy(ROOT / "etc" / "systemd" / "iop-node-sandbox.conf", drop_in)
    told = exposure(unit, 28)
    assert told.returncode == 0, told.stdout[-400:]
    assert exposure(unit, 17).returncode != 0, "the drop-in was not read"


@needs_systemd
@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_notifies_and_has_a_watchdog(unit):
    text = (ROOT / "etc" / "systemd" / unit).read_text()
    for line in ("Type=notify", "WatchdogSec=30", "UMask=0077", "StateDirectoryMode=0700", "LoadCredential="):
        assert re.search(rf"^{line}", text, re.MULTILINE), line
