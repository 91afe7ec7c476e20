"""`iop tls` and `iop node-config`: what it takes to bring a node in from another machine.

The certificates' modules are imported where they are used: they take 0.1 s, which no other command needs to wait for.
"""

from __future__ import annotations

import socket
from pathlib import Path

import click

from iop.addresses import is_loopback
from iop.cli.base import Group, edge_folder_option, examples, json_option
from iop.cli.find import default_state
from iop.cli.keys import check_node_id
from iop.cli.keystore import find_keystore, keystore_of
from iop.cli.output import print_json
from iop.errors import ConfigError
from iop.files import make_private


@click.group("tls", cls=Group, epilog=examples("iop tls init --name edge.example --name 192.0.2.7"))
def tls_group() -> None:
    """Certificates for links from other machines."""


@tls_group.command("init", short_help="Make a CA, and a certificate for the edge.", epilog=examples(
    "iop tls init --dir /etc/iop/tls --name edge.example"))
@click.option("--dir", "folder", metavar="DIR", help="Where to write; default: tls/ in the state folder.")
@click.option("--name", "names", metavar="HOST", multiple=True, help="A host name or address that nodes dial; repeatable; "
              "default: this host's name, localhost and 127.0.0.1.")
@click.option("--new-key", is_flag=True, help="Make a new key too; nodes that pin the old one are locked out.")
@json_option
@edge_folder_option
@click.pass_context
def init_command(context: click.Context, folder: str | None, names: tuple[str, ...], new_key: bool, as_json: bool,
                 state: str | None) -> None:
    """Make a CA of your own and a certificate for the edge, and print the pin of its key.

    Run again, it makes a new certificate (for other names, or because the old one ends) with the same CA and the same key,
    so that nodes that trust the CA or pin the key stay.
    """
    from iop.link import certs

    state_folder = Path(state or context.obj or default_state()).absolute()
    place = Path(folder).absolute() if folder else state_folder / "tls"
    if not folder:
        make_private(state_folder)
    make_private(place)
    again = (place / "server.key").exists()
    ca = certs.make_ca(str(place))
    server = certs.make_server_cert(str(place), list(names) or [socket.gethostname(), "localhost", "127.0.0.1"],
                                    keep_key=not new_key)
    told = {"ca": ca.cert, "cert": server.cert, "key": server.key, "pin": server.pin}
    if as_json:
        print_json(told)
        return
    for name, value in told.items():
        click.echo(f"{name + ':':6}{value}")
    if again:
        click.echo("The key and its pin are new: nodes with `pin` need the new one; those with `ca` go on." if new_key else
                   "The certificate is new, its key and pin are as before.")
        click.echo("The edge takes it when it is started again.")
        return
    click.echo("\nIn edge.yaml, before the edge is started (again):\n  listen:\n    link:\n      host: 0.0.0.0\n      tls:\n"
               f"        cert: {told['cert']}\n        key: {told['key']}")
    click.echo("In node.yaml, under `edge`: `pin:` with the pin (`iop node-config` does), or\n`ca:` with a copy of ca.pem.")


@click.command("node-config", short_help="Print the script by which another machine joins.", epilog=examples(
    "iop node-config laptop --host 192.0.2.7 | ssh laptop sh"))
@click.argument("node_id", metavar="NODE")
@click.option("--host", metavar="HOST", help="The name or address that the node dials; default: as the edge listens.")
@click.option("--config", "edge_file", metavar="EDGE.YAML", help="The edge's configuration; default: in the state folder.")
@edge_folder_option
@click.pass_context
def join_command(context: click.Context, node_id: str, host: str | None, edge_file: str | None, state: str | None) -> None:
    """Print a shell script that makes node.yaml and its token in ~/iop-node of another machine.

    The token in it is new, is bound to NODE, and is shown once: pass the script on as you would a password.
    """
    check_node_id(node_id)
    store = keystore_of(Path(edge_file)) if edge_file else find_keystore(state or context.obj)
    if store.edge is None:
        raise ConfigError(f"There is no edge.yaml beside {store.file}.", hint="Name it with --config EDGE.YAML.")
    edge, file = store.edge, store.edge.file
    link = edge.listen.link
    host = host or link.host
    if host in ("0.0.0.0", "::"):  # noqa: S104  # where the edge listens, which is no place to dial
        raise ConfigError(f"The edge listens at all addresses of its machine ({host}).",
                          hint="Name the one that the node dials with --host, as it stands in the edge's certificate.")
    if link.tls is None and not is_loopback(host):
        raise ConfigError(f"{file} listens for links without TLS, so a node of another machine cannot join.",
                          hint="Run `iop tls init` and put its certificate under listen.link.tls.")
    trust = f"pin: {_pin(edge.path(link.tls.cert))}" if link.tls else "plain: true"
    _, text, _ = store.add("node", node_id)
    click.echo(_SCRIPT.format(node_id=node_id, host=host, port=link.port, trust=trust, token=text), nl=False)
    if all(node.id != node_id for node in edge.nodes):
        click.echo(_NODES.format(node_id=node_id, file=file), nl=False, err=True)


_SCRIPT = """\
set -e
umask 077
mkdir -p ~/iop-node
cd ~/iop-node
if [ -e node.yaml ]; then
    mv node.yaml node.yaml.old
    echo "The node.yaml of before is kept as ~/iop-node/node.yaml.old; take over its policy."
fi
cat > token <<'END'
{token}
END
cat > node.yaml <<'END'
node:
  id: {node_id}
edge:
  host: {host}
  port: {port}
  {trust}
# What the edge may have this machine do; docs/configuration.md has all of it.
policy:
  mode: guided
  # executables: [/usr/bin/echo]
  # roots: [/srv/iop]
END
command -v twistd > /dev/null || echo "IOP is not on PATH here: install it first (docs/install.md)."
echo "Start the node with: twistd --nodaemon --pidfile= iop-node -c ~/iop-node/node.yaml"
"""

_NODES = """\
Say what {node_id} offers, under `nodes` of {file}, e.g.:

  - id: {node_id}
    adapters:
      mock:
        targets:
          echo: {{echo: true}}

and have the edge read it again: `systemctl reload iop-edge`, or send it SIGHUP.
"""


def _pin(certificate: str) -> str:
    from cryptography import x509

    from iop.link.tls import pin_of

    try:
        return pin_of(x509.load_pem_x509_certificate(Path(certificate).read_bytes()))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{certificate} is not a certificate that can be read: {error}.") from None
