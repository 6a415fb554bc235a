"""Mixed models: how often intervals hold the truth, with few groups and with many.

Rows of m groups are drawn from a known mixed model, the model is fitted, and nominal 95 % intervals
are compared with the truth. A model has a column that differs between rows, and one that differs
between groups alone, whose coefficient is the hardest to know. Groups have unequal numbers of rows.

Intervals of coefficients are by normal quantiles, and by t with degrees of freedom of Satterthwaite
(1946) and, of linear models, of Kenward and Roger (1997); of spreads, by the profile of the
likelihood, restricted or not; of groups and new rows, by their posterior. The coverage of a run is
that of its one coefficient or spread, or the share of its groups or rows.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import t as student

from ebfed.evaluation.study import Study, average, print_grid
from ebfed.priors import IdentificationWarning
from ebfed.regression import CrossedEB, GeneralizedEB, LinearEB
from ebfed.regression.intervals import IntervalMethod

SIZES = (6, 15, 40)
LEVEL = 0.95
# New rows of groups that are not in the fit.
FRESH = 200
# Degrees of freedom, and what a page calls the intervals.
DEGREES = {"asymptotic": "z", "satterthwaite": "Satterthwaite", "kenward-roger": "Kenward-Roger"}
PROFILES: dict[IntervalMethod, str]
PROFILES = {"profile": "profile", "restricted": "restricted profile"}
BY_POSTERIOR = "posterior"
BETWEEN, WITHIN = "coefficient of groups", "coefficient of rows"
GROUP, ROW, NEW = "mean of a group", "row of a group", "row of a new group"


def _normal(z: NDArray, rng: np.random.Generator) -> NDArray:
    return z + rng.standard_normal(len(z))


def _events(z: NDArray, rng: np.random.Generator) -> NDArray:
    return rng.poisson(np.exp(z)).astype(float)


def _scattered(z: NDArray, rng: np.random.Generator) -> NDArray:
    return rng.poisson(np.exp(z) * rng.gamma(2, 0.5, len(z))).astype(float)


def _successes(z: NDArray, rng: np.random.Generator) -> NDArray:
    return (rng.random(len(z)) < expit(z)).astype(float)


# Mean responses, but of normal rows.
INVERSE: dict[Any, Callable[[NDArray], NDArray]]
INVERSE = {_events: np.exp, _scattered: np.exp, _successes: expit}
MEAN = (0.5, 0.5, 0.4)  # of the intercept, and of the columns of rows and of groups


@dataclass(frozen=True)
class MixedModel:
    """A model that rows are drawn from, and what is fitted to them."""

    label: str  # on the page
    estimator: Callable[[], Any]
    spreads: Mapping[str, NDArray]  # roots of covariances, from the outermost
    rows: tuple[int, int] = (2, 8)  # least and most of a group
    draw: Callable[[NDArray, np.random.Generator], NDArray] = _normal  # responses at predictors
    crossed: bool = False  # whether the second factor's levels are drawn for each row
    skewed: bool = False  # whether effects are exponential, not normal

    def effects(self, root: NDArray, n: int, rng: np.random.Generator) -> NDArray:
        """Draw the coefficients of n levels, shape (n, 2)."""
        size = n, 2
        drawn = rng.exponential(size=size) - 1 if self.skewed else rng.standard_normal(size)
        return drawn @ root.T


SLOPES = np.array([[0.7, 0.0], [0.15, 0.4]])


def _intercepts(**spreads: float) -> dict[str, NDArray]:
    return {name: np.diag([spread, 0.0]) for name, spread in spreads.items()}


ONE, SLOPED = {"group": np.diag([0.7, 0.0])}, {"group": SLOPES}
NESTED, CROSSED = _intercepts(parent=0.6, group=0.5), _intercepts(group=0.7, item=0.5)
ALIKE = partial(LinearEB, varying=["intercept"])
UNLIKE = partial(LinearEB, "full", varying=["intercept", "row"])
GENERAL = partial(GeneralizedEB, varying=["intercept"])
COUNTS, SCATTERED = partial(GENERAL, "poisson"), partial(GENERAL, "negative_binomial")
CLASSES, ITEMS = partial(GENERAL, "binomial"), partial(CrossedEB, family="poisson")


MODELS = {
    "intercepts": MixedModel("normal rows, intercepts", ALIKE, ONE),
    "slopes": MixedModel("normal rows, slopes", UNLIKE, SLOPED, (4, 10)),
    "slopes, skewed": MixedModel("normal rows, skewed", UNLIKE, SLOPED, (4, 10), skewed=True),
    "levels": MixedModel("normal rows, groups of parents", ALIKE, NESTED),
    "crossed": MixedModel("normal rows, crossed", CrossedEB, CROSSED, crossed=True),
    "crossed, skewed": MixedModel(
        "normal rows, crossed, skewed", CrossedEB, CROSSED, crossed=True, skewed=True
    ),
    "poisson": MixedModel("counts, intercepts", COUNTS, ONE, (2, 8), _events),
    "negative binomial": MixedModel("scattered counts", SCATTERED, ONE, (4, 10), _scattered),
    "binomial": MixedModel("zeros and ones, intercepts", CLASSES, ONE, (5, 25), _successes),
    "poisson levels": MixedModel("counts, groups of parents", COUNTS, NESTED, (2, 8), _events),
    "poisson crossed": MixedModel("counts, crossed", ITEMS, CROSSED, (2, 8), _events, crossed=True),
}


def _too_low(table: pd.DataFrame) -> pd.Series:
    below = LEVEL - table["coverage"]
    return (below > 3 * table["coverage_se"]) & (below > 0.02)


def _printed(cell: Any) -> str:
    mark = "!" if cell.marked else " "
    return f"{100 * cell.coverage:.1f}{mark}{cell.width:>7.2f}"


def _cells(quick: bool) -> list[dict[str, Any]]:
    """List models and numbers of groups; the quick version has two models and the fewest groups."""
    models = ["intercepts", "poisson"] if quick else [*MODELS]
    return [{"model": model, "m": m} for model in models for m in (SIZES[:1] if quick else SIZES)]


def _tabulate(runs: pd.DataFrame) -> pd.DataFrame:
    keys = ["model", "quantity", "method", "m"]
    widths = runs.groupby(keys)["width"].median()  # few runs have means of counts without end
    return average(runs, keys, ["coverage"]).join(widths, on=keys)


@dataclass(frozen=True)
class _Drawn:
    """Rows of some groups: their columns, labels, and linear predictors."""

    columns: pd.DataFrame
    names: list[str]
    place: NDArray
    theta: NDArray  # of each row

    def predictor(self, row: NDArray) -> NDArray:
        """Linear predictors of rows of all groups with these values of the column of rows."""
        return self.theta[:, 0] + self.theta[:, 1] * row


def _draw(model: MixedModel, m: int, rng: np.random.Generator) -> _Drawn:
    """Draw groups, and their columns."""
    nested = len(model.spreads) > 1 and not model.crossed
    parents = np.repeat(np.arange(m), rng.integers(1, 4, m)) if nested else np.arange(m)
    column, names = rng.standard_normal(m), [*model.spreads]
    sizes = rng.integers(model.rows[0], model.rows[1] + 1, len(parents))
    place = np.repeat(np.arange(len(parents)), sizes)
    labels = [parents[place], place][-len(names) :]
    if model.crossed:
        labels = [place, rng.integers(0, max(m // 2, 5), len(place))]
    theta = np.zeros((len(place), 2)) + MEAN[:2]
    theta[:, 0] += MEAN[2] * column[parents[place]]
    for own, root in zip(labels, model.spreads.values(), strict=True):
        theta += model.effects(root, own.max() + 1, rng)[own]
    columns: dict[str, NDArray] = dict(zip(names, labels, strict=True))
    columns |= {"row": rng.standard_normal(len(place)), "between": column[parents[place]]}
    return _Drawn(pd.DataFrame(columns), names, place, theta)


def _one_run(seed: tuple[int, int], model: str, m: int) -> list[dict[str, Any]]:
    """Coverage and width of the intervals of one fit."""
    law = MODELS[model]
    rng = np.random.default_rng([*seed, m, [*MODELS].index(model)])
    drawn = _draw(law, m, rng)
    rows = drawn.columns.assign(y=law.draw(drawn.predictor(drawn.columns["row"].to_numpy()), rng))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentificationWarning)
        groups = drawn.names if len(drawn.names) > 1 else drawn.names[0]
        fit = law.estimator().fit(rows, "y", groups=groups)
    found = [*_coefficients(fit, law), *_spreads(fit, law), *_rows(fit, law, drawn, rng)]
    return [
        {
            "quantity": quantity,
            "method": method,
            "coverage": float(np.mean((lower <= truth) & (truth <= upper))),
            "width": float(np.mean(upper - lower)),
        }
        for quantity, method, truth, lower, upper in found
    ]


Found = Iterator[tuple[str, str, Any, Any, Any]]


def _coefficients(fit: Any, law: MixedModel) -> Found:
    """Intervals of the coefficients of both columns."""
    for ddf in DEGREES if law.draw is _normal else ["asymptotic", "satterthwaite"]:
        table = fit.tests(ddf=ddf).set_index("term")
        for quantity, term, truth in (
            (BETWEEN, "between", MEAN[2]),
            (WITHIN, "row", MEAN[1]),
        ):
            each = table.loc[term]
            reach = student.ppf((1 + LEVEL) / 2, each["df"]) * each["std.error"]
            yield quantity, DEGREES[ddf], truth, each["estimate"] - reach, each["estimate"] + reach


def _spreads(fit: Any, law: MixedModel) -> Found:
    """Intervals of standard deviations of intercepts of linear models."""
    if not isinstance(fit, LinearEB):  # those of crossed factors take long
        return
    for method, name_of_method in PROFILES.items():
        table = fit.confint(LEVEL, method=method)
        table = table[table["term"] == "sd__intercept"].set_index("group")
        for name, root in law.spreads.items():
            each = table.loc[name]
            truth = float(np.linalg.norm(root[0]))
            yield f"spread of {name}s", name_of_method, truth, each["conf.low"], each["conf.high"]


def _rows(fit: Any, law: MixedModel, drawn: _Drawn, rng: np.random.Generator) -> Found:
    """Intervals of means of groups, of new rows of these, and of rows of new groups."""
    first = np.unique(drawn.place, return_index=True)[1]
    asked = drawn.columns.iloc[first].assign(row=rng.standard_normal(len(first)))
    z = drawn.theta[first, 0] + drawn.theta[first, 1] * asked["row"].to_numpy()
    features = asked[[*drawn.names, "row", "between"]]
    yield (
        GROUP,
        BY_POSTERIOR,
        INVERSE.get(law.draw, np.asarray)(z),
        *fit.predict_interval(features, kind="mean"),
    )
    yield ROW, BY_POSTERIOR, law.draw(z, rng), *fit.predict_interval(features)
    fresh = _draw(law, FRESH, rng)
    one = np.unique(fresh.place, return_index=True)[1]
    asked = fresh.columns.iloc[one]
    z = fresh.predictor(fresh.columns["row"].to_numpy())[one]
    yield NEW, BY_POSTERIOR, law.draw(z, rng), *fit.predict_interval(asked[["row", "between"]])


class MixedModelsStudy(Study, cells=_cells, one_run=_one_run, tabulate=_tabulate):
    """The table has a row for each ``model``, ``quantity``, ``method`` and number ``m`` of groups
    (of parents, where groups have some): ``coverage`` of nominal 95 % intervals, with its standard
    error and deviation, and median ``width``.
    """

    name, full = "mixed-models", 300
    heading = f"Mixed models: coverage of nominal {LEVEL:.0%} intervals, %, and median width"

    def lines(self) -> Iterator[str]:
        names = self.table["quantity"].str.ljust(26) + self.table["method"]
        table = self.table.assign(name=names, marked=_too_low(self.table))
        for k, (model, block) in enumerate(table.groupby("model", sort=False)):
            yield from [""] * (k > 0)
            heads: dict[str, Any] = {"head": MODELS[str(model)].label, "label": "m {}".format}
            yield from print_grid(block, "m", _printed, 42, 18, by="name", **heads)

    def notes(self) -> Iterator[str]:
        yield (
            f"{self.reps} runs with m groups each (m parents of one to three groups, where groups "
            "have parents; five items or more, which rows of groups share, where factors are "
            "crossed). A standard error of the coverage of one coefficient or spread is some "
            f"{100 * np.sqrt(LEVEL * (1 - LEVEL) / self.reps):.1f} points. Counts and classes are "
            "discrete: intervals of their rows hold more than their level."
        )
        yield "! : more than 3 standard errors, and 2 points, below the level."

    def panels(self) -> Iterator[dict[str, Any]]:
        for model, part in self.table.groupby("model", sort=False):
            named = part.assign(method=part["quantity"] + ", " + part["method"])
            labels = {"title": MODELS[str(model)].label, "xlabel": "m", "ylabel": "coverage"}
            yield {"table": named, "x": "m", "y": "coverage", "level": LEVEL} | {
                **{"errors": 1, "legend": True},
                **labels,
            }
