"""Targets of `GroupEncoder`, sums of each category and fold, and the populations fitted to them.

One pass over the rows gives the number, the mean and the scatter of each category in each fold.
What a fit on all folds but one needs are sums over the other folds, so that cross-fitting costs
fits of short tables and no further pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import type_of_target

from ebfed.kernels import summarise_rows
from ebfed.likelihoods import Binomial, Gaussian, Poisson
from ebfed.priors import beta_binomial, negative_binomial
from ebfed.priors.nested import nested_estimates
from ebfed.priors.variance_components import MomentTable, fit_components
from ebfed.tables.categories import NestedCategories
from ebfed.tables.clients import LARGEST, SMALLEST
from ebfed.tables.columns import Columns
from ebfed.tables.features import check_finite
from ebfed.tables.labels import number_labels
from ebfed.tables.lazy import column_names, statistics
from ebfed.tables.of_rows import check_whole
from ebfed.tables.scans import NotPushedError, Scan
from ebfed.tables.values import column, of_one_type, read_labels, read_response

__all__ = [
    "CategoryRows",
    "Encoding",
    "GroupSums",
    "Target",
    "fit_encoding",
    "lazy_target",
    "sums_of_categories",
]

# More different integers than these are a quantity, and not the names of classes.
MOST_CLASSES = 30
TARGETS = ("auto", "continuous", "binary", "count", "multiclass")


@dataclass(frozen=True)
class GroupSums:
    """What a population is fitted to.

    Attributes
    ----------
    size : ndarray of shape (m,)
        Number of rows of each group, or the sum of their weights; 0 where it has none.
    mean : ndarray of shape (m,)
        Mean of its rows, 0 where it has none.
    scatter : float
        Sum of squared deviations of rows from the means of their groups.
    degrees : int
        Degrees of freedom of the scatter.
    """

    size: NDArray
    mean: NDArray
    scatter: float
    degrees: int

    def ordered(self, numbers: NDArray[np.int64]) -> Self:
        """Put groups in the order of their numbers."""
        order = np.argsort(numbers)
        return replace(self, size=self.size[order], mean=self.mean[order])

    @property
    def messages(self) -> Gaussian:
        """Means with normal errors, of which the scatter says how large they are."""
        with np.errstate(divide="ignore"):
            variances = 1 / self.size[:, None]
        return Gaussian(self.mean[:, None], variances, np.array([self.scatter]), self.degrees)


def sums_of_categories(
    X: Any, columns: Sequence[str], weight: str | None, repeats: bool
) -> tuple[list[NDArray], list[GroupSums]]:
    """Add up the targets of a lazy table by category, with its own engine.

    Parameters
    ----------
    X : lazy table
        All its other columns are targets, or the weight.
    columns : sequence of str
        Columns of categories; their combinations are the groups.
    weight : str or None
        Column of the weights of rows.
    repeats : bool
        Whether a row of weight w stands for w rows.

    Returns
    -------
    labels : list of ndarrays of shape (m,)
        Categories of each column, sorted.
    sums : list of GroupSums
        Of each target.

    Examples
    --------
    >>> import polars as pl
    >>> rows = pl.LazyFrame({"g": ["b", "a", "b"], "y": [1.0, 2.0, 4.0]})
    >>> sums_of_categories(rows, ["g"], None, False)[1]
    [GroupSums(size=array([1., 2.]), mean=array([2. , 2.5]), scatter=4.5, degrees=1)]
    """
    targets = [name for name in column_names(X) if name not in (*columns, weight)]
    found = statistics(X, columns, targets, weight=weight)
    labels = [read_labels(Columns.of(found.keys).series(name), name) for name in columns]
    order = np.lexsort([number_labels(each)[1] for each in reversed(labels)])
    size = found.n.astype(float) if found.weight is None else found.weight
    if repeats:
        check_whole(size, "other than continuous")
        counts = found.mean * size[:, None]
        if (found.mean < 0).any() or (np.abs(counts - np.rint(counts)) > 1e-6 * (1 + counts)).any():
            raise ValueError("y must hold counts, whole numbers from 0; its sums are none.")
    rows = size if repeats else found.n
    degrees = int(rows.sum() - (size > 0).sum())
    pairs = zip(found.mean[order].T, found.scatter.sum(axis=0), strict=True)
    sums = [GroupSums(size[order], mean, float(scatter), degrees) for mean, scatter in pairs]
    return [each[order] for each in labels], sums


@dataclass(frozen=True)
class FoldSums:
    """Statistics of each group in each fold, arrays of shape (m, n_folds).

    Attributes
    ----------
    size, mean, scatter :
        Number of rows (or sum of weights), mean, and sum of squared deviations from it.
    rows :
        Number of rows that count as degrees of freedom.

    Examples
    --------
    >>> codes, folds = np.array([0, 0, 1, 0]), np.array([0, 1, 1, 1])
    >>> sums = FoldSums.of(np.array([1.0, 2.0, 5.0, 4.0]), codes, 2, folds, 2)
    >>> sums.without(0)
    GroupSums(size=array([2., 1.]), mean=array([3., 5.]), scatter=2.0, degrees=1)
    """

    size: NDArray
    mean: NDArray
    scatter: NDArray
    rows: NDArray

    @classmethod
    def of(
        cls,
        values: NDArray,
        codes: NDArray[np.int64],
        n_groups: int,
        folds: NDArray | None = None,
        n_folds: int = 1,
        weights: NDArray | None = None,
        repeats: bool = False,
    ) -> Self:
        """Sum up rows.

        Parameters
        ----------
        values : float64 ndarray of shape (n_rows,)
        codes : int64 ndarray of shape (n_rows,)
            The group of each row.
        n_groups : int
        folds : int64 ndarray of shape (n_rows,), optional
            The fold of each row; all rows are in one if None.
        n_folds : int
        weights : ndarray of shape (n_rows,), optional
        repeats : bool
            Whether a row of weight w stands for w rows.
        """
        cells, shape = n_groups * n_folds, (n_groups, n_folds)
        key = codes if folds is None else codes * n_folds + folds
        if weights is None:
            size, mean, scatter = summarise_rows(values, key, 0, cells).T
            rows = size
        else:
            size = np.bincount(key, weights, minlength=cells)
            mean = np.bincount(key, weights * values, minlength=cells)
            mean = np.divide(mean, size, out=np.zeros(cells), where=size > 0)
            scatter = np.bincount(key, weights * (values - mean[key]) ** 2, minlength=cells)
            rows = size if repeats else np.bincount(key, weights > 0, minlength=cells)
        return cls(*(each.reshape(shape) for each in (size, mean, scatter, rows)))

    def without(self, fold: int | None) -> GroupSums:
        """Add up all folds, or all but one."""
        kept = np.arange(self.size.shape[1]) != (-1 if fold is None else fold)
        sizes, means = self.size[:, kept], self.mean[:, kept]
        size, rows = sizes.sum(axis=1), self.rows[:, kept].sum(axis=1)
        seen = size > 0
        mean = np.divide((sizes * means).sum(axis=1), size, out=np.zeros(len(size)), where=seen)
        scatter = self.scatter[:, kept].sum() + (sizes * (means - mean[:, None]) ** 2).sum()
        return GroupSums(size, mean, float(scatter), int(rows.sum() - seen.sum()))


@dataclass(frozen=True)
class Encoding:
    """Estimates of the groups of every level of a chain of columns.

    Attributes
    ----------
    centre : float
        Estimate of a group of which nothing is known.
    levels : list of ndarrays
        Estimates of the groups of each level, from the top.
    sums : GroupSums
        What they are estimates from.
    spreads : list of float
        What was found by a search: the overdispersion, or the ratios of variances.
    bases : list of ndarrays, optional
        With a model of the mean, estimates are deviations from it, and these are the average
        predictions of each group; NaN where it has no rows.
    """

    centre: float
    levels: list[NDArray]
    sums: GroupSums
    spreads: list[float]
    bases: list[NDArray] | None = None

    def deviation(self, nodes: Sequence[NDArray[np.int64]], level: int) -> NDArray | float:
        """Estimates of rows without the bases; of an unknown group (-1), that of its parent."""
        if level < 0:
            return self.centre
        at = nodes[level]
        own = self.levels[level][at]
        return (
            own
            if at.min(initial=0) >= 0
            else np.where(at >= 0, own, self.deviation(nodes, level - 1))
        )

    def estimates(
        self, nodes: Sequence[NDArray[np.int64]], level: int, predictions: NDArray | None = None
    ) -> NDArray:
        """Estimates of rows; the base of an unknown group is the row's own prediction."""
        deviation = np.asarray(self.deviation(nodes, level))
        if self.bases is None:
            return deviation
        base = np.where(nodes[level] >= 0, self.bases[level][nodes[level]], np.nan)
        own = base if predictions is None else predictions
        return deviation + np.where(np.isnan(base), own, base)

    def local(self, parents: Sequence[NDArray], level: int) -> tuple[NDArray, NDArray]:
        """Size and own mean of each group of a level."""
        size, mean = self.sums.size, self.sums.mean
        if self.bases is not None:
            mean = mean + self.bases[-1]
        for above in list(parents)[level:][::-1]:
            size, mean = _upper(above, size, mean)
        return size, mean


