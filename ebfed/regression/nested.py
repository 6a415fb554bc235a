"""Mixed models of groups, or of groups within groups, whose rows may stay with clients."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.arguments import check_choice
from ebfed.priors import Posterior
from ebfed.regression.base import RegressionEstimator
from ebfed.regression.inferring import check_rows_of_all, has_rows_of_all
from ebfed.regression.mixed import LeftOut, MixedModel
from ebfed.report.view import RegressionView
from ebfed.tables.dispersed import Dispersed
from ebfed.tables.frames import Style, frame
from ebfed.tables.levels import parents_of

__all__ = ["NestedModel", "names_of_levels"]


def names_of_levels(style: Style) -> list[str]:
    """Names of the columns of labels, by level from the outermost."""
    return [*(each.group for each in style.above), style.group]


class NestedModel(RegressionEstimator, MixedModel):
    """A mixed model of groups, which may be of several levels."""

    _takes_levels = True

    def _learn_levels(self, result: Any) -> None:
        """Set names and covariances of levels from what the server has learned."""
        levels = result.get("levels", "")
        self._level_names = tuple(levels.split("\n")) if levels else ()
        if levels and not self._style_.above:  # a server has no rows that say how frames look
            above = tuple(Style(group=name) for name in self._level_names[:-1])
            self._style_ = Style(group=self._level_names[-1], above=above)
        named = zip(self._level_names, result.get("above", ()), strict=False)
        self.covariance_above_ = dict(named)

    def _has_degrees(self) -> bool:
        if not has_rows_of_all(self) or getattr(self, "solver", None) == "gradient":
            return False
        return bool(getattr(self, "noise_variance_", 1.0) > 0)

    def _of_all(self, name: str) -> NDArray[np.float64]:
        """Mean or its covariance, coefficients of products with covariates among them."""
        return self._result[name]

    # Levels -----------------------------------------------------------------------------------

    def _posterior_at(self, block: Any, level: str | None) -> Posterior:
        """Posterior of the groups of a block, or of those of a level above them."""
        if level is not None and level != self._style_.group:
            return self._posterior_of_level(block, level)
        return self._posterior_of(block)

    def _posterior_of_level(self, block: Any, level: str) -> Posterior:
        """Posterior of the groups of a level above those of a block."""
        place, style = self._place_of_level(level)
        population: Any = self._population()
        above, own = population.posteriors(block)[place]
        names = getattr(self, "covariate_names_", None)
        if names:  # parents have none: their coefficients are those at covariates of zero
            above = above.of(population.maps(np.zeros((len(own), len(names)))))
        return above.labelled(own.ids, {"n": own.totals()}, style, tuple(self.terms_))

    def _place_of_level(self, level: str) -> tuple[int, Style]:
        """Place of a level above the groups, and how frames of its groups look."""
        names = self._level_names or (self._style_.group,)
        check_choice("level", level, names)
        place, style = names.index(level), self._style_
        own = style.above[place]
        return place, replace(own, backend=style.backend, above=style.above[:place])

    def ranef(self, level: str | None = None) -> Any:
        """Return how each group differs from what the population expects of it.

        Parameters
        ----------
        level : str, optional
            Name of a level of groups; the lowest if None. A group of a level below another is
            expected to be as its parent.

        Returns
        -------
        DataFrame of shape (n_groups, 1 + k)
            Labels, and a column for each of the k parameters that differ between groups.
        """
        if level is None or level == self._style_.group:
            return super().ranef()
        place, style = self._place_of_level(level)
        population: Any = self._population()
        found = population.posteriors(self._asked_for(None, None, None))
        values, own = found[place][0].mean, found[place][1]
        expected = population.centre
        if place:
            expected = found[place - 1][0].mean[parents_of(own.ids)[1]]
        chosen = self._columns().places_of_levels()[place]
        columns = {self.terms_[j]: (values - expected)[:, j] for j in chosen}
        style = style.avoiding(columns)
        return frame({style.group: own.ids} | columns, style)

    def coef(self, level: str | None = None) -> Any:
        """Return each group's own parameters: what is expected of it plus how it differs.

        Parameters
        ----------
        level : str, optional
            Name of a level of groups; the lowest if None.

        Returns
        -------
        DataFrame of shape (n_groups, 1 + d)
        """
        if level is None or level == self._style_.group:
            return super().coef()
        _, style = self._place_of_level(level)
        found = self._posterior_of_level(self._asked_for(None, None, None), level)
        columns = dict(zip(self.terms_, found.mean.T, strict=True))
        style = style.avoiding(columns)
        return frame({style.group: found.ids} | columns, style)

    def _means_of_parents(self) -> NDArray[np.float64]:
        """Posterior mean of all coefficients of the parent of each group, shape (n_groups, r)."""
        population: Any = self._population()
        parents, own = population.posteriors(self._weighed(self.clients_))[-2:]
        return parents[0].mean[parents_of(own[1].ids)[1]]

    def __ebfed_view__(self) -> RegressionView:
        """Return what reports read of the fit; groups are expected to be as their parents."""
        view = replace(super().__ebfed_view__(), degrees=self._degrees())
        return replace(view, expected=self._means_of_parents) if self._level_names else view

    # Groups that are left out ----------------------------------------------------------------

    def _groups_of(self, level: str | None) -> LeftOut:
        """Return the groups of a level of a fit, and the group of each client."""
        check_rows_of_all(self, "leaving groups out")
        names = list(self._level_names or (self._style_.group,))
        if level is not None:
            check_choice("level", level, names)
        place = len(names) - 1 if level is None else names.index(level)
        ids, owners = self.clients_.ids, np.arange(len(self.clients_))
        for _ in range(len(names) - 1 - place):
            ids, above = parents_of(ids)
            owners = above[owners]
        n = np.bincount(owners, self.clients_.totals(), len(ids)).astype(np.int64)
        style = self._style_
        if place < len(names) - 1:
            style = type(style)(style.backend, style.above[place].group, above=style.above[:place])
        return LeftOut(place, owners, ids, n, style)

    def _without(self, out: NDArray[np.bool_]) -> Any:
        """Fit again without some clients."""
        rest = self.clients_.take(np.flatnonzero(~out))
        return copy(self)._fit(rest.occupied() if isinstance(rest, Dispersed) else rest, {})
