"""Regressions of groups within groups: how they state, name and show levels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.priors import Posterior
from ebfed.report.effects import GroupEffects
from ebfed.report.view import RegressionView
from ebfed.tables.frames import Style, frame
from ebfed.tables.levels import keys_of_parents, parents_of

__all__ = [
    "check_levels",
    "learn_levels",
    "means_of_parents",
    "names_of_levels",
    "posterior_of_level",
    "ranef_of_levels",
    "stated_levels",
    "view_of_levels",
]


def stated_levels(fit: Any, clients: Any) -> dict[str, NDArray]:
    """Names of the levels of a fit, and parents of clients, for what these state; empty for one."""
    if not fit._level_names:
        return {}
    parents = keys_of_parents(clients.ids, len(fit._level_names) - 1)
    return {"levels": np.array(["\n".join(fit._level_names)]), "parents": parents}


def check_levels(facts: Any) -> None:
    """Raise a ValueError if clients cannot have stated these levels."""
    if not facts.keys() & {"levels", "parents"}:
        return
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


def learn_levels(fit: Any, result: Any) -> None:
    """Set names and covariances of levels from what the server has learned."""
    levels = result.get("levels", "")
    fit._level_names = tuple(levels.split("\n")) if levels else ()
    if levels and not fit._style_.above:  # a server has no rows that say how frames look
        above = tuple(Style(group=name) for name in fit._level_names[:-1])
        fit._style_ = Style(group=fit._level_names[-1], above=above)
    named = zip(fit._level_names, result.get("above", ()), strict=False)
    fit.covariance_above_ = dict(named)


def names_of_levels(style: Style) -> list[str]:
    """Names of the columns of labels, by level from the outermost."""
    return [*(each.group for each in style.above), style.group]


def posterior_of_level(fit: Any, block: Any, level: str) -> Posterior:
    """Posterior of the groups of a level above those of a block."""
    place, style = _place_of_level(fit, level)
    population = fit._population()
    above, own = population.posteriors(block)[place]
    names = getattr(fit, "covariate_names_", None)
    if names:  # parents have none: their coefficients are those at covariates of zero
        above = above.of(population.maps(np.zeros((len(own), len(names)))))
    return above.labelled(own.ids, {"n": own.totals()}, style, tuple(fit.terms_))


def _place_of_level(fit: Any, level: str) -> tuple[int, Style]:
    """Place of a level above the groups, and how frames of its groups look."""
    names = (fit._level_names or ())[:-1]
    if level not in names:
        known = ", ".join(map(repr, (*names, fit._style_.group)))
        raise ValueError(f"level must be one of {known}; got {level!r}.")
    place, style = names.index(level), fit._style_
    own = style.above[place]
    return place, replace(own, backend=style.backend, above=style.above[:place])


def ranef_of_levels(self: Any, level: str | None = None) -> Any:
    """Return how each group differs from what the population expects of it.

    Parameters
    ----------
    level : str, optional
        Name of a level of groups; the lowest if None. A group of a level below another is expected
        to be as its parent.

    Returns
    -------
    DataFrame of shape (n_groups, 1 + k)
        Labels, and a column for each of the k parameters that differ between groups.
    """
    if level is None or level == self._style_.group:
        return GroupEffects.ranef(self)
    place, style = _place_of_level(self, level)
    found = self._population().posteriors(self._asked_for(None, None, None))
    values, own = found[place][0].mean, found[place][1]
    expected = self._population().centre
    if place:
        expected = found[place - 1][0].mean[parents_of(own.ids)[1]]
    chosen = self._columns().places_of_levels()[place]
    columns = {self.terms_[j]: (values - expected)[:, j] for j in chosen}
    style = style.avoiding(columns)
    return frame({style.group: own.ids} | columns, style)


def means_of_parents(fit: Any) -> NDArray[np.float64]:
    """Posterior mean of all coefficients of the parent of each group, shape (n_groups, r)."""
    parents, own = fit._population().posteriors(fit._weighed(fit.clients_))[-2:]
    return parents[0].mean[parents_of(own[1].ids)[1]]


def view_of_levels(fit: Any, view: RegressionView) -> RegressionView:
    """Return a view in which groups are expected to be as their parents, if they have some."""
    if not fit._level_names:
        return view
    return replace(view, expected=lambda: means_of_parents(fit))
