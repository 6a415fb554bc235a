"""The commands `ebfed federate …`: a federation over Flower on this machine, to try it out.

`up` writes a small Flower project for the user to edit and starts a SuperLink and SuperNodes,
`run` runs a fit, `down` ends the processes that `up` started.
"""

from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ebfed.cli.options import (
    Decimal,
    Encoding,
    FederatedFamily,
    FederatedOption,
    Json,
    NaValues,
    Separator,
    errors_of_the_user,
)
from ebfed.cli.project import (
    Template,
    check_node,
    check_table,
    find_files,
    make_up_data,
    write_project,
)

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Try out a federation over Flower on this machine.

    A server and nodes run as separate processes, connected by the loopback interface as they would
    be by a network. This needs pip install "ebfed[flower]".""",
    epilog="""\b
Examples:
  ebfed federate up trial --nodes 3       made-up data, for a first look
  ebfed federate run trial                run a fit; edit trial/app and run it again
  ebfed federate down trial
  ebfed federate up clinics --data 'clinics/*.csv' --group ward --value score
  ebfed federate up clinics --data 'clinics/*.csv' --model 'score ~ age + (1 | ward)'
  ebfed federate up clinics --data 'clinics/*.parquet' --model model.py
  ebfed federate serve clinics fits.example.org     for nodes on other machines
  ebfed federate threat clinics           who can learn what
  ebfed federate restart clinics north    start a node again; or: server
