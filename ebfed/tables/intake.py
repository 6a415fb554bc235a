"""Reading rows: from any table to a summary of groups, with what goes with them.

An `Intake` remembers which columns of the frame of a fit were labels, choices of consent,
covariates, and what goes with rows (exposures, weights), so that later frames which have these
columns need not name them again.
What the rows are is not its concern: two functions that are given with each call check values and
summarise them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.blocks import blocks
from ebfed.tables.alignment import of_groups
from ebfed.tables.clients import Clients, Summary
from ebfed.tables.covariates import named_columns, read_covariates
from ebfed.tables.frames import Style, titles
from ebfed.tables.labels import number_labels, parents_among, row_numbers
from ebfed.tables.lazy import Summarised, is_lazy, summarise
from ebfed.tables.levels import (
    keys_of_parents,
    named_parents,
    names_of_parents,
    number_levels,
    only_level,
    split_levels,
)
from ebfed.tables.of_rows import NOTHING
from ebfed.tables.roles import NEEDED, Roles
from ebfed.tables.rows import Rows
from ebfed.tables.unseen import warn_of_blanks
from ebfed.tables.values import read_labels

__all__ = ["GroupRows", "Intake"]


@dataclass(frozen=True)
class GroupRows:
    """Rows that were read.

    Attributes
    ----------
    summary : Summary
        Of the groups, sorted by label; of each row, if these have none.
    labels : ndarray of shape (n_rows,) or None
    codes : int64 ndarray of shape (n_rows,) or None
        Place of each row's label among the groups; or the labels, where they are integers.
    style : Style
    consent : ndarray, mapping or None
        Choices as given, read.
    covariates : ndarray of shape (n_groups, k)
    values : ndarray of shape (n_rows, d) or None
        The rows, where they are in memory.
    of_rows : mapping of str to ndarray of shape (n_rows,)
        What goes with the rows, by name; see `ebfed.tables.of_rows`.
    """

    summary: Summary
    labels: NDArray | None
    codes: NDArray[np.int64] | None
    style: Style
    consent: Any
    covariates: NDArray
    values: NDArray | None = None
    of_rows: Mapping[str, NDArray] = field(default_factory=dict)

    @property
    def alone(self) -> Self:
        """The groups, without their rows."""
        ids = self.summary.ids
        return replace(self, labels=ids, codes=np.arange(len(ids)), values=None, of_rows={})

    @property
    def clients(self) -> Summary:
        """The summary; rows without labels are none of the groups of the fit."""
        if self.labels is not None:
            return self.summary
        return replace(self.summary, ids=np.full(len(self.summary), None))

    @property
    def shown(self) -> NDArray:
        """Label of each row, its number if it has none."""
        return self.summary.ids if self.labels is None else self.labels

    def spread(self, values: NDArray) -> NDArray:
        """Repeat values of groups, shape (n_groups, d), for each of their rows."""
        if self.codes is None:
            return values
        codes, ids, first = self.codes, self.summary.ids, 0
        if self.labels is self.codes:  # a table with a row for each integer between two labels
            first = ids[0]
            if len(ids) <= ids[-1] - first:
                table = np.empty((ids[-1] - first + 1, *values.shape[1:]))
                table[ids - first] = values
                values = table
        spread = np.empty((len(codes), *values.shape[1:]))
        for block in blocks(len(spread)):
            # nothing is clipped; the mode makes it write without a copy
            np.take(values, codes[block] - first, axis=0, out=spread[block], mode="clip")
        return spread


# Checks the values of rows that were read; returns them in shape (n_rows, d).
Check = Callable[[Rows, bool], NDArray]
# From checked values, labels and what goes with rows to a summary.
Summarise = Callable[[NDArray, NDArray | None, Mapping[str, NDArray]], Summary]


def _are_names(groups: Any, count: int) -> bool:
    """Tell whether so many names of columns were given."""
    given = isinstance(groups, list | tuple) and len(groups) == count
    return given and all(isinstance(name, str) for name in groups)


class Intake:
    """Reads rows of a fit, and later rows in the same way.

    Attributes
    ----------
    style : Style
        How frames of the fit are to look.
    covariate_names : list of str
        Names of the covariates of the population.
    predicted : callable or None
        From covariates that are read, those of the population, where a regressor predicts them; it
        has the `names` of the former.
    """

    def __init__(self) -> None:
        self.style = Style()
        self.covariate_names: list[str] = []
        self.predicted: Any = None
        self.roles = Roles()

    def as_data(self) -> dict[str, Any]:
        """Return what is remembered as plain data, from which `of_data` makes it again.

        Raises
        ------
        TypeError
            If a regressor predicts covariates: it is no plain data.
        """
        if self.predicted is not None:
            raise TypeError("the regressor of mean_model has no form in JSON. Pickle this fit.")
        return {
            "style": self.style.as_data(),
            "covariate_names": self.covariate_names,
            "roles": dict(self.roles.columns),
        }

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Self:
        """Make an intake of plain data.

        Examples
        --------
        >>> intake = Intake()
        >>> Intake.of_data(intake.as_data()).as_data() == intake.as_data()
        True
        """
        intake = cls()
        intake.style = Style.of_data(data["style"])
        intake.covariate_names = [str(name) for name in data["covariate_names"]]
        intake.roles = Roles(data["roles"])
        return intake

    def read(
        self,
        X: Any,
        check: Check,
        summarised: Summarise,
        *,
        groups: Any = None,
        consent: Any = None,
        covariates: Any = None,
        of_rows: Mapping[str, Any] = NOTHING,
        learn: bool = False,
        values: Literal["numbers", "labels"] = "numbers",
    ) -> GroupRows:
        """Read rows of a table in memory, clients, or a summary.

        Parameters
        ----------
        X : array-like, data frame, table of another engine, Clients or Summary
        check, summarised : callable
            See `Check` and `Summarise`.
        groups, consent, covariates
            As in `fit` of a location estimator.
        of_rows : mapping
            What goes with the rows, by name of the argument of `fit`.
        learn : bool
            Whether this is the fit, whose names are to be remembered.
        values : {"numbers", "labels"}
            As of `Rows.read`.
        """
        if isinstance(X, Clients | Summary):
            for name in of_rows:
                raise ValueError(f"{name} must be None: clients and summaries carry their own.")
            if consent is not None and not isinstance(consent, Mapping):
                consent = read_labels(of_groups(consent, "consent", X.ids), "consent")
            summary, shown, places = self._sorted(X, groups, learn)
            stated = self._read_covariates(covariates, None, None, summary.ids, Style(), learn)
            return GroupRows(summary, shown, places, Style(), consent, stated)
        given = {"groups": groups, "consent": consent, "covariates": covariates} | dict(of_rows)
        given = self._known(X, given, learn)
        groups, covariates = given.pop("groups", None), given.pop("covariates", None)
        rows = Rows.read(
            X,
            groups,
            beside=given,
            aside=self.roles.names,
            tuples=bool(self.level_names) and not learn,
            values=values,
        )
        self._check_levels(len(rows.levels) - 1, groups, learn)
        checked, labels = check(rows, learn), rows.labels
        style = self._remember(rows.style, learn)
        several = len(rows.levels) > 1
        ids, codes = rows.numbered if several else row_numbers(labels, titles(rows.style)[-1])
        summary = summarised(checked, codes, rows.beside)
        if ids is not None:
            summary = summary.renamed(ids)
            if learn:
                warn_of_blanks(ids)
        stated = self._read_covariates(covariates, X, labels, summary.ids, style, learn)
        beside = dict(rows.beside)
        read = style, beside.pop("consent", None), stated, checked, beside
        return GroupRows(summary, labels, codes, *read)

    def read_lazily(
        self,
        X: Any,
        check: Callable[[Any], Any],
        *,
        groups: Any = None,
        consent: Any = None,
        covariates: Any = None,
        of_rows: Mapping[str, Any] = NOTHING,
        learn: bool = False,
        figures: Any = None,
    ) -> GroupRows:
        """Read a table whose rows are not in memory, by the summaries of its own engine.

        Parameters
        ----------
        check : callable
            Checks an empty frame with the names of the columns of values.
        figures : callable, optional
            What is added up; see `added_up`.
        """
        import pandas as pd

        if self.level_names and not learn:
            raise ValueError("levels of groups need the rows of X in memory; collect them.")
        if not isinstance(X, Summarised):
            given = {"groups": only_level(groups, X), "consent": consent} | dict(of_rows)
            known = self._known(X, given, learn)
            groups, consent = known.pop("groups", None), known.pop("consent", None)
            chosen = None if isinstance(consent, Mapping) else consent
            X = summarise(X, groups, chosen, of_rows=known, figures=figures)
        if named_columns(covariates):
            raise ValueError(
                "covariates= must be a frame or an array with a row for each group, where the rows "
                "of X are not in memory; leave its columns out of X."
            )
        check(pd.DataFrame(columns=list(X.columns)))
        summary, codes = X.summary, np.arange(len(X.summary))
        chosen = consent if X.consent is None else X.consent
        style = self._remember(X.style, learn)
        stated = self._read_covariates(covariates, None, None, summary.ids, style, learn)
        return GroupRows(summary, summary.ids, codes, style, chosen, stated)

    def _known(self, X: Any, given: Mapping[str, Any], learn: bool) -> dict[str, Any]:
        """Return what is given, and columns of the fit that later tables have."""
        if learn:
            self.roles = Roles().learned(X, given)
        known = self.roles.found(X, given)
        for name in NEEDED:
            if name in self.roles.columns and name not in known:
                raise ValueError(NEEDED[name])
        return known

    @staticmethod
    def is_lazy(X: Any) -> bool:
        """Tell whether the rows of a table are not in memory."""
        if isinstance(X, Clients | Summary):
            return False
        return isinstance(X, Summarised) or is_lazy(X)

    def _sorted(
        self, X: Clients | Summary, groups: Any, learn: bool
    ) -> tuple[Summary, NDArray, NDArray[np.int64]]:
        """Return a summary sorted by label, the labels as they were, and their numbers."""
        summary = X.summarise() if isinstance(X, Clients) else X
        if not len(summary):
            raise ValueError("X holds no clients.")
        labels = summary.ids
        ids, codes = number_labels(labels, "ids")
        if len(ids) < len(labels):
            raise ValueError("ids must be all different; merge the summaries of one client.")
        n_above = parents_among(ids)
        if groups is not None and not (n_above and _are_names(groups, n_above + 1)):
            raise ValueError(
                "groups must be None: clients and summaries carry their labels. Where these are "
                "tuples of the labels of levels, groups may name the levels."
            )
        if learn:
            *upper, lowest = groups or [Style().group]
            above = tuple(Style(group=name) for name in upper)
            self._remember(Style(group=lowest, above=above), learn)
        elif self.level_names:
            self._check_levels(n_above, ids, learn)
        if (codes[1:] < codes[:-1]).any():
            summary = summary.take(np.argsort(codes))
        return summary, labels, codes

    def _remember(self, style: Style, learn: bool) -> Style:
        if learn:
            self.style = style
        return style

    @property
    def level_names(self) -> list[str]:
        """Names of the levels above the groups of the fit, from the outermost; mostly none."""
        return names_of_parents(self.covariate_names)

    def _check_levels(self, n_above: int, groups: Any, learn: bool) -> None:
        """Refuse groups of other levels than those of the fit."""
        if not learn and groups is not None and n_above != len(self.level_names):
            raise ValueError(
                f"groups has {n_above + 1} levels; the fit had {len(self.level_names) + 1}."
            )

    def numbered(self, groups: Any) -> tuple[NDArray, NDArray[np.int64]]:
        """Number labels of groups of the fit or others, by their sorted order."""
        levels = split_levels(groups, tuples=bool(self.level_names))
        self._check_levels(len(levels) - 1, groups, False)
        return number_levels([read_labels(each) for each in levels])

    def _read_covariates(
        self,
        covariates: Any,
        X: Any,
        labels: NDArray | None,
        ids: NDArray,
        style: Style,
        learn: bool,
    ) -> NDArray:
        """Read covariates that were given, shape (n_groups, k): of levels, numbers of parents."""
        names = [each.group for each in self.style.above] if learn else self.level_names
        if names:
            if covariates is not None:
                raise ValueError("covariates= and levels of groups cannot be fitted together.")
            self.covariate_names = named_parents(names)
            return keys_of_parents(ids, len(names))
        if learn:
            values, self.covariate_names = read_covariates(covariates, X, labels, ids, style.group)
            return values
        names = self.covariate_names if self.predicted is None else self.predicted.names
        if covariates is not None and not names:
            raise ValueError("covariates= was given, but the fit had no covariates.")
        values = read_covariates(covariates, X, labels, ids, style.group, names)[0]
        return values if self.predicted is None else self.predicted(values)

    def covariates_of(self, covariates: Any, ids: NDArray) -> NDArray:
        """Read covariates of these groups of the fit or others, as in `posterior`."""
        return self._read_covariates(covariates, None, None, ids, self.style, False)
