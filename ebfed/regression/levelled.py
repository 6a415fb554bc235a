"""Regressions of groups within groups: how they state, name and show levels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.priors import Posterior
from ebfed.regression.base import RegressionEstimator
from ebfed.report.view import RegressionView
from ebfed.tables.frames import Style, frame
from ebfed.tables.levels import keys_of_parents, parents_of

__all__ = ["Levelled"]


class Levelled(RegressionEstimator):
    """A regression whose groups may be within groups.

    Its population has `posteriors`, which returns posteriors of the groups of each level from the
    top, each with a block of these groups.

    Attributes
    ----------
    covariance_above_ : dict of ndarray of shape (p, p)
        Covariance of each level above the groups, by its name, from the outermost.
    """

    covariance_above_: dict[str, NDArray]
    _takes_levels = True

    def describe(self, clients: Any, memory: Any) -> Any:
        """State what all regressions do, and names of levels and parents of groups."""
        facts = super().describe(clients, memory)
        if not self._level_names:
            return facts
        parents = keys_of_parents(clients.ids, len(self._level_names) - 1)
        return facts | {"levels": np.array(["\n".join(self._level_names)]), "parents": parents}

    def check_facts(self, facts: Any) -> None:
        """Raise a ValueError if clients cannot have stated this."""
        super().check_facts(facts)
        if facts.keys() & {"levels", "parents"}:
            _check_parents(facts)

    def _learn_levels(self, result: Any) -> None:
        """Set names and covariances of levels from what the server has learned."""
        levels = result.get("levels", "")
        self._level_names = tuple(levels.split("\n")) if levels else ()
        if levels and not self._style_.above:  # a server has no rows that say how frames look
            above = tuple(Style(group=name) for name in self._level_names[:-1])
            self._style_ = Style(group=self._level_names[-1], above=above)
        named = zip(self._level_names, result.get("above", ()), strict=False)
        self.covariance_above_ = dict(named)

    def _posteriors(self, block: Any) -> list[tuple[Posterior, Any]]:
        """Posteriors of groups and of their parents, by level from the top, with their blocks."""
        return self._population().posteriors(block)  # type: ignore[attr-defined]

    def _posterior_of_level(self, block: Any, level: str) -> Posterior:
        """Posterior of the groups of a level above those of a block."""
        place, style = self._place_of_level(level)
        above, own = self._posteriors(block)[place]
        return above.labelled(own.ids, {"n": own.n}, style, tuple(self.terms_))

    def _place_of_level(self, level: str) -> tuple[int, Style]:
        """Place of a level above the groups, and how frames of its groups look."""
        names = (self._level_names or ())[:-1]
        if level not in names:
            known = ", ".join(map(repr, (*names, self._style_.group)))
            raise ValueError(f"level must be one of {known}; got {level!r}.")
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
        found = self._posteriors(self._asked_for(None, None, None))
        values, own = found[place][0].mean, found[place][1]
        expected = self.mean_ if not place else found[place - 1][0].mean[parents_of(own.ids)[1]]
        chosen = self._columns().places_of_levels()[place]
        columns = {self.terms_[j]: (values - expected)[:, j] for j in chosen}
        style = style.avoiding(columns)
        return frame({style.group: own.ids} | columns, style)

    def view(self) -> RegressionView:
        """Return what reports and plots read of the fit."""
        view = super().view()
        if not self._level_names:
            return view

        def of_parents() -> NDArray:
            parents, own = self._posteriors(self.clients_)[-2:]
            return parents[0].mean[parents_of(own[1].ids)[1]]

        return replace(view, expected=of_parents)


def _check_parents(facts: Any) -> None:
    """Raise a ValueError if clients cannot have stated these parents."""
    names, parents = facts.get("levels"), facts.get("parents")
    sound = isinstance(names, np.ndarray) and isinstance(parents, np.ndarray)
    if not (
        sound
        and names.dtype.kind == "U"
        and names.shape == (1,)
        and parents.dtype == np.float64
        and parents.shape == (len(facts["n"]), str(names[0]).count("\n"))
        and parents.shape[1] > 0
        and np.isfinite(parents).all()
    ):
        raise ValueError("facts must have the names of levels, and a number for each parent.")
