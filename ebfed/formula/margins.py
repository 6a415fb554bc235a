"""Estimated marginal means and slopes of a formula's fit, and their contrasts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ebfed.families.base import IDENTITY, Link
from ebfed.formula.grid import ReferenceGrid
from ebfed.formula.inferring import with_tests
from ebfed.inference.contrasts import contrast_tests
from ebfed.inference.degrees_of_freedom import Inference
from ebfed.inference.multiplicity import (
    Adjustment,
    adjusted_p_values,
    check_adjustment,
    critical_values,
)
from ebfed.regression.inferring import link_of, spread_of
from ebfed.tables.frames import Style, frame

if TYPE_CHECKING:
    from ebfed.formula.fit import FormulaFit

__all__ = ["Margins", "margins"]


@dataclass(frozen=True, repr=False)
class Margins:
    """Estimated marginal means, or slopes, of a population: see `FormulaFit.margins`.

    Attributes
    ----------
    labels : dict of ndarray of shape (n,)
        Value of each column at which the means are.
    contrasts : ndarray of shape (n, p)
        Combinations of the coefficients of the mean.
    """

    labels: dict[str, NDArray]
    contrasts: NDArray
    _inference: Inference
    _link: Link
    _spread: NDArray | None
    _style: Style

    def frame(self, level: float = 0.95, *, scale: Literal["link", "response"] = "link") -> Any:
        """Return the means with intervals.

        Parameters
        ----------
        level : float
            Probability that an interval holds its mean.
        scale : {"link", "response"}
            Scale of the linear predictor; or that of the response, to which estimates and ends of
            intervals are taken, and standard errors by the slope of the link.

        Returns
        -------
        DataFrame
            The columns of `labels`, ``estimate``, ``std.error``, ``df``, ``conf.low``,
            ``conf.high``.
        """
        found = self._with_intervals(self.contrasts, level, "none", len(self.contrasts))
        del found["statistic"], found["p.value"]
        if scale == "response":
            found = self._responses(found)
        elif scale != "link":
            raise ValueError(f"scale must be 'link' or 'response'; got {scale!r}.")
        return frame(self.labels | found, self._style)

    def pairs(self, adjust: Adjustment = "tukey", level: float = 0.95) -> Any:
        """Compare all pairs of the means, on the scale of the link.

        Parameters
        ----------
        adjust : {"tukey", "holm", "bonferroni", "none"}
            How p-values and intervals allow for the number of pairs. Tukey's needs the means of
            balanced groups to be exact; it is conservative for others (Kramer 1956).
        level : float

        Returns
        -------
        DataFrame
            ``contrast``, ``estimate``, ``std.error``, ``df``, ``statistic``, ``p.value``,
            ``conf.low``, ``conf.high``.
        """
        names = self._names()
        places = list(combinations(range(len(names)), 2))
        weights = np.zeros((len(places), len(names)))
        for row, (i, j) in enumerate(places):
            weights[row, i], weights[row, j] = 1.0, -1.0
        labels = [f"{names[i]} - {names[j]}" for i, j in places]
        return self._compared(labels, weights, adjust, level)

    def contrast(
        self,
        weights: Mapping[str, Sequence[float]],
        adjust: Adjustment = "none",
        level: float = 0.95,
    ) -> Any:
        """Test weighted sums of the means, on the scale of the link.

        Parameters
        ----------
        weights : mapping of str to sequence of n floats
            Weight of each mean, by the name of the contrast.
        adjust : {"none", "holm", "bonferroni"}
        level : float

        Returns
        -------
        DataFrame
            As `pairs`.
        """
        n = len(self.contrasts)
        table = {name: np.asarray(each, float) for name, each in weights.items()}
        for name, each in table.items():
            if each.shape != (n,) or not np.isfinite(each).all():
                raise ValueError(f"weights of {name!r} must be {n} numbers, one of each mean.")
        if adjust == "tukey":
            raise ValueError("adjust='tukey' is of all pairs; use 'holm' or 'bonferroni'.")
        return self._compared(list(weights), np.array([*table.values()]), adjust, level)

    def _compared(
        self, labels: list[str], weights: NDArray, adjust: Adjustment, level: float
    ) -> Any:
        check_adjustment(adjust)
        contrasts = weights.reshape(len(labels), len(self.contrasts)) @ self.contrasts
        found = self._with_intervals(contrasts, level, adjust, len(self.contrasts))
        return frame({"contrast": np.array(labels, object)} | found, self._style)

    def _with_intervals(
        self, contrasts: NDArray, level: float, adjust: Adjustment, n_means: int
    ) -> dict[str, NDArray]:
        if not 0 < level < 1:
            raise ValueError(f"a level must lie between 0 and 1; got {level!r}.")
        found = contrast_tests(self._inference, contrasts)
        if self._spread is not None:
            between = np.einsum("np,pq,nq->n", contrasts, self._spread, contrasts)
            found["std.error"] = np.sqrt(found["std.error"] ** 2 + between)
            found["statistic"] = found["p.value"] = np.full(len(contrasts), np.nan)
        found["p.value"] = adjusted_p_values(
            found["statistic"], found["df"], found["p.value"], adjust, n_means
        )
        half = critical_values(found["df"], level, adjust, n_means) * found["std.error"]
        found["conf.low"], found["conf.high"] = found["estimate"] - half, found["estimate"] + half
        return found

    def _responses(self, found: dict[str, NDArray]) -> dict[str, NDArray]:
        ends = {name: self._link.from_line(found[name]) for name in ("conf.low", "conf.high")}
        estimate = self._link.from_line(found["estimate"])
        error = found["std.error"] / np.abs(self._link.slope(estimate))
        return found | {"estimate": estimate, "std.error": error} | ends

    def _names(self) -> list[str]:
        """Name of each mean: the values of its columns."""
        columns = [values.tolist() for values in self.labels.values()]
        return [" ".join(map(str, each)) for each in zip(*columns, strict=True)]

    def __repr__(self) -> str:
        return repr(self.frame())


def margins(
    self: FormulaFit,
    terms: str | Sequence[str] = (),
    *,
    at: Mapping[str, Any] | None = None,
    slope: str | None = None,
    weights: Literal["equal", "proportional"] = "equal",
    group: Literal["typical", "new"] = "typical",
    ddf: Any = None,
    data: Any = None,
) -> Margins:
    """Estimate marginal means or slopes, as emmeans does.

    Means are those of the linear predictor at each combination of the levels of `terms`; other
    factors are averaged over, other numbers are at their means over rows, and an offset is zero, so
    that counts are at an exposure of 1 (Searle, Speed, Milliken 1980).

    Parameters
    ----------
    terms : str or sequence of str
        Columns of which each combination of levels has a mean. Of a number it is the mean of the
        rows, unless `at` has others. None of them: one mean of all.
    at : mapping of str to value or sequence, optional
        Values of columns.
    slope : str, optional
        Column: slopes of the linear predictor in it, as ``emtrends``, in place of means.
    weights : {"equal", "proportional"}
        Weights of levels that are averaged over: equal, or as often as rows have them.
    group : {"typical", "new"}
        Whether intervals are of a group whose coefficients are the mean of all, or of one new group
        drawn from the population. The variance between groups is then added, which is taken as
        known; degrees of freedom are those of the mean, as is exact for balanced groups.
    ddf : {"satterthwaite", "kenward-roger", "residual", "asymptotic"}, optional
        Degrees of freedom; see `tests`.
    data : data frame, optional
        Rows that have the levels, means and frequencies; those of the fit if None.

    Returns
    -------
    Margins
        With `frame`, `pairs` and `contrast`.

    Raises
    ------
    TypeError
        If the estimator has no tests.
    ValueError
        If a column is not one of the formula, or an argument has no such value.

    References
    ----------
    Searle, Speed, Milliken (1980), Population marginal means in the linear model: an alternative to
    least squares means, Am. Stat. 34.
    Kramer (1956), Extension of multiple range tests to group means with unequal numbers of
    replications, Biometrics 12.

    Examples
    --------
    >>> import ebfed as eb
    >>> import statsmodels.api as sm
    >>> grunfeld = sm.datasets.grunfeld.load_pandas().data
    >>> grunfeld["war"] = grunfeld["year"].between(1940, 1945).map({True: "war", False: "peace"})
    >>> fit = eb.from_formula("invest ~ value + war + (1 | firm)", grunfeld)
    >>> fit.margins("war").frame().round(0)
         war  estimate  std.error    df  conf.low  conf.high
    0  peace     140.0       25.0   8.0      82.0      197.0
    1    war     118.0       26.0  10.0      60.0      177.0
    """
    self = with_tests(self)
    estimator = self.estimator_
    if not hasattr(estimator, "inference"):
        raise TypeError(f"{estimator.__class__.__name__} has no tests of coefficients.")
    if weights not in ("equal", "proportional"):
        raise ValueError(f"weights must be 'equal' or 'proportional'; got {weights!r}.")
    if group not in ("typical", "new"):
        raise ValueError(f"group must be 'typical' or 'new'; got {group!r}.")
    grid = ReferenceGrid(self.design_, self._frame(data), at or {})
    named = [terms] if isinstance(terms, str) else list(terms)
    labels, contrasts = grid.contrasts(named, weights, slope)
    inference = estimator.inference() if ddf is None else estimator.inference(ddf)
    return Margins(
        labels or {"mean": np.array(["all"], object)},
        contrasts,
        inference,
        IDENTITY if slope is not None else link_of(estimator),
        spread_of(estimator) if group == "new" else None,
        Style(self.view().style.backend),
    )