def fit_encoding(
    kind: str,
    sums: GroupSums,
    parents: Sequence[NDArray[np.int64]],
    near: Encoding | None = None,
) -> Encoding:
    """Fit a population to groups, and estimate their means.

    Groups of one level have the conjugate population of their kind: normal, by restricted maximum
    likelihood, or beta or gamma, by maximum likelihood. Groups within groups are normal, whatever
    the kind: their estimates are the best linear ones.

    Parameters
    ----------
    kind : {"continuous", "binary", "count"}
    sums : GroupSums of the groups of the lowest level
    parents : sequence of int64 ndarrays
        See `ebfed.priors.nested.nested_estimates`.
    near : Encoding, optional
        Fit to similar data, from which searches begin.

    Examples
    --------
    >>> sums = GroupSums(np.array([8.0, 8.0, 1.0]), np.array([0.25, 0.75, 1.0]), 3.0, 14)
    >>> encoding = fit_encoding("binary", sums, [])
    >>> round(encoding.centre, 2), encoding.levels[0].round(2)
    (0.55, array([0.39, 0.66, 0.61]))
    """
    if not parents:
        spread = None if near is None else near.spreads[0]
        centre, size, spread = CONJUGATE[kind](sums, spread)
        total = sums.size + size
        weight = np.divide(sums.size, total, out=np.zeros(len(total)), where=total > 0)
        return Encoding(centre, [centre + weight * (sums.mean - centre)], sums, [spread])
    found = nested_estimates(sums.messages, parents, None if near is None else near.spreads)
    return Encoding(found.centre, found.levels, sums, found.ratios)


