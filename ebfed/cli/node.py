"""The commands `ebfed node` and `ebfed superlink`: processes of a federation, until ended."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from ebfed.cli.options import errors_of_the_user

__all__ = ["login", "node", "superlink"]

EXAMPLES = """\b
Examples:
  ebfed node /srv/ward-data --superlink fits.example.org:8000 --root-certificates ca.crt
"""


def node(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The node's own directory, with node.toml.")
    ],
    superlink: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address of the server.")],
    root_certificates: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Authorities that may have signed its certificate."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The node's own key, made if there is none; node-key in DIR by default.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="Name under which the key is registered; that of the directory if not given."
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Neither encryption nor a key: for trials only.")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of simulated noise, which protects nobody: for trials only."),
    ] = None,
) -> None:
    """Connect to a server, and answer its requests until this process is ended.

    The server sends plans: the name of a method, its arguments, and names of columns. node.toml
    says where the rows are, which columns and methods are allowed, and what they may cost. Nothing
    that is received is executed. The owner of the server registers the public part of the key.
    """
    from ebfed.engines.flower import PlannedNode, Rules
    from ebfed.engines.flower.connection import Link, answer_requests, load_key, make_key_pair
    from ebfed.engines.flower.node import SUM_KEY
    from ebfed.engines.secure_sum import stored_key
    from ebfed.loading import METHODS
    from ebfed.tables.columns import Columns

    with errors_of_the_user(RuntimeError):
        rules = Rules.read(directory / "node.toml")
        if rules.rows is None:
            raise ValueError(f"{directory / 'node.toml'} must say where the rows are, in [rows].")
        if rules.rows.path is not None:
            columns = [*rules.rows.columns] if rules.rows.columns else None
            frame = Columns.of(rules.rows.frame(directory, columns))
            if text := frame.lacking(frame.names)[1]:
                dropped = rules.rows.na_action == "drop"
                left = "left out" if dropped else "refused in a run that reads them"
                typer.echo(f"{rules.rows.path}: {text}; they are {left}.")
        if insecure == (root_certificates is not None):
            raise ValueError("give --root-certificates FILE, or --insecure for a trial")
        keys = None
        if not insecure:
            own = directory / "node-key" if key is None else key
            public = make_key_pair(own)
            typer.echo(f"The server's owner registers {public}.")
            keys = load_key(own)
        if isinstance(rules.partners, dict):
            stored_key(directory / SUM_KEY)
            typer.echo(f"Owners of partners list the key in {directory / SUM_KEY}.pub.")
        one = PlannedNode(name or directory.resolve().name, directory, METHODS, seed=seed)
        # as ctrl-C, so that the server knows that the node has gone
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        root = None if root_certificates is None else str(root_certificates)
        link = Link(superlink, root, keys)
        answer_requests(link, one.answer, directory / "node-number", typer.echo)


SUPERLINK_EXAMPLES = """\b
Examples:
  ebfed superlink token --ssl-ca-certfile ca.crt --ssl-certfile server.pem
    --ssl-keyfile server.key --host 0.0.0.0 --port 8000 --enable-supernode-auth
    --disable-runtime-dependency-installation --isolation process
    --superexec-auth-secret-file secret --database superlink.db
  flower-superexec --runtime-api-address HOST:8000 --root-certificates ca.crt
    --superexec-auth-secret-file secret
"""


def superlink(
    context: typer.Context,
    token_file: Annotated[
        Path, typer.Argument(metavar="FILE", help="File of the token, made if there is none.")
    ],
) -> None:
    """Run Flower's SuperLink, whose runs only those can start who have a token.

    All other arguments are those of flower-superlink.
    """
    from ebfed.engines.flower.superlink import make_token, run_superlink

    with errors_of_the_user(RuntimeError):
        make_token(token_file)
        run_superlink(token_file, context.args)


def login(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Address of the server.")],
    token_file: Annotated[
        Path, typer.Argument(metavar="FILE", help="File of the token of its owner.")
    ],
) -> None:
    """Let the command flwr send a token to a server, to start runs there.

    The token is kept in the folder of Flower's settings, $FLWR_HOME or ~/.flwr.
    """
    import os

    from ebfed.engines.flower.superlink import read_token, remember_token

    with errors_of_the_user(RuntimeError):
        home = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")
        remember_token(home, address, read_token(token_file))
        typer.echo(f"flwr sends the token to {address}.")
