"""A Flower project that the user can edit: its files, and the tables of its nodes."""

from __future__ import annotations

import glob
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ebfed.cli.options import FederatedFamily

if TYPE_CHECKING:
    from ebfed.engines.flower.rows import OwnRows
    from ebfed.tables.dialect import Dialect

__all__ = ["Template", "check_table", "find_files", "make_up_data", "write_project"]

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
# Flower wants the name of a program for nodes; those of ebfed run no program that is sent to them.
clientapp = "server_app:app"
"""

MODEL = '''\
"""What is estimated, from which columns of the nodes' tables."""

from ebfed import {estimator}

# To send noisy reports only, with epsilon 1 for each group, write for example
#   from ebfed.channels import {channel}
#   {estimator}(channel={example}{more})
# Real noise needs pip install "ebfed[secure]" on every node.
estimator = {estimator}()
rows = {rows}
'''

MODEL_OF_CONSENT = '''\
"""What is estimated, from which columns of the nodes' tables."""

from ebfed import {estimator}
from ebfed.channels import Exact, {channel}

# What a node sends of a group, by the class of consent that the group chose.
# Epsilon{guessed} are examples: edit them.
# Real noise needs pip install "ebfed[secure]" on every node.
estimator = {estimator}(
    channel={{
        "private": {example},
        "open": Exact(),
    }}{more},
)
rows = {rows}
'''

FORMULA = '''\
"""What is estimated, from which columns of the nodes' tables."""

from ebfed import {estimator}

# {formula}
estimator = {made}
rows = {rows}
'''

SERVER = '''\
"""The program of the server. Nodes receive the model as data, and check it by their rules."""

from ebfed.engines.flower import server_app
from model import estimator, rows