def _upper(parents: NDArray, size: NDArray, mean: NDArray) -> tuple[NDArray, NDArray]:
    """Sizes and means of parents."""
    total = np.bincount(parents, size)
    sums = np.bincount(parents, size * np.where(size > 0, mean, 0.0))
    return total, np.divide(sums, total, out=np.full(len(total), np.nan), where=total > 0)


def _normal(sums: GroupSums, near: float | None) -> tuple[float, float, float]:
    """Mean of a normal population, the rows that it is worth, and its variance over the noise's."""
    noisy = sums.scatter > 0 or not sums.degrees  # rows that are alone in their groups are noise
    table = MomentTable.of(sums.messages, 0, noisy)
    if not len(table.counts):
        return 0.0, np.inf, 0.0
    ratio = fit_components([table], "reml", near)[0] if sums.degrees else 0.0
    size = (1 / ratio if ratio else np.inf) if noisy else 0.0
    return float(table.profile(ratio).mean), size, ratio


def _beta(sums: GroupSums, near: float | None) -> tuple[float, float, float]:
    """Mean of a beta population, the rows that it is worth, and its overdispersion."""
    successes = np.rint(sums.mean * sums.size).astype(np.int64)
    rows, times = Binomial(successes[:, None], sums.size.astype(np.int64)).compress()
    mean, overdispersion = beta_binomial.maximise(rows, times, near)
    return mean, 1 / overdispersion if overdispersion else np.inf, overdispersion


def _gamma(sums: GroupSums, near: float | None) -> tuple[float, float, float]:
    """Mean of a gamma population, the rows that it is worth, and its overdispersion."""
    counts = np.rint(sums.mean * sums.size).astype(np.int64)
    rows, times = Poisson(counts[:, None], sums.size).compress()
    mean, overdispersion = negative_binomial.maximise(rows, times, near)
    return mean, 1 / (overdispersion * mean) if overdispersion else np.inf, overdispersion