""",
)

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the federation.")]


@app.command()
def up(
    directory: Directory,
    nodes: Annotated[
        int | None, typer.Option(metavar="COUNT", min=1, help="Number of nodes with made-up data.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILES",
            help="A .csv, .parquet or .duckdb file for each node: 'folder/*.csv'.",
        ),
    ] = None,
    table: Annotated[
        str | None, typer.Option(metavar="NAME", help="Table of .duckdb files.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="A formula of columns, such as 'score ~ age + (1 | ward)', or a Python file that "
            "defines estimator and rows; in place of --group, --value and --consent.",
        ),
    ] = None,
    group: Annotated[str, typer.Option(metavar="COLUMN", help="Column of group labels.")] = "group",
    value: Annotated[str, typer.Option(metavar="COLUMN", help="Column of values.")] = "value",
    family: FederatedOption = FederatedFamily.gaussian,
    consent: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column of the class of consent that each group chose."
        ),
    ] = None,
    na_action: Annotated[
        str,
        typer.Option(
            metavar="raise|drop",
            help="Whether rows that lack a value are refused, or left out.",
        ),
    ] = "raise",
    database: Annotated[
        bool,
        typer.Option(
            "--database",
            help="Store messages in a file, so that a server that is killed goes on; slower.",
        ),
    ] = False,
    sep: Separator = ",",
    encoding: Encoding = "utf-8",
    decimal: Decimal = ".",
    na_values: NaValues = None,
) -> None:
    """Write a project and start its server and nodes.

    Connections are encrypted, and only these nodes can connect. Nodes are named by their files. An
    existing project is not changed: edit it, and start it again without options.
    """
    from ebfed.engines.flower import OwnRows, Rules, need_flower
    from ebfed.engines.flower.threat import in_words
    from ebfed.engines.loopback import Federation
    from ebfed.tables.dialect import Dialect
    from ebfed.tables.replacing import replaced

    with errors_of_the_user(RuntimeError):
        need_flower()
        dialect = Dialect.checked(sep, encoding, decimal, na_values)
        noted, nodes_of = directory / "federation.json", directory / "nodes"
        if nodes is None and data is None and noted.exists():
            names = json.loads(noted.read_text())
            text = (directory / "app" / "model.py").read_text(encoding="utf-8")
            for name in names:
                rules = Rules.read(nodes_of / name / "node.toml")
                if rules.rows is not None:
                    known = name, nodes_of / name, rules.rows, text
                    if said := check_node(*known, budget=rules.is_finite):
                        typer.echo(said)
        else:
            if (nodes is None) == (data is None):
                raise ValueError("give --nodes COUNT or --data FILES, not both")
            if model is not None and data is None:
                raise ValueError("give --data FILES with --model")
            if (directory / "app").exists():
                raise ValueError(
                    f"{directory / 'app'} exists; start it without options, or delete {directory}"
                )
            if directory.exists() and not directory.is_dir():
                raise ValueError(f"{directory} is not a directory")
            if data is None:
                files, group, value = make_up_data(directory, nodes, family), "group", "value"
            else:
                files = find_files(data)
            own = {
                name: OwnRows(str(file.resolve()), table, na_action=na_action, **dialect._asdict())
                for name, file in files.items()
            }
            if model is None:
                chosen = Template.of_options(group, value, family, consent)
            elif consent is not None:
                raise ValueError("a model names the column of consent itself; leave --consent out")
            elif model.endswith(".py"):
                chosen = Template.of_file(Path(model))
            else:
                chosen = Template.of_formula(model, family)
            for name, file in files.items():
                check_table(file, own[name], chosen, dialect)
                if said := check_node(file.name, directory, own[name], chosen.text, budget=False):
                    typer.echo(said)
            write_project(directory, own, chosen)
            names = list(files)
            with replaced(noted) as new:
                new.write_text(json.dumps(names, indent=1))
        Federation(directory).up({name: nodes_of / name for name in names}, database=database)
        typer.echo(f"A server and {len(names)} nodes are running: {', '.join(names)}.")
        words = {in_words(Rules.read(nodes_of / name / "node.toml")) for name in names}
        typer.echo(f"What runs may take: {'; or '.join(sorted(words))}.")
        first = f"edit {directory / 'app' / 'model.py'}, then " if consent else ""
        typer.echo(f"Next: {first}ebfed federate run {directory}")


@app.command()
def serve(
    directory: Directory,
    host: Annotated[
        str, typer.Argument(metavar="HOST", help="Name by which nodes reach this machine.")
    ],
    port: Annotated[int, typer.Option(metavar="PORT", min=1, max=65535)] = 8000,
) -> None:
    """Start a server for nodes on other machines.

    The first time, a token of who may start runs and certificates for HOST, valid for a year, are
    made. The project in DIR/app is the one that `up` wrote.
    """
    from ebfed.engines.flower import need_flower
    from ebfed.engines.loopback import Federation

    with errors_of_the_user(RuntimeError):
        need_flower()
        if not re.fullmatch(r"[\w.:-]+", host):
            raise ValueError(f"HOST must be a name or number of this machine; got {host!r}")
        Federation(directory).up({}, database=True, host=host, port=port)
        typer.echo(f"A server is running, which nodes reach as {host}:{port}.")
        typer.echo(f"Next: give {directory / 'certificates' / 'ca.crt'} to the owners of nodes.")


@app.command()
def register(
    directory: Directory,
    name: Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")],
    key: Annotated[Path, typer.Argument(metavar="FILE", help="Its node-key.pub.")],
) -> None:
    """Let a node on another machine connect to the server that `serve` started."""
    from ebfed.engines.loopback import Federation

    with errors_of_the_user(RuntimeError):
        federation = Federation(directory)
        if not federation.status():
            raise ValueError(f"nothing runs in {directory}; try ebfed federate serve {directory}")
        federation.register(name, key)
        typer.echo(f"{name} may connect.")


@app.command()
def run(directory: Directory) -> None:
    """Run a fit, and show its progress; ctrl-C stops it.

    A fit that was stopped goes on after its last round, if the model is the same. The exit code is
    1 if nothing was fitted, and 130 after ctrl-C.
    """
    from ebfed.engines.loopback import Federation

    with errors_of_the_user(RuntimeError):
        federation = Federation(directory)
        if not federation.status():
            raise ValueError(f"nothing runs in {directory}; try ebfed federate up {directory}")
        noted = directory / "federation.json"
        known = json.loads(noted.read_text()) if noted.exists() else []
        running = federation.status()
        if not running.keys() & set(known):  # the server of nodes on other machines
            known = []
        absent = [name for name in known if name not in running]
        if absent:
            typer.echo(f"Not running: {', '.join(absent)}.", err=True)
        began = time.time()
        try:
            federation.run(directory / "app")
        except KeyboardInterrupt:
            typer.echo(f"The run was stopped; ebfed federate run {directory} goes on with it.")
            raise typer.Exit(130) from None
        new = [path for path in directory.glob("result/run-*") if path.stat().st_mtime >= began]
        for path in new:
            typer.echo(f"Wrote {path}")
        for log in sorted(directory.glob("nodes/*/errors.log")):
            if log.stat().st_mtime >= began:
                last = log.read_text(encoding="utf-8").strip().splitlines()[-1]
                typer.echo(f"{log.parent.name}: {last} ({log})", err=True)
        if not any((path / "fit.ebfed").exists() for path in new):
            typer.echo(f"Nothing was fitted; see above, or {directory / 'logs'}.", err=True)
            raise typer.Exit(1)


@app.command()
def restart(
    directory: Directory,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Name of the node, or: server.")],
) -> None:
    """Start a node again, after it was ended or its rules were changed, or the server.

    In a run it goes on where it was.
    """
    from ebfed.engines.loopback import Federation

    with errors_of_the_user(RuntimeError):
        federation = Federation(directory)
        known = json.loads((directory / "federation.json").read_text())
        if node == "server":
            federation.restart_server({name: directory / "nodes" / name for name in known})
        elif node in known:
            federation.restart(node, directory / "nodes" / node)
        else:
            raise ValueError(f"nodes are {', '.join(known)}; not {node!r}")
        typer.echo(f"{node} is running.")


@app.command()
def status(directory: Directory, as_json: Json = False) -> None:
    """Show each node: whether it runs, what it last answered, and what runs may take.

    The epsilon that was spent is that of the person who has spent most, all runs together.
    """
    with errors_of_the_user(RuntimeError):
        states = states_of(directory)
        typer.echo(json.dumps(states, indent=1) if as_json else "\n".join(lines_of(states)))


@app.command()
def threat(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of the federation, or of a node.")
    ],
) -> None:
    """Show who can learn what, with which key, by the rules in force.

    Each sentence names the test that tries it, or says that it is not proved.
    """
    from ebfed.engines.flower import Rules
    from ebfed.engines.flower.threat import in_words, lines_of_threats

    with errors_of_the_user():
        one = (directory / "node.toml").exists()
        files = [directory / "node.toml"] if one else sorted(directory.glob("nodes/*/node.toml"))
        if not files:
            raise ValueError(f"{directory} holds no node.toml, and no nodes that have one")
        for file in files:
            rules = Rules.read(file)
            typer.echo(f"{file.resolve().parent.name}: {in_words(rules)}")
            typer.echo("\n".join(["", *lines_of_threats(rules), ""]))


@app.command()
def down(directory: Directory) -> None:
    """End the processes that were started, and no others."""
    from ebfed.engines.loopback import Federation

    with errors_of_the_user(RuntimeError):
        federation = Federation(directory)
        count = len(federation.status())
        federation.down()
        typer.echo(f"Ended {count} process groups.")


def states_of(directory: Path) -> list[dict[str, Any]]:
    """Return the state of each node, as JSON has it: a budget without a limit is null.

    ``exact`` is whether the node ever sent figures without a guarantee, and ``privacy`` says in
    words what runs may take, by the rules in force, and what was spent.

    Parameters
    ----------
    directory : path
        Folder of the federation.

    Raises
    ------
    ValueError
        If there is no federation, or a file of a node is damaged.
    """
    from ebfed.engines import journal
    from ebfed.engines.flower.account import Account
    from ebfed.engines.flower.threat import in_words
    from ebfed.engines.loopback import Federation

    if not (directory / "federation.json").exists():
        raise ValueError(f"no federation was started in {directory}")
    running = Federation(directory).status()
    last: dict[str, dict[str, Any]] = {}
    for path in directory.glob("result/run-*/exchanges.jsonl"):
        for line in journal.read(path, repair=False):
            for name in line["answered"]:
                if line["time"] >= last.get(name, line)["time"]:
                    last[name] = {"run": path.parent.name, **line}
    states = []
    for name in json.loads((directory / "federation.json").read_text()):
        account = Account(directory / "nodes" / name)
        budget, answer = account.rules.epsilon, last.get(name)
        exact = any(math.isinf(run["epsilon"]) for run in account.runs)
        states.append(
            {
                "node": name,
                "running": name in running,
                "process": running.get(name),
                "answered": answer and {key: answer[key] for key in ("exchange", "run", "time")},
                "spent": account.most,
                "budget": budget if math.isfinite(budget) else None,
                "exact": exact,
                "privacy": in_words(account.rules, account.most, exact),
            }
        )
    return states


def lines_of(states: list[dict[str, Any]]) -> list[str]:
    """Return the lines of a table of states."""
    rows = [("node", "running", "last answer", "what runs may take")]
    for state in states:
        answer = state["answered"]
        rows.append(
            (
                state["node"],
                "yes" if state["running"] else "no",
                "{exchange} of {run}, {time}".format(**answer) if answer else "none",
                state["privacy"],
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
