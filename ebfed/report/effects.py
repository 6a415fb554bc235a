"""Fixed effects and effects of single groups, as users of mixed models know them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.arguments import check_level
from ebfed.engines import portable
from ebfed.report.summary import Text, summary_table
from ebfed.report.tidying import glance, tidy, with_intervals
from ebfed.report.view import FitView, GroupView
from ebfed.tables.frames import frame

__all__ = ["Face", "GroupEffects", "intervals_of_mean"]

POPULATION, GROUPS = ("fixed", "ran_pars", "component"), ("ran_vals", "ran_coefs")


class Face:
    """Frames and the summary of a fit: an estimator defines its view, which all here reads."""

    @abstractmethod
    def __ebfed_view__(self) -> FitView:
        """Return what reports and plots read of the fit."""

    def tidy(self) -> Any:
        """Return what was learned of all groups together, one row for each parameter."""
        view = self.__ebfed_view__()
        return frame(tidy(view), view.style)

    def glance(self) -> Any:
        """Return the fit in one row: sizes, and how good it is, by which criteria."""
        view = self.__ebfed_view__()
        return frame(glance(view), view.style)

    def summary(self) -> Text:
        """Return the fit as a printed page.

        Of regressions it has the spreads of groups and of rows, and the coefficients of the mean
        with the tests of `tests` and the intervals of `confint`.
        """
        return summary_table(self.__ebfed_view__())


class GroupEffects(Face):
    """Frames of a fit with a posterior of every group."""

    @abstractmethod
    def __ebfed_view__(self) -> GroupView:
        """Return what reports and plots read of the fit."""

    def save(self, path: str | Path, *, groups: bool = True) -> None:
        """Write the fit to a JSON file, from which `ebfed.load_fit` gives it back, to the last bit.

        Keys of noise are not written; nor are the engine, and the seed of a private fit.

        Parameters
        ----------
        path : str or Path
        groups : bool
            Whether to write what the fit has of the groups too: their labels with their summaries,
            of linear models triangular factors, and of models of classes the rows themselves.
            Without them the file has the population, and numbers of groups and rows in all: nothing
            of any one group, unless the population has it, as a component to which one group alone
            belongs. Then given rows are estimated and predicted as those of unseen groups.

        Raises
        ------
        ValueError
            If the groups of a private fit are to be written, and `keep_rows` was not set to True;
            or this is the copy of a node of a federation.
        TypeError
            If an argument is of a class of the user's own.

        Examples
        --------
        >>> import tempfile
        >>> import ebfed as eb
        >>> path = tempfile.mkdtemp() + "/fit.json"
        >>> fit = eb.GaussianEB(1.0).fit([1.0, 2.0, 6.0, 7.0], groups=list("aabb"))
        >>> fit.save(path)
        >>> bool((eb.load_fit(path).predict() == fit.predict()).all())
        True
        """
        portable.save(self, path, groups)

    def to_sql(
        self,
        dialect: str = "duckdb",
        *,
        table: str | Sequence[str] = "rows",
        group: str | None = None,
        columns: str | Sequence[str] | None = None,
        size: str | None = None,
        weight: str | None = None,
        known: bool | str | Sequence[str] = True,
        each_row: bool = False,
    ) -> str:
        """Write SQL that estimates groups, or predicts rows, in a database.

        Of `GaussianEB`, `BernoulliEB` and `PoissonEB` with their conjugate populations it has a row
        for each group of the table: its label, its size ``n`` and ``estimate``, what `predict`
        gives for these rows. Of `LinearEB`, `AdaMix`, `MixtureLinearEB` and `LogisticEB` it has
        the rows of the table and ``prediction``. All numbers are written to their last digit, and
        all names are quoted.

        Parameters
        ----------
        dialect : {"duckdb", "sqlite", "postgres", "spark", "bigquery"}
        table : str or sequence of str
            Table of rows; a sequence has the parts of its name, such as schema and table.
        group : str, optional
            Column of labels; that of the fit if None.
        columns : str or sequence of str, optional
            Columns of values or features, in the order of the fit; those of the fit if None.
        size : str, optional
            Of means and rates: column of the number of rows (of events, the exposure) that a row of
            the table stands for, which then has their sum. If None, each row stands for itself.
        weight : str, optional
            Of means and rates: column of the weights of rows, `sample_weight` of the fit.
        known : bool, str or sequence of str
            What the SQL has of the groups of the fit. True: their labels (of a normal population)
            or coefficients are written into it. A name: they are in that table, which has the
            columns of `coef`. False: nothing, and all groups are estimated as unseen ones. Beta and
            gamma populations estimate both alike.
        each_row : bool
            Of means and rates: whether to return all rows, with the estimates of their groups.

        Returns
        -------
        str

        Raises
        ------
        ValueError
            If the fit has no such form: other populations, reports of a channel, covariates, more
            than two classes, offsets of a regression.
        TypeError
            If labels are neither text nor numbers nor times.
        ImportError
            If sqlglot is not installed (the extra ``sql``).

        Examples
        --------
        >>> import ebfed as eb
        >>> hits = eb.Summary.from_counts([4, 10, 7, 1], [10, 40, 25, 2], ids=list("abcd"))
        >>> print(eb.BernoulliEB().fit(hits).to_sql(group="player", columns="hit").split("FROM")[0])
        SELECT
          "s"."label" AS "player",
          "s"."size_0" AS "n",
          (
            CAST(...) + "s"."total_0"
          ) / (
            CAST(...) + "s"."size_0"
          ) AS "estimate"
        """
        from ebfed.report.sql import Query

        query = Query(dialect, table, group, columns, size, weight, known, each_row)
        return query.text(self.__ebfed_view__(), getattr(self, "classes_", None))

    def tidy(
        self,
        effects: str | Sequence[str] | None = None,
        *,
        conf_int: bool = False,
        conf_level: float = 0.95,
    ) -> Any:
        """Return what was learned, one row for each parameter.

        Parameters
        ----------
        effects : str or sequence of str, optional
            Rows to return. ``"fixed"``, ``"ran_pars"`` and ``"component"``: parameters of the
            population, all of these if None. Or ``"ran_vals"``: how each group differs from what
            the population expects of it; ``"ran_coefs"``: each group's own parameters.
        conf_int : bool
            Whether to add intervals: of parameters as in `confint`, of groups those of the
            posterior. Regressions have ``df`` and ``p.value`` too, as in `tests`, whose standard
            errors these rows have then.
        conf_level : float in (0, 1)

        Returns
        -------
        DataFrame
            Columns as in R's broom.mixed, see `ebfed.report.tidy`. Standard errors of
            ``"ran_coefs"`` include the uncertainty of the fitted population; those of
            ``"ran_vals"``, which differ from it, are given the population, as lme4's are.
        """
        wanted = [effects] if isinstance(effects, str) else list(effects or POPULATION)
        check_level(conf_level)
        view = self.__ebfed_view__()
        if len(wanted) == 1 and wanted[0] in GROUPS:
            return self._tidy_groups(wanted[0], conf_int, conf_level)
        if unknown := [name for name in wanted if name not in POPULATION]:
            raise ValueError(
                f"effects must be of {POPULATION}, or one of {GROUPS} alone; got {unknown[0]!r}."
            )
        columns = with_intervals(view, conf_level) if conf_int else tidy(view)
        chosen = np.isin(columns["effect"], wanted)
        return frame({name: values[chosen] for name, values in columns.items()}, view.style)

    def _tidy_groups(self, effect: str, conf_int: bool, level: float) -> Any:
        """Return a row for each group and parameter."""
        view, own = self.__ebfed_view__(), effect == "ran_coefs"
        ids = view.posterior().ids
        posterior, expected = (view.posterior(), 0.0) if own else view.effects()
        varies = np.ones_like(view.varies) if own else view.varies
        n, k = len(posterior), varies.sum()
        values = {"estimate": posterior.mean - expected, "std.error": posterior.sd}
        if conf_int:
            lower, upper = posterior.interval(level)
            values |= {"conf.low": lower - expected, "conf.high": upper - expected}
        columns = {
            "effect": np.full(n * k, effect),
            "group": np.full(n * k, view.style.group),
            "level": np.repeat(ids, k),
            "term": np.tile(np.array(view.terms, object)[varies], n),
        }
        columns |= {name: each[:, varies].ravel() for name, each in values.items()}
        return frame(columns, replace(view.style, group="level"))

    def fixef(self) -> Any:
        """Return the parameters of the population's mean: a frame ``term``, ``estimate``.

        With a column ``response`` where several were estimated.
        """
        view = self.__ebfed_view__()
        columns = tidy(view)
        fixed = columns["effect"] == "fixed"
        several = len(np.unique(columns.get("response", [""]))) > 1
        names = ["term", *(["response"] if several else []), "estimate"]
        return frame({name: columns[name][fixed] for name in names}, view.style)

    def ranef(self) -> Any:
        """Return how each group differs from what the population expects of it.

        Returns
        -------
        DataFrame of shape (n_groups, 1 + k)
            Labels, and a column for each of the k parameters that differ between groups.
        """
        view = self.__ebfed_view__()
        return _wide(view, view.expected(), view.varies)

    def coef(self) -> Any:
        """Return each group's own parameters: what is expected of it plus how it differs.

        Returns
        -------
        DataFrame of shape (n_groups, 1 + d)
        """
        view = self.__ebfed_view__()
        return _wide(view, 0.0, np.ones_like(view.varies))

    def confint(
        self,
        level: float = 0.95,
        *,
        method: Any = "wald",
        ddf: Any = None,
        n_boot: int = 1000,
        random_state: Any = 0,
        progress: bool = False,
    ) -> Any:
        """Return intervals for the parameters of the population's mean.

        They are Wald's, ``estimate ± z std.error``: right for many groups, and too narrow for a
        handful; of regressions with random effects, Student's t takes the place of z. That of a
        mean rate is computed for its logit or log and taken back, so that it stays within the range
        of rates. Spreads have none, as in lme4's
        ``confint(method = "Wald")``.

        Parameters
        ----------
        level : float in (0, 1)
        method : {"wald"}
        ddf : {"asymptotic"}, optional
            Degrees of freedom; these are infinite.
        n_boot, random_state, progress
            Of the bootstrap, which other fits have.

        Returns
        -------
        DataFrame
            ``term`` (and ``response``), ``estimate``, ``conf.low``, ``conf.high``.

        Raises
        ------
        ValueError
            If `level` is no probability, or `method` or `ddf` is another.
        """
        if method != "wald" or ddf not in (None, "asymptotic"):
            raise ValueError(
                f"intervals of {type(self).__name__} are of method='wald', ddf='asymptotic'; "
                f"got method={method!r}, ddf={ddf!r}. LinearEB and GeneralizedEB, with a column of "
                "ones, have others."
            )
        return intervals_of_mean(self.__ebfed_view__(), level)

    def ranks(
        self,
        term: str | None = None,
        *,
        top: int | None = None,
        ascending: bool = False,
        **options: Any,
    ) -> Any:
        """Return the rank of each group among all, with its uncertainty: see `Posterior.ranks`.

        Parameters
        ----------
        term : str, optional
            Parameter to rank by; needed where groups have several.
        top : int, optional
            Number of first ranks of which ``prob_top`` is the probability.
        ascending : bool
            Whether rank 1 is the smallest, rather than the largest.
        **options
            Arguments of `Posterior.ranks`.
        """
        view = self.__ebfed_view__()
        names = view.terms
        if term is None and view.varies.sum() == 1:
            term = names[int(np.argmax(view.varies))]
        if term is None:
            raise ValueError(f"term must be one of {', '.join(map(repr, names))}.")
        if term not in names:
            raise ValueError(f"term must be one of {', '.join(map(repr, names))}; got {term!r}.")
        column = names.index(term)
        return view.posterior().ranks(top=top, ascending=ascending, column=column, **options)


def _wide(view: GroupView, expected: NDArray | float, chosen: NDArray[np.bool_]) -> Any:
    """Return a row for each group and a column for each chosen parameter, less `expected`."""
    posterior = view.posterior()
    values = posterior.mean - expected
    columns = {view.terms[j]: values[:, j] for j in np.flatnonzero(chosen)}
    style = view.style.avoiding(columns)
    return frame({style.group: posterior.ids} | columns, style)


def intervals_of_mean(view: GroupView, level: float) -> Any:
    """Return the frame of `confint`.

    Parameters
    ----------
    view : GroupView
    level : float in (0, 1)
    """
    check_level(level)
    columns = with_intervals(view, level)
    fixed = columns["effect"] == "fixed"
    names = ["term", "response", "estimate", "conf.low", "conf.high"]
    kept = {name: columns[name][fixed] for name in names if name in columns}
    return frame(kept, view.style)
