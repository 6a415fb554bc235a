"""The commands `ebfed federate …`: a federation over Flower, tried out on this machine.

`up` writes a small Flower project for the user to edit and starts a SuperLink and SuperNodes,
`run` holds a fit, `down` ends what `up` started.
"""

from __future__ import annotations

import glob
import importlib.util
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Model", "app"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Try out a federation over Flower on this machine.

    A server and nodes run as processes of their own, which talk over the loopback interface as
    they would over a network. Needs pip install "ebfed[flower]".""",
    epilog="""\b
Examples:
  ebfed federate up trial --nodes 3       made-up data, to see it work
  ebfed federate run trial                hold a fit; edit trial/app and run it again
  ebfed federate down trial
  ebfed federate up clinics --data 'clinics/*.csv' --group ward --value score --tls
""",
)

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The federation's folder.")]


class Model(StrEnum):
    """What a row is: a number around its group's mean, or 0/1 with its group's rate."""

    gaussian = "gaussian"
    bernoulli = "bernoulli"


PROJECT = """\
[project]
name = "{name}"
version = "1.0.0"
description = "A fit of ebfed over Flower"
license = {{ text = "none" }}
dependencies = ["ebfed[flower]"]

[tool.flwr.app]
publisher = "ebfed"

[tool.flwr.app.components]
serverapp = "server_app:app"
clientapp = "client_app:app"
"""

MODEL = '''\
"""The model, the same for the server and the nodes."""

from ebfed import {estimator}

# To add noise before anything leaves a node, epsilon 1 for each group, say for instance
#   from ebfed.channels import {channel}
#   {estimator}(channel={example}{more})
# Real noise needs pip install "ebfed[secure]" on every node.
estimator = {estimator}()
'''

MODEL_OF_CONSENT = '''\
"""The model, the same for the server and the nodes."""

from ebfed import {estimator}
from ebfed.channels import Exact, {channel}

# What leaves a node, by the class of consent that a group chose.
# Epsilon{guessed} are examples: edit them.
# Real noise needs pip install "ebfed[secure]" on every node.
estimator = {estimator}(
    channel={{
        "private": {example},
        "open": Exact(),
    }}{more},
)
'''

SERVER = '''\
"""What the server runs."""

from ebfed.engines.flower import server_app
from model import estimator

app = server_app(
    estimator,
    nodes={nodes},
    quorum=1.0,  # share of the nodes that must answer in every round
    deadline=90.0,  # seconds that a round may take
    out="result",
)
'''

CLIENT = '''\
"""What a node runs: where its rows are. Its estimates stay in its own directory."""

import pandas as pd
from ebfed.engines.flower import client_app
from model import estimator


def load(context):
    """Return the arguments of fit."""
    table = pd.read_csv(context.node_config["data"], dtype={{{group!r}: str}})
    return {{"X": table[[{value!r}]], "groups": table[{group!r}]{consent}}}


app = client_app(estimator, load)
'''

README = """\
# A federation on this machine

- `app/` is the project: `model.py` says what is estimated and what noise is added, `client_app.py`
  where a node finds its rows. Edit them and say `ebfed federate run` again.
- `nodes/NAME/` belongs to a node: `run-…/estimate.csv` are its groups' estimates, `ledger.jsonl`
  lists what has left it, in all runs. None of it is sent.
- `result/run-…/` belongs to the server: the fitted population (`fit.ebfed`, for
  `ebfed.engines.flower.load_fit`), its summary, a ledger of what clients were asked for, and which
  node answered which question.
- Every run costs a private group its epsilon again. `client_app(…, budget=3.0)` ends that: a node
  refuses what would bring the sum over all runs above its budget. If a node fails, the reason is in
  its own `errors.log`, and nowhere else.
- `logs/` is what the processes say; `certificates/` are those of `--tls`, for this machine only.

# Between machines

The same `app/` runs unchanged.

1. Server: a certificate for its name, signed by an authority that the nodes know. Then
   `flower-superlink --ssl-ca-certfile ca.crt --ssl-certfile server.pem --ssl-keyfile server.key
   --host 0.0.0.0 --port 8000 --enable-supernode-auth --disable-runtime-dependency-installation`
   from the folder that is to get `result/`.
