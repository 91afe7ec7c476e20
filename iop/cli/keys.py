"""`iop keys`: API keys and node tokens, in the keys.yaml of an edge on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from iop.cli.base import Group, edge_folder_option, examples, json_option
from iop.cli.keylimits import changed_limits, limit_options, limits_text
from iop.cli.keystore import KeyStore, find_keystore
from iop.cli.output import print_json, print_table
from iop.config import Id
from iop.errors import InvalidRequest, NotFound
from iop.events import rfc3339
from iop.keylimits import NO_LIMITS
from iop.keys import SCOPES, Key
from iop.rendering import Column


class NoSuchKey(NotFound):
    """There is no key with this id."""

    default_hint = "List the keys with `iop keys list`."


@click.group("keys", cls=Group, epilog=examples("iop keys new api ci --scope runs:read --scope runs:write",
                                                "iop keys new api anna --requests-per-minute 60 --concurrency 4",
                                                "iop keys new node laptop", "iop keys list",
                                                "iop keys set KEYID --tokens-per-day 1000000", "iop keys revoke KEYID"))
def keys_group() -> None:
    """Make, limit, list and revoke API keys and node tokens. Works on the edge's own files: run it where the edge runs."""


@keys_group.command("new", short_help="Make a key, and print it once.", epilog=examples(
    "iop keys new api ci --scope runs:read", "iop keys new node laptop --days 90"))
@click.argument("kind", type=click.Choice(("api", "node")))
@click.argument("owner")
@click.option("--scope", "scopes", metavar="SCOPE", multiple=True, type=click.Choice(SCOPES), help="What an API key may do; "
              f"repeatable: {', '.join(SCOPES)}. Default: all but admin.")
@click.option("--days", metavar="N", type=click.IntRange(1, 3650), help="Valid this long; default: until revoked.")
@limit_options
@json_option
@edge_folder_option
@click.pass_context
def new_command(context: click.Context, kind: str, owner: str, scopes: tuple[str, ...], days: int | None, as_json: bool,
                state: str | None, **given: Any) -> None:
    """Make a key for OWNER (a client's name, or a node's id) and print it, once."""
    limits = changed_limits(NO_LIMITS, given)
    if kind == "node" and (scopes or limits != NO_LIMITS):
        raise InvalidRequest("A node's token has no scopes and no limits.")
    if kind == "node":
        check_node_id(owner)
    store = find_keystore(state or context.obj)
    granted = list(scopes) or ([scope for scope in SCOPES if scope != "admin"] if kind == "api" else [])
    key, text, told = store.add(kind, owner, granted, not_after=int(time.time()) + days * 86400 if days else 0,
                                limits=limits)
    if as_json:
        print_json({"keyid": key.keyid, "key": text, "owner": owner, "scopes": granted, "in_force": told})
        return
    click.echo(text)
    when = "" if told else " It counts from the edge's next start, or SIGHUP."
    click.echo(f"This is shown once; the edge keeps only its hash.{when}", err=True)


@keys_group.command("set", epilog=examples("iop keys set KEYID --concurrency 2 --max-priority 0",
                                           "iop keys set KEYID --tokens-per-day 0     # no limit any more",
                                           "iop keys set KEYID --model 'qwen*' --model small"))
@click.argument("keyid")
@limit_options
@click.option("--any-priority", is_flag=True, help="No limit of priority any more.")
@click.option("--any-model", is_flag=True, help="No limit of models any more.")
@json_option
@edge_folder_option
@click.pass_context
def set_command(context: click.Context, keyid: str, any_priority: bool, any_model: bool, as_json: bool, state: str | None,
                **given: Any) -> None:
    """Change the limits of an API key; those that are not named stay. Keys of one owner share what is left."""
    store = find_keystore(state or context.obj)
    keys = store.load()
    found = [key for key in keys if key.keyid == keyid]
    if not found:
        raise NoSuchKey()
    if found[0].kind != "api":
        raise InvalidRequest("A node's token has no limits.")
    limits = changed_limits(found[0].limits, given)
    if any_priority:
        limits = msgspec.structs.replace(limits, max_priority=None)
    if any_model:
        limits = msgspec.structs.replace(limits, models=[])
    told = store.save([msgspec.structs.replace(key, limits=limits) if key.keyid == keyid else key for key in keys])
    if as_json:
        print_json({"keyid": keyid, "limits": msgspec.to_builtins(limits), "in_force": told})
    else:
        _tell_saved(f"{keyid} now has: {limits_text(msgspec.to_builtins(limits)) or 'no limits'}", store, told)


@keys_group.command("list", epilog=examples("iop keys list --json"))
@json_option
@edge_folder_option
@click.pass_context
def list_command(context: click.Context, as_json: bool, state: str | None) -> None:
    """List the keys; their secrets are not known any more."""
    keys = find_keystore(state or context.obj).load()
    if as_json:
        print_json([_row(key) for key in keys])
        return
    columns: list[Column] = ["keyid", "kind", "owner", ("MADE", lambda row: str(row["created_at"])[:10]),
                             ("VALID UNTIL", lambda row: str(row["not_after"] or "-")[:10]),
                             ("SCOPES", lambda row: _scopes_text(row["scopes"]))]
    if any(key.limits != NO_LIMITS for key in keys):
        columns.append(("LIMITS", lambda row: limits_text(row["limits"]) or "-"))
    print_table(map(_row, keys), columns)


@keys_group.command("revoke", epilog=examples("iop keys revoke abcdefghijklmnop"))
@click.argument("keyid")
@json_option
@edge_folder_option
@click.pass_context
def revoke_command(context: click.Context, keyid: str, as_json: bool, state: str | None) -> None:
    """Take a key away; a node's link with it is closed."""
    store = find_keystore(state or context.obj)
    keys = store.load()
    rest = [key for key in keys if key.keyid != keyid]
    if len(rest) == len(keys):
        raise NoSuchKey()
    told = store.save(rest)
    if as_json:
        print_json({"keyid": keyid, "in_force": told})
    else:
        _tell_saved(f"{keyid} is revoked", store, told)


def _tell_saved(what: str, store: KeyStore, in_force: bool) -> None:
    click.echo(what + ("." if in_force else f"; if an edge runs with {store.file}, send it SIGHUP."))


def check_node_id(node_id: str) -> None:
    """Raises InvalidRequest for an id that no node.yaml may carry."""
    try:
        msgspec.convert(node_id, Id)
    except msgspec.ValidationError:
        raise InvalidRequest(f"{node_id!r} is not the id of a node: it has letters, digits and . _ -, at most 64.") from None


def _scopes_text(scopes: Sequence[str]) -> str:
    missing = [scope for scope in SCOPES if scope not in scopes]
    if scopes and len(missing) <= 1:
        return f"all but {missing[0]}" if missing else "all"
    return ",".join(scopes)


def _row(key: Key) -> dict[str, object]:
    return {"keyid": key.keyid, "kind": key.kind, "owner": key.owner, "scopes": key.scopes,
            "created_at": rfc3339(key.created * 1_000_000), "not_after": rfc3339(key.not_after * 1_000_000),
            "limits": msgspec.to_builtins(key.limits)}
