"""The paths of the management API, of what is named on the command line."""

from __future__ import annotations

from urllib.parse import quote

from iop.errors import InvalidRequest


def run_path(run_id: str) -> str:
    """Raises InvalidRequest for what is no run's id."""
    if not run_id.isalnum() or not run_id.isascii():
        raise InvalidRequest(f"{run_id!r} is not the id of a run.", hint="List the runs with `iop runs`.")
    return f"/api/v1/runs/{run_id}"


def node_path(node_id: str) -> str:
    return f"/api/v1/nodes/{quote(node_id, safe='')}"


def session_path(session_id: str) -> str:
    return f"/api/v1/sessions/{quote(session_id, safe='')}"