2. Each node: `ssh-keygen -t ecdsa -b 384 -N "" -f node-key`, and its owner gives `node-key.pub` to
   the server, who registers it: `flwr supernode register node-key.pub CONNECTION --name NAME`.
   Then `flower-supernode --root-certificates ca.crt --superlink SERVER:8000
   --auth-supernode-private-key node-key
   --node-config 'name="NAME" data="/path/rows.csv" directory="/path/own"'`.
3. Everywhere `FLWR_TELEMETRY_ENABLED=0`, ebfed and the same version of Flower.

Who may start a run chooses the code that nodes run. Nodes that do not trust the server so far
accept only projects whose review they trust: `flower-supernode --trusted-entities FILE`, and
projects signed with `flwr app review`.

# What the server learns

How many rows and which class of consent each group has, what the channel sends of it, the names of
nodes, when they answered, and of failures the kind. With the exact channel that is the mean and the
scatter of each group; with a private one a noisy report, within the epsilon and delta of the
ledger, each time that a run is held. Labels of groups, rows and estimates stay with the nodes.
Encryption (`--tls`) keeps this from third parties, not from the server.
"""


@app.command()
def up(
    directory: Directory,
    nodes: Annotated[
        int | None, typer.Option(metavar="COUNT", min=1, help="Nodes with made-up data.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="FILES", help="CSV files, one for each node: 'folder/*.csv'."),
    ] = None,
    group: Annotated[str, typer.Option(metavar="COLUMN", help="Of group labels.")] = "group",
    value: Annotated[str, typer.Option(metavar="COLUMN", help="Of values.")] = "value",
    model: Annotated[
        Model, typer.Option(help="gaussian: values around a mean; bernoulli: 0 or 1 with a rate.")
    ] = Model.gaussian,
    consent: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Of the class that each group chose.")
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Encrypt, with certificates made here.")
    ] = False,
) -> None:
    """Write a project and start its server and nodes.

    Nodes are named by their files. A project that is there is not touched: edit it, and start
    again as it was, without options.
    """
    from ebfed.engines.loopback import Federation

    with _errors_of_the_user():
        if importlib.util.find_spec("flwr") is None:
            raise ValueError('federation needs Flower: pip install "ebfed[flower]"')
        noted = directory / "federation.json"
        if nodes is None and data is None and noted.exists():
            known = json.loads(noted.read_text())
            files, tls = {name: Path(path) for name, path in known["nodes"].items()}, known["tls"]
        else:
            if (nodes is None) == (data is None):
                raise ValueError("give --nodes COUNT or --data FILES, one of them")
            if (directory / "app").exists():
                raise ValueError(
                    f"{directory / 'app'} exists; start it again without options, or delete "
                    f"{directory} to begin anew"
                )
            if directory.exists() and not directory.is_dir():
                raise ValueError(f"{directory} is no directory")
            if data is None:
                files, group, value = _made_up(directory, nodes, model), "group", "value"
            else:
                files = _files(data)
                for file in files.values():
                    _check_table(file, group, value, model, consent)
            _write_project(directory, list(files), group, value, model, consent)
            known = {"nodes": {name: str(path.resolve()) for name, path in files.items()}}
            noted.write_text(json.dumps(known | {"tls": tls}, indent=1))
        own = directory.resolve() / "nodes"
        Federation(directory).up(
            {
                name: {"data": str(path.resolve()), "directory": str(own / name)}
                for name, path in files.items()
            },
            tls=tls,
        )
        typer.echo(f"A server and {len(files)} nodes are running: {', '.join(files)}.")
        first = f"edit {directory / 'app' / 'model.py'}, then " if consent else ""
        typer.echo(f"Next: {first}ebfed federate run {directory}")


@app.command()
def run(directory: Directory) -> None:
    """Hold a fit, and show what happens.

    The exit code is 1 if there was none.
    """
    from ebfed.engines.loopback import Federation

    with _errors_of_the_user():
        federation = Federation(directory)
        if not federation.status():
            raise ValueError(f"nothing runs in {directory}: ebfed federate up {directory}")
        known = json.loads((directory / "federation.json").read_text())["nodes"]
        absent = [name for name in known if name not in federation.status()]
        if absent:
            typer.echo(f"Not running: {', '.join(absent)}.", err=True)
        before, began = set(directory.glob("result/run-*")), time.time()
        try:
            federation.run(directory / "app")
        except KeyboardInterrupt:
            typer.echo(f"The run goes on without you; ebfed federate down {directory} ends it.")
            raise typer.Exit(130) from None
        new = sorted(set(directory.glob("result/run-*")) - before)
        for path in new:
            typer.echo(f"Wrote {path}")
        for log in sorted(directory.glob("nodes/*/errors.log")):
            if log.stat().st_mtime >= began:
                last = log.read_text(encoding="utf-8").strip().splitlines()[-1]
                typer.echo(f"{log.parent.name}: {last} ({log})", err=True)
        if not any((path / "fit.ebfed").exists() for path in new):
            typer.echo(f"There is no fit; see above, or {directory / 'logs'}.", err=True)
            raise typer.Exit(1)


@app.command()
def status(directory: Directory) -> None:
    """List what runs, by name and process group."""
    from ebfed.engines.loopback import Federation

    with _errors_of_the_user():
        for name, number in Federation(directory).status().items():
            typer.echo(f"{name}\t{number}")


@app.command()
def down(directory: Directory) -> None:
    """End what was started, and nothing else."""
    from ebfed.engines.loopback import Federation

    with _errors_of_the_user():
        federation = Federation(directory)
        count = len(federation.status())
        federation.down()
        typer.echo(f"Ended {count} process groups.")


@contextmanager
def _errors_of_the_user() -> Iterator[None]:
    """Say what was wrong in one line, and end with code 2."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        if isinstance(error, typer.Exit):
            raise
        typer.echo(f"ebfed: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from None


def _files(pattern: str) -> dict[str, Path]:
    """Find the files of nodes, by the names of the nodes."""
    files = [Path(path) for path in sorted(glob.glob(pattern))]
    named = {file.stem: file for file in files}
    if not files or len(named) < len(files):
        what = "names no file" if not files else "names two files of one name"
        raise ValueError(f"--data {pattern} {what}")
    return named


def _check_table(file: Path, group: str, value: str, model: Model, consent: str | None) -> None:
    """Refuse a table that the project could not read."""
    import pandas as pd

    table = pd.read_csv(file)
    options = {"--group": group, "--value": value} | ({"--consent": consent} if consent else {})
    for option, column in options.items():
        if column not in table:
            there = ", ".join(map(repr, table.columns))
            raise ValueError(f"{file}: no column {column!r} ({option}) among {there}")
    if model is Model.bernoulli and not table[value].isin([0, 1]).all():
        raise ValueError(f"{file}: column {value!r} must hold only 0 and 1 for --model bernoulli")
    if consent and not table[consent].isin(["private", "open"]).all():
        raise ValueError(f"{file}: column {consent!r} must hold only 'private' and 'open'")


def _made_up(directory: Path, count: int | None, model: Model) -> dict[str, Path]:
    """Write tables of 20 groups for each node."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    folder = directory / "data"
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for node in range(1, (count or 0) + 1):
        groups = np.repeat([f"{node}-{g:02d}" for g in range(1, 21)], 6)
        means = np.repeat(rng.beta(3, 2, 20), 6)
        if model is Model.gaussian:
            values = rng.normal(means, 0.3).round(3)
        else:
            values = (rng.random(len(means)) < means).astype(int)
        files[f"node-{node}"] = path = folder / f"node-{node}.csv"
        pd.DataFrame({"group": groups, "value": values}).to_csv(path, index=False)
    return files


def _write_project(
    directory: Path, nodes: list[str], group: str, value: str, model: Model, consent: str | None
) -> None:
    if model is Model.gaussian:
        words = {
            "estimator": "GaussianEB",
            "channel": "Gaussian",
            "example": "Gaussian(epsilon=1.0, delta=1e-6, range=(0, 100))",
            "more": ", variances=25.0",
            "guessed": ", range and variances",
        }
    else:
        words = {
            "estimator": "BernoulliEB",
            "channel": "RandomizedResponse",
            "example": "RandomizedResponse(epsilon=1.0)",
            "more": "",
            "guessed": " and channels",
        }
    classes = f', "consent": table[{consent!r}]' if consent else ""
    files = {
        "app/pyproject.toml": PROJECT.format(name="federated-fit"),
        "app/model.py": (MODEL_OF_CONSENT if consent else MODEL).format(**words),
        "app/server_app.py": SERVER.format(nodes=json.dumps(nodes)),
        "app/client_app.py": CLIENT.format(group=group, value=value, consent=classes),
        "README.md": README,
    }
    (directory / "app").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