CONJUGATE = {"continuous": _normal, "binary": _beta, "count": _gamma}


@dataclass(frozen=True)
class CategoryRows:
    """Rows of a chain of columns, ready to be summed up.

    Attributes
    ----------
    categories : NestedCategories
    nodes : list of int64 ndarrays of shape (n_rows,)
        The category of each row, in each level.
    folds, n_folds, weights :
        See `FoldSums.of`.
    """

    categories: NestedCategories
    nodes: list[NDArray[np.int64]]
    folds: NDArray[np.int64]
    n_folds: int
    weights: NDArray | None

    @classmethod
    def of(
        cls,
        columns: Sequence[Any],
        folds: NDArray[np.int64],
        n_folds: int,
        weights: NDArray | None,
    ) -> Self:
        """Number the categories of columns, the outermost first."""
        return cls(*NestedCategories.of(columns), folds, n_folds, weights)

    def encodings(
        self, kind: str, values: NDArray, predictions: NDArray | None, cross: bool
    ) -> list[Encoding]:
        """Fit to all folds but one, of each if `cross`, and last to all rows.

        Parameters
        ----------
        kind : {"continuous", "binary", "count"}
        values : ndarray of shape (n_rows,)
            The target.
        predictions : ndarray of shape (n_folds + 1, n_rows), optional
            Those of `cross_fitting.cross_predictions`, from which estimates are deviations.
        cross : bool
        """
        left_out = range(self.n_folds if cross else 0)
        repeats, n_groups = kind != "continuous", self.categories.sizes()[-1]
        if predictions is not None:
            whole = self._around(values, predictions, None, repeats, None)
            apart = [self._around(values, predictions, f, repeats, whole) for f in left_out]
            return [*apart, whole]
        folds, n_folds = (self.folds, self.n_folds) if cross else (None, 1)
        codes = self.nodes[-1]
        sums = FoldSums.of(values, codes, n_groups, folds, n_folds, self.weights, repeats)
        parents = self.categories.parents
        whole = fit_encoding(kind, sums.without(None), parents)
        return [*(fit_encoding(kind, sums.without(f), parents, whole) for f in left_out), whole]

    def crossed(
        self, encodings: Sequence[Encoding], level: int, predictions: NDArray | None
    ) -> NDArray:
        """Estimates of rows, each by the encoding that was fitted without its fold."""
        at = self.folds, self.nodes[level]
        deviation = np.stack([each.levels[level] for each in encodings])[at]
        if predictions is None:
            return deviation
        bases = np.stack([each.bases[level] for each in encodings if each.bases])[at]
        own = predictions[self.folds, np.arange(len(self.folds))]
        return deviation + np.where(np.isnan(bases), own, bases)

    def _around(
        self,
        values: NDArray,
        predictions: NDArray,
        fold: int | None,
        repeats: bool,
        near: Encoding | None,
    ) -> Encoding:
        """Fit to deviations from predictions."""
        kept = np.ones(len(values), bool) if fold is None else self.folds != fold
        predicted = predictions[-1 if fold is None else fold][kept]
        codes, n_groups = self.nodes[-1][kept], self.categories.sizes()[-1]
        weights = None if self.weights is None else self.weights[kept]
        sums = FoldSums.of(values[kept] - predicted, codes, n_groups, None, 1, weights, repeats)
        parents = self.categories.parents
        encoding = fit_encoding("continuous", sums.without(None), parents, near)
        size = np.bincount(codes, weights, minlength=n_groups)
        total = np.bincount(codes, predicted if weights is None else weights * predicted, n_groups)
        bases = [np.divide(total, size, out=np.full(n_groups, np.nan), where=size > 0)]
        for above in reversed(parents):
            size, base = _upper(above, size, bases[0])
            bases.insert(0, base)
        return replace(encoding, bases=bases)


