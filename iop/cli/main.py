"""The `iop` command: one group, its commands each in the module that knows them."""

from __future__ import annotations

import click

from iop._version import VERSION_TEXT
from iop.cli.base import Group, examples
from iop.cli.drain import drain_command
from iop.cli.join import join_command, tls_group
from iop.cli.keys import keys_group
from iop.cli.listings import events_command, nodes_command, runs_command, sessions_command, show_command
from iop.cli.node import node_group
from iop.cli.run import cancel_command, run_command, tail_command
from iop.cli.up import up_command
from iop.cli.usage import usage_command
from iop.cli.verify import verify_command


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
             epilog=examples("iop up --cli hello='echo {prompt}'      # an edge and a node on this machine",
                             "iop run -a cli -t hello hi              # in another terminal",
                             "iop nodes"))
@click.version_option(VERSION_TEXT, prog_name="iop")
@click.option("--state", metavar="DIR", help="The state folder of the edge, for the command that follows.")
@click.pass_context
def main(context: click.Context, state: str | None) -> None:
    """Run models and command-line agents on the machines you own, and keep a record.

    Exit codes: 0 done, 1 failed (also: no edge is running), 2 usage, 3 no such target, node or run, 4 refused (policy, key,
    queue), 5 not ended yet (verify), 130 cancelled.
    """
    context.obj = state


for _command in (up_command, run_command, nodes_command, runs_command, show_command, tail_command, cancel_command,
                 verify_command, drain_command,
                 events_command, sessions_command, usage_command, node_group, keys_group, tls_group, join_command):
    main.add_command(_command)
