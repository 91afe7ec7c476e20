"""The command table: lines become calls by the signatures of functions."""

from __future__ import annotations

from typing import Literal

import pytest
from twisted.internet.defer import Deferred, succeed

from iop.commandline import LONGEST_LINE, UsageError
from iop.commands import Caller, CommandTable
from iop.errors import Forbidden, NoSuchNode
from iop.exits import exit_code


def result_of(deferred: Deferred) -> object:
    """The result of a Deferred that has fired; raises its failure."""
    results: list[object] = []
    deferred.addBoth(results.append)
    if hasattr(results[0], "raiseException"):
        results[0].raiseException()
    return results[0]


@pytest.fixture
def table() -> CommandTable:
    table = CommandTable()

    @table.command(scope="nodes:write", changes=True)
    async def drain(caller: Caller, node: str, *, wait: bool = False, limit: int = 50, state: Literal["", "up", "down"] = "",
                    share: float = 1.0) -> object:
        """Give a node no new runs. What runs there goes on.

        Example: drain gpu-1 --wait
        """
        return {"node": node, "wait": wait, "limit": limit, "state": state, "share": share}

    @table.command(scope="")
    def say(caller: Caller, to: str, *words: str, loud: bool = False) -> object:
        """Say words to someone."""
        return [to, list(words), loud]

    @table.command(scope="", verbatim=True)
    def pass_on(caller: Caller, node: str, *line: str, after: float = 0.0) -> object:
        """Pass a line on."""
        return [node, list(line), after]

    @table.command(scope="")
    def broken(caller: Caller) -> object:
        """Fail."""
        raise NoSuchNode()

    table.completer("node")(lambda caller: ["gpu-1", "gpu-2", "cpu"])
    table.completer("to")(lambda caller: succeed(["ann", "bob"]))
    return table


def run(table: CommandTable, line: str) -> object:
    return result_of(table.run_line(line, None))


@pytest.mark.parametrize(("line", "expected"), [
    ("drain gpu-1", {"node": "gpu-1", "wait": False, "limit": 50, "state": "", "share": 1.0}),
    ("/drain gpu-1 --wait --limit 7", {"node": "gpu-1", "wait": True, "limit": 7, "state": "", "share": 1.0}),
    ("drain --limit=7 gpu-1 --state up --share 0.5",
     {"node": "gpu-1", "wait": False, "limit": 7, "state": "up", "share": 0.5}),
    ("say ann", ["ann", [], False]),
    ("say ann 'two words' three --loud", ["ann", ["two words", "three"], True]),
    ("say ann -- --loud -x", ["ann", ["--loud", "-x"], False]),
    ("say ann -x", ["ann", ["-x"], False]),
    ("pass-on n1 drain --wait 'a b'", ["n1", ["drain", "--wait", "a b"], 0.0]),
    ("pass-on --after 2 n1 status", ["n1", ["status"], 2.0]),
])
def test_a_line_becomes_a_call(table, line, expected):
    assert run(table, line) == expected


@pytest.mark.parametrize(("line", "said"), [
    ("", "There is no command in this line"),
    ("   ", "There is no command in this line"),
    ("nope", "There is no command 'nope'"),
    ("drain", "NODE is missing; usage: drain NODE"),
    ("drain a b", "'b' is one argument too many"),
    ("drain a --limit", "--limit needs a value"),
    ("drain a --limit ten", "--limit is a whole number, not 'ten'"),
    ("drain a --share nan", "--share is a number"),
    ("drain a --state sideways", "--state is one of up, down, not 'sideways'"),
    ("drain a --wait=yes", "--wait is a switch"),
    ("drain a --nope", "drain has no option --nope; it has --wait, --limit, --state, --share, --json"),
    ("say 'open", "A quote in this line is not closed"),
    ("say " + "x" * LONGEST_LINE, "longer than"),
])
def test_a_line_that_cannot_be_understood_says_what_is_allowed(table, line, said):
    with pytest.raises(UsageError) as caught:
        run(table, line)
    assert said in caught.value.message
    assert exit_code(caught.value.code) == 2


def test_a_misspelt_command_is_guessed(table):
    with pytest.raises(UsageError) as caught:
        run(table, "drian gpu-1")
    assert caught.value.hint == "Did you mean `drain`?"


@pytest.mark.parametrize("line", ["drain a --json", "drain --json a", "pass-on n1 status --json"])
def test_json_may_be_asked_for_anywhere_and_last_even_behind_a_verbatim_line(table, line):
    assert table.parse(line).json


