"""Fixed effects, and those of single groups, as readers of mixed models look for them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.priors import Posterior
from ebfed.tables.frames import Style, frame

__all__ = ["GroupEffects", "wald"]

OF_ALL, OF_GROUPS = ("fixed", "ran_pars", "component"), ("ran_vals", "ran_coefs")


class GroupEffects:
    """What a population is like, and how each group differs from it, in frames.

    An estimator has `posterior`, and says what its parameters are and what each group was expected
    to be.
    """

    # Hooks ------------------------------------------------------------------------------------

    @abstractmethod
    def _tidy(self) -> dict[str, NDArray]:
        """Columns of `tidy`, for the parameters of all groups together."""

    @abstractmethod
    def _expected_of_groups(self) -> NDArray:
        """What the groups of the fit would be if they were as the population expects, (n, d)."""

    @abstractmethod
    def _coordinates(self) -> tuple[list[str], NDArray]:
        """Names of the d coordinates of a group, and which of them differ between groups."""

    @abstractmethod
    def _given_population(self) -> Posterior:
        """Posterior of the groups of the fit, if the population were known to be as fitted."""

    @abstractmethod
    def _style(self) -> Style:
        """How frames are to look."""

    @abstractmethod
    def posterior(self) -> Posterior:
        """Posterior of the groups of the fit."""

    # Frames -----------------------------------------------------------------------------------

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
            ``"fixed"``, ``"ran_pars"`` and ``"component"``: parameters of all groups together, all
            of these if None. Or ``"ran_vals"``: how each group differs from what the population
            expects of it; ``"ran_coefs"``: each group's own parameters.
        conf_int : bool
            Whether to add intervals: of parameters as in `confint`, of groups those of the
            posterior.
        conf_level : float in (0, 1)

        Returns
        -------
        DataFrame
            Columns as in R's broom.mixed, see `ebfed.report.tidy`. Standard errors of
            ``"ran_coefs"`` include the uncertainty of the fitted population; those of
            ``"ran_vals"``, which differ from it, are given the population, as lme4's are.
        """
        wanted = [effects] if isinstance(effects, str) else list(effects or OF_ALL)
        _check_level(conf_level)
        if len(wanted) == 1 and wanted[0] in OF_GROUPS:
            return self._tidy_groups(wanted[0], conf_int, conf_level)
        if unknown := [name for name in wanted if name not in OF_ALL]:
            raise ValueError(
                f"effects must be of {OF_ALL}, or one of {OF_GROUPS} alone; got {unknown[0]!r}."
            )
        columns = self._tidy()
        if conf_int:
            columns |= self._intervals(columns, conf_level)
        chosen = np.isin(columns["effect"], wanted)
        return frame({name: values[chosen] for name, values in columns.items()}, self._style())

    def _tidy_groups(self, effect: str, conf_int: bool, level: float) -> Any:
        own, style = effect == "ran_coefs", self._style()
        names, varies = self._coordinates()
        posterior = self.posterior()
        ids = posterior.ids
        posterior = posterior if own else self._given_population()
        expected = 0.0 if own else self._expected_of_groups()
        varies = np.ones_like(varies) if own else varies
        n = len(posterior)
        values = {"estimate": posterior.mean - expected, "std.error": posterior.sd}
        if conf_int:
            lower, upper = posterior.interval(level)
            values |= {"conf.low": lower - expected, "conf.high": upper - expected}
        columns = {
            "effect": np.full(n * varies.sum(), effect),
            "group": np.full(n * varies.sum(), style.group),
            "level": np.repeat(ids, varies.sum()),
            "term": np.tile(np.array(names, object)[varies], n),
        }
        columns |= {name: each[:, varies].ravel() for name, each in values.items()}
        return frame(columns, replace(style, group="level"))

    def fixef(self) -> Any:
        """Return the parameters of the population's mean: a frame ``term``, ``estimate``.

        With a column ``response`` where several were estimated.
        """
        columns = self._tidy()
        fixed = columns["effect"] == "fixed"
        several = len(np.unique(columns.get("response", [""]))) > 1
        names = ["term", *(["response"] if several else []), "estimate"]
        return frame({name: columns[name][fixed] for name in names}, self._style())

    def ranef(self) -> Any:
        """Return how each group differs from what the population expects of it.

        Returns
        -------
        DataFrame of shape (n_groups, 1 + k)
            Labels, and a column for each of the k parameters that differ between groups.
        """
        return self._wide(self.posterior(), self._expected_of_groups(), differing=True)

    def coef(self) -> Any:
        """Return each group's own parameters: what was expected of it, and how it differs.

        Returns
        -------
        DataFrame of shape (n_groups, 1 + d)
        """
        return self._wide(self.posterior(), 0.0, differing=False)

    def _wide(self, posterior: Posterior, expected: ArrayLike, differing: bool) -> Any:
        names, varies = self._coordinates()
        chosen = np.flatnonzero(varies) if differing else np.arange(len(names))
        values = posterior.mean - expected
        columns = {names[j]: values[:, j] for j in chosen}
        style = self._style().avoiding(columns)
        return frame({style.group: posterior.ids} | columns, style)

    def confint(self, level: float = 0.95) -> Any:
        """Return intervals for the parameters of the population's mean.

        They are Wald's, ``estimate ± z std.error``: right for many groups, and too narrow for a
        handful. That of a mean rate is made for its logit and taken back, so that it stays between
        0 and 1. Spreads have none, as in lme4's ``confint(method = "Wald")``.

        Returns
        -------
        DataFrame
            ``term`` (and ``response``), ``estimate``, ``conf.low``, ``conf.high``.
        """
        _check_level(level)
        columns = self._tidy()
        columns |= self._intervals(columns, level)
        fixed = columns["effect"] == "fixed"
        names = ["term", "response", "estimate", "conf.low", "conf.high"]
        shown = {name: columns[name][fixed] for name in names if name in columns}
        return frame(shown, self._style())

    def _intervals(self, columns: dict[str, NDArray], level: float) -> dict[str, NDArray]:
        """Intervals for the parameters of `_tidy`."""
        return wald(columns, level)

    def ranks(self, term: str | None = None, *, top: int | None = None, **options: Any) -> Any:
        """Return the place of each group among all, with its uncertainty: see `Posterior.ranks`.

        Parameters
        ----------
        term : str, optional
            The parameter to rank by; needed where groups have several.
        top : int, optional
            Adds ``prob_top``, the probability of being among so many.
        **options
            Of `Posterior.ranks`.
        """
        names, varies = self._coordinates()
        if term is None and varies.sum() == 1:
            term = names[int(np.argmax(varies))]
        if term is None:
            raise ValueError(f"term must be one of {', '.join(map(repr, names))}.")
        if term not in names:
            raise ValueError(f"term must be one of {', '.join(map(repr, names))}; got {term!r}.")
        column = names.index(term)
        return self.posterior().ranks(top=top, column=column, **options)


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"a level must lie between 0 and 1; got {level!r}.")


def wald(columns: dict[str, NDArray], level: float) -> dict[str, NDArray]:
    """Ends of ``estimate ± z std.error``; NaN for spreads."""
    from scipy.special import ndtri

    fixed = np.isin(columns["effect"], ("fixed", "component"))
    reach = np.where(fixed, ndtri((1 + level) / 2) * columns["std.error"], np.nan)
    return {"conf.low": columns["estimate"] - reach, "conf.high": columns["estimate"] + reach}
