"""Frames of the effects and coefficients of the levels of crossed factors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.regression.columns import INTERCEPT
from ebfed.report.view import reliability
from ebfed.tables.frames import frame

__all__ = ["coef_of_levels", "ranef_of_levels", "reliability_of_levels"]


class OfLevels(NamedTuple):
    """Numbers of the levels of a factor, shape (n_levels, k), one column for each term."""

    terms: tuple[str, ...]
    estimate: NDArray
    std_error: NDArray


def ranef_of_levels(self: Any, level: str | None = None) -> Any:
    """Return the effects of levels, with standard deviations given the coefficients of X.

    These are lme4's conditional modes and conditional standard deviations.

    Parameters
    ----------
    level : str, optional
        Name of a factor. None: all, one after the other.

    Returns
    -------
    DataFrame
        Of one factor: its labels, ``estimate`` and ``std.error``; of all: ``group``, the name of
        the factor, ``level``, the label as text, ``estimate`` and ``std.error``. Of factors with
        slopes a row for each coefficient, which ``term`` names.

    Raises
    ------
    ValueError
        If there is no such factor.
    """

    def effects(name: str) -> OfLevels:
        found = self._effects(name, given_mean=True)
        return OfLevels(found.terms, found.mean, found.sd)

    return _frame_of(self, level, effects, named=False)


def coef_of_levels(self: Any, level: str | None = None) -> Any:
    """Return the coefficients of the levels of a factor: those of all rows, and how each differs.

    Parameters
    ----------
    level : str, optional
        Name of a factor. None: all, one after the other, as lme4's ``coef`` has a list of them.

    Returns
    -------
    DataFrame
        A row for each level and each term that differs: the label, ``term``, ``estimate`` and
        ``std.error``, which has what is not known of both. Of all factors, ``group`` and ``level``,
        the name of the factor and the label as text, are in the place of the label.

    Raises
    ------
    ValueError
        If there is no such factor.
    """

    def coefficients(name: str) -> OfLevels:
        found = self._effects(name)
        place = self._order.index(self._names.index(name))
        design = np.array([[float(term == each) for each in self.terms_] for term in found.terms])
        design = self._within(design)
        errors = self._fit.errors_with(place, design)
        return OfLevels(found.terms, found.mean + self._fit.fixed(design), errors)

    return _frame_of(self, level, coefficients, named=True)


def reliability_of_levels(self: Any, level: str | None = None) -> Any:
    """Return the share of each effect's variance that the rows of its level explain.

    It is ``1 - condVar / variance``, of the variance of an effect given its rows and coefficients
    of X, and that of all effects of the factor.

    Parameters
    ----------
    level : str, optional
        Name of a factor; the first if None.

    Returns
    -------
    DataFrame
        Labels, and a column for each term that differs between levels.
    """
    check_is_fitted(self, "mean_")
    name = self._names[0] if level is None else level
    effects = self._effects(name, given_mean=True)
    shares = reliability(effects.terms, effects.sd, self.covariances_[name])
    style = self._styles[self._names.index(name)].avoiding(shares)
    return frame({style.group: self.levels_[name]} | shares, style)


def _frame_of(self: Any, level: str | None, found: Callable[[str], OfLevels], named: bool) -> Any:
    """Put the numbers of one factor or of all into a frame.

    `named` is whether to name the terms also where only the intercept differs.
    """
    check_is_fitted(self, "mean_")
    names = self._names if level is None else [level]
    parts = [found(name) for name in names]
    columns: dict[str, NDArray] = {}
    if level is None:
        style = self._style_.unlabelled()
        sizes = [part.estimate.size for part in parts]
        columns["group"] = np.repeat(np.array(names, object), sizes)
        labels = [
            np.repeat(np.array(list(map(str, ids.tolist())), object), len(part.terms))
            for ids, part in zip(self._ids, parts, strict=True)
        ]
        columns["level"] = np.concatenate(labels)
    else:
        style = self._styles[self._names.index(level)]
        columns[style.group] = np.repeat(self.levels_[level], len(parts[0].terms))
    if named or any(part.terms != (INTERCEPT,) for part in parts):
        terms = [np.tile(np.array(each.terms, object), len(each.estimate)) for each in parts]
        columns["term"] = np.concatenate(terms)
    columns["estimate"] = np.concatenate([part.estimate.ravel() for part in parts])
    columns["std.error"] = np.concatenate([part.std_error.ravel() for part in parts])
    return frame(columns, style)