def test_json_within_a_verbatim_line_is_part_of_it(table):
    call = table.parse("pass-on n1 say --json x")
    assert not call.json and call.arguments == ("n1", "say", "--json", "x")


def test_a_call_can_be_made_of_names_and_values(table):
    call = table.bind("say", {"to": "ann", "words": ["--loud", "x y"], "loud": True})
    assert result_of(table.call(call, None)) == ["ann", ["--loud", "x y"], True]
    call = table.bind("drain", {"node": "--odd", "limit": 3, "wait": False})
    assert call.arguments == ("--odd",) and call.options == {"limit": 3}
    call = table.bind("say", {"to": "ann", "words": ["--json"]})
    assert call.arguments == ("ann", "--json") and not call.json
    with pytest.raises(UsageError, match="takes no 'who'"):
        table.bind("drain", {"node": "a", "who": 1})
    with pytest.raises(UsageError, match="NODE is missing"):
        table.bind("drain", {})


def test_what_a_command_raises_fails_its_deferred(table):
    with pytest.raises(NoSuchNode):
        run(table, "broken")


def test_a_scope_that_is_missing_refuses_the_call(table):
    call = table.parse("drain a")
    with pytest.raises(Forbidden, match="nodes:write"):
        result_of(table.call(call, None, scopes=("nodes:read",)))
    assert result_of(table.call(call, None, scopes=("nodes:write",)))
    assert result_of(table.call(call, None, scopes=("admin",)))
    assert result_of(table.call(table.parse("help"), None, scopes=()))


@pytest.mark.parametrize(("text", "words"), [
    ("", ["broken", "drain", "help", "pass-on", "say"]), ("dr", ["drain"]), ("/dr", ["/drain"]), ("x", []),
    ("drain ", ["cpu", "gpu-1", "gpu-2"]), ("drain g", ["gpu-1", "gpu-2"]), ("drain gpu-1 ", []),
    ("drain gpu-1 --", ["--json", "--limit", "--share", "--state", "--wait"]), ("drain gpu-1 --state ", ["down", "up"]),
    ("drain --state up g", ["gpu-1", "gpu-2"]), ("drain --wait g", ["gpu-1", "gpu-2"]), ("say b", ["bob"]),
    ("nope ", []), ("help dr", ["drain"]),
])
def test_completion_offers_what_may_stand_there(table, text, words):
    assert result_of(table.complete(text, None)) == words


def test_help_comes_from_signature_and_docstring(table):
    listed = run(table, "help")
    assert [entry["name"] for entry in listed["commands"]] == ["broken", "drain", "help", "pass-on", "say"]
    assert listed["commands"][1]["summary"] == "Give a node no new runs."
    one = run(table, "help drain")
    assert one["usage"] == "drain NODE [--wait] [--limit LIMIT] [--state up|down] [--share SHARE]"
    assert "Example: drain gpu-1 --wait" in one["help"]
    text = table.commands["help"].text
    assert "drain" in text(listed)
    assert text(one).endswith("\nExamples:\n  drain gpu-1 --wait\n")
    assert text(one).startswith(f"usage: {one['usage']}\n  [--json]\n\n")


def test_help_fits_a_terminal_of_80_columns_and_gives_each_example_a_line():
    table = CommandTable()

    @table.command
    def paint(context, *words: str):
        """Paint a very long wall with a colour that takes many more words to tell than there is room for in one line of it.

        Two coats. Examples: paint red · paint "light blue"
        """

    text = table.commands["help"].text
    shown = text(run(table, "help")) + text(run(table, "help paint"))
    assert max(map(len, shown.splitlines())) < 80
    assert shown.endswith('Two coats.\n\nExamples:\n  paint red\n  paint "light blue"\n')


def test_an_argument_of_an_unknown_type_is_refused_when_the_table_is_made():
    with pytest.raises(TypeError):
        @CommandTable().command
        def f(caller: Caller, many: list[str]) -> None:
            """No."""


def test_each_call_of_a_caller_has_its_own_request_id():
    caller = Caller("console", "me")
    assert caller.source.principal == "me" and caller.source.request_id
    assert caller.again().request_id != caller.request_id


@pytest.mark.parametrize(("code", "status"), [("ok", 0), ("program_failed", 1), ("invalid_request", 2), ("no_such_run", 3),
                                              ("no_node", 3), ("policy_denied", 4), ("queue_full", 4), ("cancelled", 130)])
def test_exit_codes_are_those_of_the_contract(code, status):
    assert exit_code(code) == status
