"""Same model, two doors, one answer.

A model that can be written as a formula, as an estimator, at the command line, of a Parquet file,
of frames of other libraries, of tables whose rows are not in memory, and at a node, is fitted
through all of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from typer.testing import CliRunner

import ebfed as eb
from ebfed.cli.app import app
from ebfed.engines.rounds import converse
from ebfed.testing.nodes import fit_on_nodes

RNG = np.random.default_rng(11)
GROUPS = np.repeat(np.arange(12), RNG.integers(2, 9, 12))
N = len(GROUPS)
X = RNG.normal(size=N)
ARM = np.array(["u", "v", "w"])[RNG.integers(0, 3, N)]
Z = 0.5 + 0.6 * X + (ARM == "v") + RNG.normal(0, 0.8, 12)[GROUPS]
DAY = RNG.integers(0, 5, N)
TRIALS = RNG.integers(1, 9, N)
ROWS = pd.DataFrame(
    {
        "y": Z + RNG.normal(0, 0.7, N) + 0.5 * RNG.normal(size=5)[DAY],
        "b": (RNG.random(N) < 1 / (1 + np.exp(-Z))).astype(int),
        "won": RNG.binomial(TRIALS, 1 / (1 + np.exp(-Z))),
        "n": RNG.poisson(np.exp(Z)),
        "p": np.exp(Z) * RNG.gamma(3, 1 / 3, N),
        "o": 1 + np.digitize(Z + RNG.logistic(size=N), [0.0, 1.5]),
        "x": X,
        "v": (ARM == "v").astype(float),
        "w": (ARM == "w").astype(float),
        "arm": ARM,
        "le": RNG.normal(0, 0.5, N),
        "size": RNG.integers(1, 4, N),
        "trials": TRIALS,
        "g": np.array([f"g{i:02}" for i in GROUPS]),
        "s": np.array([f"s{i // 4}" for i in GROUPS]),
        "day": np.array([f"d{i}" for i in DAY]),
    }
)
ROWS["lost"], ROWS["e"] = ROWS["trials"] - ROWS["won"], np.exp(ROWS["le"])


FIGURES = ("nobs", "npar", "logLik", "AIC")


@dataclass
class Model:
    """A model, as its doors have it.

    Attributes
    ----------
    formula : str
    estimator : Estimator
    columns : list of str
        Of the rows, those that the estimator takes.
    response : str or None
        That of estimators of means is in `columns`.
    options : dict
        Of the estimator's `fit`: columns by argument.
    family, weights : str or None
        Of the formula.
    command : list of str
        Another way to say it at the command line.
    lazy : bool
        Whether the estimator takes tables whose rows are not in memory.
    also : tuple of str
        Figures of `glance` that are alike.
    """

    formula: str
    estimator: Any
    columns: list[str]
    response: str | None = None
    options: dict[str, Any] = field(default_factory=lambda: {"groups": "g"})
    family: str | None = None
    weights: str | None = None
    command: list[str] = field(default_factory=list)
    lazy: bool = False
    also: tuple[str, ...] = FIGURES

    @property
    def words(self) -> dict[str, str]:
        found = {"family": self.family, "weights": self.weights}
        return {name: value for name, value in found.items() if value is not None}

    def arguments(self, rows: pd.DataFrame) -> tuple[tuple, dict[str, Any]]:
        """Arguments of `fit`: the rows, the response, and other columns by name."""
        names = {name: rows[column] for name, column in self.options.items()}
        given = (rows[self.columns],)
        return given if self.response is None else (*given, rows[self.response]), names


def some(*varying: str) -> dict[str, Any]:
    return {"varying": ["intercept", *varying]}


WEIGHED = {"groups": "g", "sample_weight": "size"}
OFFSET = {"groups": "g", "offset": "le"}
MODELS = {
    "means": Model(
        "y | g", eb.GaussianEB(), ["y"], command=["--value", "y", "--group", "g"],
        lazy=True,
    ),
    "means with weights": Model(
        "y | g", eb.GaussianEB(), ["y"], options=WEIGHED, weights="size",
        command=["--value", "y", "--group", "g", "--weight", "size"],
    ),
    "rates": Model(
        "b | g", eb.BernoulliEB(), ["b"], family="binomial",
        command=["--value", "b", "--group", "g", "--family", "binomial"], lazy=True,
    ),
    "counts": Model(
        "n ~ offset(le) | g", eb.PoissonEB(), ["n"], family="poisson",
        options={"groups": "g", "exposure": "e"},
        command=["--value", "n", "--group", "g", "--family", "poisson", "--exposure", "e"],
    ),
    "null": Model("y ~ 1 + (1 | g)", eb.LinearEB(), [], "y", lazy=True),
    "null of classes": Model("b ~ 1 + (1 | g)", eb.LogisticEB(), [], "b", family="binomial"),
    "null of counts": Model(
        "n ~ 1 + (1 | g)", eb.GeneralizedEB("poisson"), [], "n", family="poisson"
    ),
    "slopes": Model(
        "y ~ x + (1 + x | g)", eb.LinearEB("full"), ["x"], "y", lazy=True,
    ),
    "arms": Model("y ~ x + arm + (1 | g)", eb.LinearEB(**some()), ["x", "v", "w"], "y"),
    "arms with weights": Model(
        "y ~ x + arm + (1 | g)", eb.LinearEB(**some()), ["x", "v", "w"], "y", WEIGHED,
        weights="size",
    ),
    "nested": Model(
        "y ~ x + (1 | s/g)", eb.LinearEB(**some()), ["x"], "y", {"groups": ["s", "g"]}
    ),
    "crossed": Model(
        "y ~ x + (1 | g) + (1 | day)", eb.CrossedEB(), ["x"], "y", {"groups": ["g", "day"]}
    ),
    "crossed successes": Model(
        "b ~ x + (1 | g) + (1 | day)", eb.CrossedEB(family="binomial"), ["x"], "b",
        {"groups": ["g", "day"]}, "binomial",
    ),
    "classes": Model(
        "b ~ x + arm + (1 | g)", eb.LogisticEB(**some()), ["x", "v", "w"], "b", family="binomial"
    ),
    "successes": Model(
        "cbind(won, lost) ~ x + (1 | g)", eb.GeneralizedEB("binomial", **some()), ["x"], "won",
        {"groups": "g", "trials": "trials"},
        # formulas take trials as rows of 0 and 1, whose likelihood has no binomial coefficients
        also=("npar",),
    ),
    "poisson": Model(
        "n ~ x + offset(le) + (1 + x | g)", eb.GeneralizedEB("poisson", "full"), ["x"], "n",
        OFFSET, "poisson",
    ),
    "negative binomial": Model(
        "n ~ x + (1 | g)", eb.GeneralizedEB("negative_binomial", **some()), ["x"], "n",
        family="negative_binomial",
    ),
    "gamma": Model(
        "p ~ x + arm + (1 | g)", eb.GeneralizedEB("gamma", **some()), ["x", "v", "w"], "p",
        family="gamma",
    ),
    "ordinal": Model(
        "o ~ x + (1 | g)", eb.GeneralizedEB("ordinal", **some()), ["x"], "o", family="ordinal"
    ),
}  # fmt: skip


def fixed_names(model: Model) -> dict[str, str]:
    """Names of dummies that are made by hand, as formulas have them."""
    return {"v": "arm[T.v]", "w": "arm[T.w]"}


def by_formula(model: Model, rows: Any = ROWS) -> Any:
    return eb.from_formula(model.formula, rows, **model.words)


def at_the_command_line(model: Model, path: Any, words: list[str]) -> Any:
    saved = path.with_name("fit.json")
    result = CliRunner().invoke(app, ["fit", str(path), *words, "--save", str(saved)])
    assert result.exit_code == 0, result.output
    return eb.load_fit(saved)


def words_of(model: Model) -> list[str]:
    options = {"--formula": model.formula, "--family": model.family, "--weight": model.weights}
    return [word for pair in options.items() if pair[1] is not None for word in pair]


class OneNode(eb.engines.Cohort):
    """A cohort of one node, which has all rows; the server has none."""

    def __init__(self, node: Any, clients: Any, memory: Any):
        self.node, self.clients, self.memory = node, clients, memory
        self.facts = [node.protocol().describe(clients, memory)]

    def ask(self, sent: dict, round_: int, turn: Any) -> list[dict]:
        stream = eb.streams.Stream(np.array([3, 4], np.uint64), round_, 0)
        self.memory |= {"turn": turn}
        message, kept = self.node.protocol().local(sent, self.memory, self.clients, stream)
        self.memory |= kept
        return [message]


def at_one_node(model: Model) -> tuple[Any, Any]:
    """Return the node's own copy of the fit, and the server's."""
    given, options = model.arguments(ROWS)
    server, node = clone(model.estimator), clone(model.estimator)
    cohort = OneNode(node, *node.protocol().prepare(*given, **options))
    state = converse(server.protocol(), cohort, np.array([3, 4], np.uint64))
    return node.protocol().finish(
        server.protocol().broadcast(state), cohort.memory, cohort.clients
    ), server.protocol().conclude(state)


def figures(fit: Any, names: dict[str, str]) -> pd.DataFrame:
    """Estimates and their errors, by name of the term."""
    found = fit.tidy()
    found["term"] = found["term"].replace(names)
    columns = [name for name in ("estimate", "std.error") if name in found]
    return found.set_index(["effect", "term"])[columns]


def compare(
    fit: Any, reference: Any, names: dict[str, str], rtol: float = 1e-7, also: Any = FIGURES
) -> None:
    """Compare estimates, their errors and the likelihood of two fits."""
    found, expected = figures(fit, names), figures(reference, names)
    assert found.index.tolist() == expected.index.tolist()
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol)
    for name in also:
        ours, theirs = (float(each.glance()[name].iloc[0]) for each in (fit, reference))
        assert ours == pytest.approx(theirs, rel=rtol, abs=rtol), name


def compare_groups(fit: Any, reference: Any, rtol: float = 1e-6) -> None:
    level = {"level": "day"} if "day" in reference.formula else {}
    ours, theirs = fit.posterior(**level), reference.posterior(**level)
    np.testing.assert_allclose(ours.mean, theirs.mean, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(ours.sd, theirs.sd, rtol=rtol, atol=rtol)
    for one, two in zip(ours.interval(0.9), theirs.interval(0.9), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5)


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param]


def test_an_estimator(model):
    reference, names = by_formula(model), fixed_names(model)
    given, options = model.arguments(ROWS)
    fit = clone(model.estimator).fit(*given, **options)
    compare(fit, reference, names, also=model.also)
    compare_groups(fit, reference)
    # columns by name, where the frame has them all
    named = {name for name in model.options.values() if isinstance(name, str)}
    if model.response is not None and len(named) == len(model.options):
        frame = ROWS[[*model.columns, model.response, *named]]
        again = clone(model.estimator).fit(frame, model.response, **model.options)
        compare(again, reference, names, also=model.also)


def test_predictions_of_an_estimator(model):
    reference = by_formula(model)
    given, options = model.arguments(ROWS)
    fit = clone(model.estimator).fit(*given, **options)
    known = {name: options[name] for name in ("groups", "offset", "exposure") if name in options}
    expected = reference.augment()[".fitted"]
    if model.response is None:
        rate = fit.posterior().to_frame().set_index("g")["estimate"]
        found = rate.loc[ROWS["g"]].to_numpy() * (ROWS["e"] if "exposure" in options else 1)
    elif isinstance(fit, eb.LogisticEB):
        found = fit.predict_proba(given[0], groups=ROWS["g"])[:, 1]
    else:
        found = fit.predict(given[0], **known)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


FRAMES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "polars": pl.from_pandas,
    "arrow": pa.Table.from_pandas,
    "duckdb": lambda rows: duckdb.from_df(rows).pl(),
    "pyarrow types": lambda rows: rows.convert_dtypes(dtype_backend="pyarrow"),
    "shuffled": lambda rows: rows.sample(frac=1, random_state=1),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_of_other_libraries(model, kind):
    reference, fit = by_formula(model), by_formula(model, FRAMES[kind](ROWS))
    # the order of rows changes rounding
    compare(as_pandas(fit), reference, {}, rtol=1e-5 if kind == "shuffled" else 1e-7)
    # predictions are of about 1; some are nearly zero
    np.testing.assert_allclose(fit.predict(ROWS), reference.predict(ROWS), rtol=1e-5, atol=1e-7)


class as_pandas:
    """A fit whose frames are of pandas."""

    def __init__(self, fit: Any):
        self.fit = fit

    def tidy(self) -> pd.DataFrame:
        return to_pandas(self.fit.tidy())

    def glance(self) -> pd.DataFrame:
        return to_pandas(self.fit.glance())


def to_pandas(frame: Any) -> pd.DataFrame:
    return frame if isinstance(frame, pd.DataFrame) else frame.to_pandas()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_at_the_command_line(model, suffix, tmp_path):
    path, reference = tmp_path / f"rows.{suffix}", by_formula(model)
    ROWS.to_csv(path, index=False) if suffix == "csv" else ROWS.to_parquet(path, index=False)
    fit = at_the_command_line(model, path, words_of(model))
    compare(fit, reference, {})
    compare_groups(fit, reference)
    np.testing.assert_allclose(fit.predict(ROWS), reference.predict(ROWS), rtol=1e-7)
    if model.command:
        fit = at_the_command_line(model, path, model.command)
        compare(fit, reference, {}, 1e-6)
        compare_groups(fit, reference)


LAZY: dict[str, Callable[[Any], Any]] = {
    "polars": lambda path: pl.scan_parquet(path),
    "duckdb": lambda path: duckdb.sql(f"FROM '{path}'"),
}


@pytest.mark.parametrize("kind", LAZY)
@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if model.lazy])
def test_tables_whose_rows_are_elsewhere(name, kind, tmp_path):
    model, path = MODELS[name], tmp_path / "rows.parquet"
    response = [] if model.response is None else [model.response]
    ROWS[[*model.columns, *response, "g"]].to_parquet(path, index=False)
    fit = clone(model.estimator).fit(LAZY[kind](path), *response, groups="g")
    reference = by_formula(model)
    compare(as_pandas(fit), reference, {}, rtol=1e-6)
    compare_groups(fit, reference)


FEDERATED = [name for name, model in MODELS.items() if hasattr(model.estimator, "protocol")]


@pytest.mark.parametrize("name", FEDERATED)
def test_one_node(name):
    model = MODELS[name]
    reference, names = by_formula(model), fixed_names(model)
    node, server = at_one_node(model)
    compare(node, reference, names, also=model.also)
    compare_groups(node, reference)
    found, expected = figures(server, names), figures(reference, names)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)
    if "logLik" in model.also:
        assert server.log_likelihood_ == pytest.approx(reference.log_likelihood_, rel=1e-9)


@pytest.mark.parametrize("name", FEDERATED)
def test_several_nodes(name):
    """A node's own copy says of the fit what that of all rows says, and no more of its own rows."""
    model = MODELS[name]
    given, options = model.arguments(ROWS)
    reference = clone(model.estimator).fit(*given, **options)
    parts = [model.arguments(rows) for _, rows in ROWS.groupby("s")]
    arguments = [dict(zip(("X", "y"), rows, strict=False)) | more for rows, more in parts]
    nodes, *_ = fit_on_nodes(model.estimator, arguments)
    told, expected = nodes[1].glance().iloc[0], reference.glance().iloc[0]
    several = ["n_groups", "nobs", "npar", "df.residual"]
    several += ["logLik", "AIC", "BIC"] if np.isfinite(told["logLik"]) else []
    for figure in several:
        assert float(told[figure]) == pytest.approx(float(expected[figure]), rel=1e-9), figure
    if hasattr(reference, "predict_interval"):
        (X, _), options = parts[1]
        asked = inspect.signature(reference.predict_interval).parameters
        options = {name: each for name, each in options.items() if name in asked}
        ends = [fit.predict_interval(X, **options) for fit in (nodes[1], reference)]
        np.testing.assert_allclose(*ends, rtol=1e-6, atol=1e-6)


def test_crossed_factors_alone_have_no_node():
    assert {name for name in MODELS if name not in FEDERATED} == {"crossed", "crossed successes"}


def test_batches_of_arrow(model):
    reference, batch = by_formula(model), pa.RecordBatch.from_pandas(ROWS)
    fit = by_formula(model, batch)
    compare(as_pandas(fit), reference, {})
    np.testing.assert_allclose(fit.predict(batch), reference.predict(ROWS), rtol=1e-7)
    given, options = model.arguments(ROWS)
    if model.columns:
        fit = clone(model.estimator).fit(
            pa.RecordBatch.from_pandas(given[0]), *given[1:], **options
        )
        compare(as_pandas(fit), reference, fixed_names(model), also=model.also)