app = server_app(
    estimator,
    nodes={nodes},
    rows=rows,
    quorum=1.0,  # share of the nodes that must answer in every round
    max_shift=None,  # most standard errors by which a node may move the fit: see participants.csv
    deadline=90.0,  # seconds that a round may take
    out="result",
)
'''

README = """\
# A federation on this machine

- `app/` is the project: `model.py` says what is estimated, from which columns, and what noise is
  added. Edit it and run `ebfed federate run` again. Nodes receive it as data.
- `nodes/NAME/` belongs to a node: `run-…/estimate.csv` holds the estimates of its groups,
  `ledger.jsonl` lists all that it has sent, in all runs. Neither is sent.
- `result/run-…/` belongs to the server: the fitted population (`fit.ebfed`, for
  `ebfed.engines.flower.load_fit`), its summary, a ledger of what clients were asked for, and
  `participants.csv`: which node answered which request, and how far it moves the fit.
- `nodes/NAME/node.toml` holds the rules of a node, which its owner writes and no run can change:
  where its rows are, which columns and methods are allowed, and what they may cost. Every run costs
  each person of a private group its epsilon again: with `epsilon = 3.0` there, a node refuses a run
  that would bring what all runs cost together above 3, and methods that trust the server, unless it
  says `against = "readers"`. `ebfed budget show nodes/NAME` says what was spent and
  what is left. Rows that lack a value are refused; with `na_action = "drop"` in `[rows]` they are
  left out. If a node fails, the reason is in its own `errors.log`, and nowhere else.
- `logs/` holds the output of the processes; `certificates/` are for this machine only.

# Between machines

The same `app/` runs unchanged.

1. Server: `ebfed federate down` this trial, and write the names of the nodes in
   `app/server_app.py`.
2. Server: `ebfed federate serve DIR SERVER` here, where SERVER is the name by which nodes reach
   this machine, at port 8000. `certificates/ca.crt` is for the owners of nodes; `flower/token`,
   `flower/secret` and `flower/superlink.db`, which has messages, are files of the server's owner.
3. Each node: a folder with the rows and `node.toml`; `ebfed federate threat FOLDER` says who can
   learn what by these rules.
4. Each node: `ebfed node FOLDER --name NAME --superlink SERVER:8000 --root-certificates ca.crt`.
   The first start makes a key, and its public part, `node-key.pub`, is for the server's owner.
5. Server: `ebfed federate register DIR NAME node-key.pub`: answers under NAME are taken from this
   key only.
6. Server: `ebfed federate run DIR`.

Everywhere the same versions of ebfed and Flower, and `FLWR_TELEMETRY_ENABLED=0`.

A node executes nothing that it receives. Who may start a run chooses methods, arguments and
columns, as far as `node.toml` allows.

# What the server learns

The server learns the number of rows and the class of consent of each group, the report that the
channel sends of it, the names of the nodes, when they answered, and the kind of a failure. The
exact channel reports the mean and the scatter of each group, and that of a group of one row is this
row: groups of fewer than `min_group_size` persons (5, unless `node.toml` says otherwise) send
nothing, not even their number of rows. A private channel sends a noisy report in every run, within
the epsilon and delta of the ledger. Labels of groups, rows and estimates stay with the nodes.
Encryption protects from third parties, not from the server.
"""


RULES = """\
# What runs may take from the groups of this node. Nothing that a run ships can change this file.
# ebfed.engines.flower.Rules lists all rules.
epsilon = inf  # budget of each person over all runs, such as 3.0; inf: no limit, exact figures too
delta = 1e-5
min_group_size = 5  # groups of fewer persons send nothing through an exact channel

# Where the rows are, the columns that runs may read, and what each may be used for. person is the
# column that says whose a row is; "row": each row is of another person.
[rows]
"""


def find_files(pattern: str) -> dict[str, Path]:
    """Find the files of the nodes, which are named by them."""
    files = [Path(path) for path in sorted(glob.glob(pattern))]
    named = {file.stem: file for file in files}
    if not files or len(named) < len(files):
        what = "names no file" if not files else "names two files of the same name"
        raise ValueError(f"--data {pattern} {what}")
    return named


class Template(NamedTuple):
    """What is estimated: the text of model.py, and the columns that it names.

    Attributes
    ----------
    text : str
    rows : dict
        Column of each argument of `fit`.
    options : dict
        Option that named the column of an argument; ``--model`` of those that are not there.
    family : FederatedFamily, optional
        Family of the response; None where only the user knows it.
    """

    text: str
    rows: dict[str, Any]
    options: Mapping[str, str] = MappingProxyType({})
    family: FederatedFamily | None = None

    @property
    def columns(self) -> list[str]:
        """All columns."""
        return [
            x for each in self.rows.values() for x in ([each] if isinstance(each, str) else each)
        ]

    @classmethod
    def of_options(
        cls, group: str, value: str, family: FederatedFamily, consent: str | None
    ) -> Template:
        """Make one of the estimator of a family."""
        rows = {"groups": group, "X": [value]} | ({"consent": consent} if consent else {})
        text = (MODEL_OF_CONSENT if consent else MODEL).format(**WORDS[family], rows=rows)
        options = {"groups": "--group", "X": "--value", "consent": "--consent"}
        return cls(text, rows, options, family)

    @classmethod
    def of_formula(cls, formula: str, family: FederatedFamily) -> Template:
        """Make one of a formula; refuse terms that are no columns."""
        from ebfed.formula.choice import model_of_columns

        estimator, rows = model_of_columns(formula, family.value)
        words = {"estimator": type(estimator).__name__, "made": estimator, "rows": rows}
        text = FORMULA.format(formula=" ".join(formula.split()), **words)
        return cls(text, rows, family=family)

    @classmethod
    def of_file(cls, file: Path) -> Template:
        """Read one of the user; refuse one that does not define what a server needs."""
        import runpy

        from ebfed.engines.flower import plan_of_run

        found = runpy.run_path(str(file))
        if absent := [name for name in ("estimator", "rows") if name not in found]:
            raise ValueError(f"{file} defines no {absent[0]}")
        return cls(
            file.read_text(encoding="utf-8"), plan_of_run(found["estimator"], found["rows"])["rows"]
        )


def check_table(file: Path, own: OwnRows, model: Template, dialect: Dialect) -> None:
    """Refuse a table that the nodes could not read."""
    table, rows, family = own.frame(Path()), model.rows, model.family
    for argument, columns in rows.items():
        option = model.options.get(argument, "--model")
        for column in [columns] if isinstance(columns, str) else columns:
            if column not in table:
                there = ", ".join(map(repr, table.columns))
                advice = dialect.other_separator(table.columns.tolist())
                raise ValueError(f"{file}: no column {column!r} ({option}) among {there}{advice}")
            numeric = family is not None and argument in ("X", "y", "exposure", "sample_weight")
            if numeric and table[column].dtype.kind not in "biuf":
                first = str(table[column].dropna().iloc[0])
                advice = dialect.other_decimal(first)
                raise ValueError(f"{file}: column {column!r} is not numeric{advice}")
    value = rows["y"] if "y" in rows else rows["X"][0]
    values = table[value].dropna()
    if family is FederatedFamily.binomial and not values.isin([0, 1]).all():
        raise ValueError(f"{file}: column {value!r} must hold only 0 and 1 for --family binomial")
    if family is FederatedFamily.poisson and not (values.mod(1).eq(0) & values.ge(0)).all():
        raise ValueError(f"{file}: column {value!r} must hold only counts for --family poisson")
    consent = rows.get("consent")
    if (
        family is not None
        and consent
        and not table[consent].dropna().isin(["private", "open"]).all()
    ):
        raise ValueError(f"{file}: column {consent!r} must hold only 'private' and 'open'")


def check_node(name: str, directory: Path, own: OwnRows, app: str, *, budget: bool) -> str:
    """Read the rows of a node for a model, as it will; returns what becomes of blanks, if any.

    Parameters
    ----------
    name : str
        What errors name.
    directory : path
        Folder of the node.
    own : OwnRows
    app : str
        Text of ``model.py``, of the user of this machine.
    budget : bool
        Whether the node has one.

    Raises
    ------
    ValueError
        If the model cannot take them.
    """
    found: dict[str, Any] = {}
    exec(compile(app, "model.py", "exec"), found)
    if not {"estimator", "rows"} <= found.keys():
        return ""  # which the run says
    estimator, rows = found["estimator"], found["rows"]
    try:
        read = own.read(directory, rows, budget=budget)
        estimator.protocol().prepare(**read.arguments)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return f"{name}: {read.lacking}; they are left out." if read.lacking else ""


WORDS = {
    FederatedFamily.gaussian: {
        "estimator": "GaussianEB",
        "channel": "Gaussian",
        "example": "Gaussian(epsilon=1.0, delta=1e-6, range=(0, 100))",
        "more": ", variances=25.0",
        "guessed": ", range and variances",
    },
    FederatedFamily.binomial: {
        "estimator": "BernoulliEB",
        "channel": "RandomizedResponse",
        "example": "RandomizedResponse(epsilon=1.0)",
        "more": "",
        "guessed": " and channels",
    },
    FederatedFamily.poisson: {
        "estimator": "PoissonEB",
        "channel": "Gaussian",
        "example": "Gaussian(epsilon=1.0, delta=1e-6, range=(0, 10))",
        "more": "",
        "guessed": " and range",
    },
}


def make_up_data(directory: Path, count: int | None, family: FederatedFamily) -> dict[str, Path]:
    """Write tables of 20 groups for each node."""
    import numpy as np
    import pandas as pd

    from ebfed.tables.replacing import replaced

    rng = np.random.default_rng(0)
    folder = directory / "data"
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for node in range(1, (count or 0) + 1):
        groups = np.repeat([f"{node}-{g:02d}" for g in range(1, 21)], 6)
        means = np.repeat(rng.beta(3, 2, 20), 6)
        values: Any
        if family is FederatedFamily.gaussian:
            values = rng.normal(means, 0.3).round(3)
        elif family is FederatedFamily.binomial:
            values = (rng.random(len(means)) < means).astype(int)
        else:
            values = rng.poisson(means)
        files[f"node-{node}"] = path = folder / f"node-{node}.csv"
        with replaced(path) as new:
            pd.DataFrame({"group": groups, "value": values}).to_csv(new, index=False)
    return files


def write_project(directory: Path, nodes: Mapping[str, OwnRows], model: Template) -> None:
    """Write the project of a server, the rules of its nodes, and a README about it."""
    from ebfed.tables.replacing import replaced

    files = {
        "app/pyproject.toml": PROJECT.format(name="federated-fit"),
        "app/model.py": model.text,
        "app/server_app.py": SERVER.format(nodes=json.dumps(list(nodes))),
        "README.md": README,
    }
    columns = None if model.family is None else model.columns
    files |= {
        f"nodes/{name}/node.toml": _rules(own, columns, model.rows) for name, own in nodes.items()
    }
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        with replaced(directory / name) as new:
            new.write_text(text, encoding="utf-8")


def _rules(rows: OwnRows, columns: list[str] | None, named: Mapping[str, Any]) -> str:
    """Write the rules of a node, without a budget, with the roles of columns that are named."""
    from ebfed.engines.flower import OwnRows

    given = {name: value for name, value in asdict(rows).items() if value is not None}
    plain = asdict(OwnRows(path=""))
    own = {name: value for name, value in given.items() if value != plain[name]}
    own |= {} if columns is None else {"columns": columns}
    own |= {"person": "row"}  # of a table of which nothing else is known
    roles = {"groups": "groups", "exposure": "exposure", "sample_weight": "weights"}
    own |= {role: [named[name]] for name, role in roles.items() if name in named}
    # TOML's text and lists of text are those of JSON
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in own.items()]
    if "consent" in named:
        column = json.dumps(named["consent"], ensure_ascii=False)
        lines.append(f'consent = {{column = {column}, open = ["open"]}}')
    return RULES + "\n".join(lines) + "\n"
