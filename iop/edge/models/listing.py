"""The names of models as the APIs list them. Pure; from memory, so that a list never waits for a node.

One list serves the clients of OpenAI and of Anthropic: each reads its own fields and passes over the other's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from iop.errors import InvalidRequest
from iop.events import rfc3339
from iop.records import ModelEntry

ModelName = Annotated[str, Meta(min_length=1, max_length=300)]       # as clients may write it
EPOCH = "1970-01-01T00:00:00Z"


def display_name(entry: ModelEntry) -> str:
    """For people: an alias tells what stands behind it."""
    return entry.name if entry.name == entry.target else f"{entry.name} ({entry.target})"


def model_json(entry: ModelEntry) -> dict[str, object]:
    told: dict[str, object] = {
        "id": entry.name, "object": "model", "created": entry.created_us // 1_000_000, "owned_by": entry.adapter,
        "type": "model", "display_name": display_name(entry), "created_at": rfc3339(entry.created_us) or EPOCH}
    if entry.context_tokens:             # both names are read, by one program or another
        told |= {"context_length": entry.context_tokens, "max_model_len": entry.context_tokens}
    return told


def models_json(entries: Sequence[ModelEntry], limit: int | None, after: str, before: str) -> dict[str, object]:
    """All, or a page: `limit` of them, behind the id `after` or in front of `before`. Raises InvalidRequest for an id that is
    not listed."""
    names = [entry.name for entry in entries]
    for name in (after, before):
        if name and name not in names:
            raise InvalidRequest(f"There is no model {name[:100]!r} to go on from.")
    page = list(entries[names.index(after) + 1 if after else 0:names.index(before) if before else len(names)])
    has_more = limit is not None and len(page) > limit
    if has_more:
        page = page[-limit:] if before and not after else page[:limit]  # type: ignore[operator]
    return {"object": "list", "data": [model_json(entry) for entry in page], "has_more": has_more,
            "first_id": page[0].name if page else None, "last_id": page[-1].name if page else None}
