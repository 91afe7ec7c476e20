"""Finds the edge that a command talks to: --state DIR, IOP_URL with IOP_API_KEY, or the default state folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

from iop.cli.client import Client
from iop.cli.errors import NoEdge
from iop.cli.owner import as_owner
from iop.errors import InvalidRequest
from iop.files import read_secret


def default_state() -> Path:
    """``$XDG_STATE_HOME/iop``, or ``~/.local/state/iop`` (XDG base directory specification 0.8)."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state") / "iop"


def find_edge(state: str | None) -> Client:
    """A client of the running edge. Raises NoEdge with how to start one."""
    url = os.environ.get("IOP_URL", "")
    if state is None and url:
        key = os.environ.get("IOP_API_KEY", "")
        if not key:
            raise InvalidRequest("IOP_URL is set, but IOP_API_KEY is not.", hint="Make a key where the edge runs: `iop keys "
                                 "new api NAME`.")
        return Client(url, key, ca_file=os.environ.get("IOP_CA", ""))
    folder = Path(state) if state is not None else default_state()
    for read in (_from_up, _from_edge):
        found = read(folder)
        if found is not None:
            return found
    raise NoEdge(f"No edge is running with the state folder {folder}.")


def _from_up(folder: Path) -> Client | None:
    """What `iop up` left: ready.json."""
    ready = _read_json(folder / "ready.json")
    return Client(ready["http"], ready["api_key"]) if ready else None


def _from_edge(folder: Path) -> Client | None:
    """What an edge by itself leaves in its own state folder: edge.ready.json, and operator.key from its first start."""
    for place in (folder, folder / "edge"):
        ready = _read_json(place / "edge.ready.json")
        if ready:
            with as_owner(place / "operator.key") as file:
                key = os.environ.get("IOP_API_KEY", "") or read_secret(file)
            scheme = "https" if ready.get("http_tls") else "http"
            return Client(f"{scheme}://{ready['http']}", key, ca_file=os.environ.get("IOP_CA", ""))
    return None


def _read_json(file: Path) -> dict[str, str]:
    try:
        value = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except PermissionError:
        raise NoEdge(f"{file} belongs to another user.", hint="Run `iop` as the user that runs the edge, or set IOP_URL "
                     "and IOP_API_KEY.") from None
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
