"""Residuals and checks of the rows of a formula's fit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ebfed.formula.inferring import with_tests
from ebfed.regression import CrossedEB, LinearEB, LogisticEB
from ebfed.report.diagnostics import Diagnostics, ResidualKind

if TYPE_CHECKING:
    from ebfed.formula.fit import FormulaFit

__all__ = [
    "diagnostics_of_formula",
    "influence_of_formula",
    "more_columns",
    "residuals_of_formula",
]


def diagnostics_of_formula(self: FormulaFit, data: Any = None) -> Diagnostics:
    """Return rows with what the fit says of them: residuals, leverages and checks.

    Parameters
    ----------
    data : data frame, optional
        Rows with the response, and with weights where the fit had some: in the same column, or in
        ``"(weights)"`` if those were numbers. Those of the fit if None.

    Returns
    -------
    Diagnostics

    Raises
    ------
    TypeError
        If the estimator is no `LinearEB`, `LogisticEB`, `GeneralizedEB` or `CrossedEB`.

    Examples
    --------
    >>> import ebfed as eb
    >>> import statsmodels.api as sm
    >>> grunfeld = sm.datasets.grunfeld.load_pandas().data
    >>> fit = eb.from_formula("invest ~ value + capital + (1 | firm)", grunfeld)
    >>> fit.diagnostics()
    <Diagnostics of 220 rows>
    """
    self = with_tests(self)
    if not hasattr(self.estimator_, "diagnostics"):
        raise TypeError(
            f"{type(self.estimator_).__name__} has no residuals of this kind; LinearEB, "
            "LogisticEB, GeneralizedEB and CrossedEB have."
        )
    rows = self._rows
    if data is not None:
        rows = rows.of_others(self._model, data)
    self._frame(data)  # a copy without rows says so
    arguments, options = self._arguments(rows, self.design_.of(rows.data))
    found = self.estimator_.diagnostics(*arguments, **options)
    if isinstance(self.estimator_, LogisticEB):
        counts = self.response.counts(rows.data, rows.weights)
        if counts is not None:
            times = rows.weights if self._model.counts else None
            found = _of_trials(found, *counts, times, self.predict(rows.data))
    return found if data is None else replace(found, leverage=None)


def _of_trials(
    found: Diagnostics, won: NDArray, trials: NDArray, times: NDArray | None, fitted: NDArray
) -> Diagnostics:
    """Return rows of several trials each, of what a fit says of the single trials.

    Rows without trials have no response.
    """
    first = np.minimum(np.cumsum(trials) - trials, len(found.response) - 1)
    weight = trials * (1.0 if times is None else times)

    def smoothed(values: NDArray) -> tuple[NDArray, NDArray]:
        ones = np.rint(values * trials).astype(np.int64)
        outcomes = np.tile([1.0, 0.0], len(trials))
        assert found.smoothed is not None
        again = found.smoothed(np.repeat(outcomes, np.column_stack([ones, trials - ones]).ravel()))
        return again[0][first], again[1][first]

    law: Any = found.law  # a dataclass
    return replace(
        found,
        response=np.where(trials > 0, won / np.maximum(trials, 1), np.nan),
        fitted=fitted,
        expected=found.expected[first],
        predictor=found.predictor[first],
        unknown=(found.unknown[0][first], found.unknown[1][first]),
        law=replace(law, weight=weight, plain=times is None or bool((times == 1).all())),
        drawn=lambda rng: found.drawn(rng)[first],
        renewed=lambda rng: found.renewed(rng)[first],
        smoothed=smoothed,
    )


def influence_of_formula(self: FormulaFit, level: str | None = None, **options: Any) -> Any:
    """Return how much the coefficients depend on each group, by leaving it out.

    Parameters
    ----------
    level : str, optional
        Name of the level of groups, or of the factor; the lowest, or the first factor, if None.
    **options
        ``refit=True`` of linear models fits again without each group; see `LinearEB.influence` and
        `CrossedEB.influence`.

    Returns
    -------
    DataFrame

    Raises
    ------
    TypeError
        If the estimator has none.
    """
    self = with_tests(self)
    if not hasattr(self.estimator_, "influence"):
        raise TypeError(f"{type(self.estimator_).__name__} has no influence of groups.")
    if not isinstance(self.estimator_, CrossedEB):
        return self.estimator_.influence(level, **options)
    self._frame(None)  # a copy without rows says so
    arguments, given = self._arguments(self._rows, self.design_.of(self._rows.data))
    return self.estimator_.influence(*arguments, **(given | {"level": level} | options))


def residuals_of_formula(
    self: FormulaFit,
    data: Any = None,
    *,
    kind: ResidualKind = "response",
    conditional: bool = True,
    random_state: Any = 0,
) -> NDArray[np.float64]:
    """Return a residual of each row: see `Diagnostics.residuals`.

    Parameters
    ----------
    data : data frame, optional
        Rows with the response; those of the fit if None.
    kind : {"response", "pearson", "deviance", "standardized", "quantile"}
    conditional : bool
        Whether effects of groups are given; else those of new groups.
    random_state : int, Generator or None
        Seed of quantile residuals.

    Returns
    -------
    ndarray of shape (n_rows,)
        NaN for rows that ``na_action="exclude"`` left out.
    """
    found = self.diagnostics(data)
    values = found.residuals(kind, conditional=conditional, random_state=random_state)
    return self._rows.padded(values, data)


def more_columns(fit: FormulaFit) -> dict[str, NDArray]:
    """Columns of `augment` of the rows of the fit: of linear models ``.hat`` and ``.cooksd``."""
    if not isinstance(fit.estimator_, LinearEB | CrossedEB):
        return {}
    found = fit.diagnostics()
    if found.leverage is None or not np.all(found.law.spread(found.fitted) > 0):
        return {}
    hat = found.leverage()
    pearson = found.residuals("pearson")
    left = np.where(1 - hat > 1e-12, 1 - hat, np.nan)
    return {".hat": hat, ".cooksd": (pearson / left) ** 2 * hat / found.rank}