@dataclass(frozen=True)
class Target:
    """A target as columns of numbers: itself, or an indicator of each class.

    Attributes
    ----------
    kind : {"continuous", "binary", "count", "multiclass"}
    columns : list of float64 ndarrays of shape (n_rows,)
    classes : ndarray or None
    """

    kind: str
    columns: list[NDArray[np.float64]]
    classes: NDArray | None = None

    @property
    def population(self) -> str:
        """Kind of each column."""
        return "binary" if self.kind == "multiclass" else self.kind

    @classmethod
    def of(cls, y: Any, kind: str) -> Self:
        """Read a target."""
        given, y = y, column_or_1d(read_response(y, "y"), warn=True)
        if kind not in TARGETS:
            raise ValueError(
                f"target must be one of {', '.join(map(repr, TARGETS))}; got {kind!r}."
            )
        if kind not in ("continuous", "count"):
            if y.dtype.kind == "f":
                check_finite(y, "y")
            elif y.dtype.kind in "OMm" and (missing := pd.isna(y)).any():
                row = int(np.argmax(missing))
                raise ValueError(f"y has a missing value, the first in row {row}.")
            y = of_one_type(y, "y") if y.dtype.kind == "O" else y
        if kind == "auto":
            with np.errstate(invalid="ignore"):  # in the cast that looks for whole numbers
                kind = type_of_target(y, input_name="y", raise_unknown=True)
            if kind == "multiclass" and (
                y.dtype.kind == "f" or (y.dtype.kind in "iu" and len(pd.unique(y)) > MOST_CLASSES)
            ):
                kind = "continuous"
        if kind in ("binary", "multiclass"):
            codes, classes = pd.factorize(y, sort=True)
            if kind == "binary" and len(classes) > 2:
                raise ValueError(
                    f"a binary target has two values; y has {len(classes)}: target='multiclass'?"
                )
            if kind == "binary" and list(classes) == [1]:  # of 0 and 1
                codes, classes = codes + 1, np.array([0, 1], classes.dtype)
            wanted = [1] if kind == "binary" else range(len(classes))
            return cls(kind, [(codes == c).astype(float) for c in wanted], np.asarray(classes))
        values = np.ascontiguousarray(column(given, "y"))
        wrong = ~(np.abs(values) < LARGEST)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(
                f"y must hold finite numbers below {LARGEST:g}; row {row} has {y[row]}."
            )
        if 0 < np.abs(values).max() < SMALLEST:
            raise ValueError(f"y is too small for float64 arithmetic (below {SMALLEST:g}).")
        other = (values < 0) | (values != np.floor(values))
        if kind == "count" and other.any():
            row = int(np.argmax(other))
            raise ValueError(f"y must hold counts, whole numbers from 0; row {row} has {y[row]}.")
        return cls(kind, [values])

    def weights(self, sample_weight: NDArray | None) -> NDArray | None:
        """Check weights of rows: precisions, or frequencies of another than a continuous target."""
        if sample_weight is None:
            return None
        if sample_weight.shape != (n_rows := self.columns[0].shape):
            raise ValueError(
                f"sample_weight must be one number per row, {n_rows[0]}; it has shape "
                f"{sample_weight.shape}."
            )
        if self.kind != "continuous":
            check_whole(sample_weight, self.kind)
        return sample_weight


def lazy_target(X: Any, name: str, kind: str) -> tuple[Target, dict[str, Any], Scan]:
    """Read what the target of a lazy table is from its different values, or from a few rows.

    Parameters
    ----------
    X : lazy table
    name : str
        Column of the target.
    kind : str
        As of `Target.of`.

    Returns
    -------
    target : Target
        Of a few rows.
    columns : dict of Expr
        Its columns, as expressions of the engine.
    scan : Scan

    Raises
    ------
    ValueError
        If there are too many classes, or the target is not what `kind` says.
    """
    scan = Scan.of(X, [name], [], [], "raise")
    values = read_response(scan.sample.series(name), "y")
    different = len(pd.unique(values))
    many = MOST_CLASSES if values.dtype.kind in "iu" else 2
    if kind not in ("continuous", "count") and (
        values.dtype.kind not in "iuf" or different <= many
    ):
        try:
            scan = Scan.of(X, [name], [], [name], "raise")
        except NotPushedError:
            if values.dtype.kind not in "iuf":
                raise ValueError(f"y has too many classes: {name!r} is text.") from None
    target = Target.of(scan.sample.series(name), kind)
    if target.classes is None or target.classes.tolist() in ([0, 1], [False, True]):
        return target, {name: scan.number(name)}, scan
    wanted = target.classes.tolist()[-1:] if target.kind == "binary" else target.classes.tolist()
    return target, {f"{name}_{each}": scan.is_level(name, each) for each in wanted}, scan
