"""Linear regressions whose rows have levels of noise: how they are read, and what is learned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.regression.reading import weighed_clients
from ebfed.tables.clients import Clients
from ebfed.tables.dispersed import Dispersed, check_names, levels_of_rows
from ebfed.tables.lazy import is_lazy

__all__ = [
    "dispersed_rows",
    "known_dispersion",
    "learn_dispersion",
    "noise_of_rows",
]

NEEDED = "dispersion= must give the level of each row, as in the fit, whose noise differs by it."


def known_dispersion(fit: Any, X: Any, dispersion: Any, reset: bool) -> Any:
    """Return the levels of noise of rows, or the column of the fit that later frames have.

    Raises
    ------
    ValueError
        If rows of a fit with levels have none, those of a fit without have some, or they are not
        in memory.
    """
    if not reset:
        dispersion = fit._known_beside(X, {"dispersion": dispersion}, False).get("dispersion")
        if dispersion is not None and not fit.noise_variances_:
            raise ValueError("dispersion must be None: the fit had one noise for all rows.")
        if dispersion is None and fit.noise_variances_:
            raise ValueError(NEEDED)
    if dispersion is not None and is_lazy(X):
        raise ValueError("dispersion= needs the rows of X in memory.")
    return dispersion


def dispersed_rows(
    fit: Any, X: Any, y: Any, groups: Any, reset: bool, covariates: Any, **beside: Any
) -> tuple[Dispersed, NDArray | None]:
    """Read rows and compress those of each level of noise; returns numbers of rows' groups too.

    Raises
    ------
    ValueError, TypeError
        If levels are missing, not one for each row, or not of the fit, or rows are as in `fit` not.
    """
    if isinstance(X, Clients):
        raise ValueError("dispersion must be None: clients have rows without levels.")
    clients, codes, found = weighed_clients(fit, X, y, groups, reset, covariates, **beside)
    noises = levels_of_rows(found["dispersion"])
    check_names(np.unique(noises).tolist())
    if not reset:
        _check_known(fit, noises)
    return Dispersed.of(clients, noises, found.get("sample_weight")), codes


def learn_dispersion(fit: Any, result: Any) -> None:
    """Set the noise of each level from what the server has learned."""
    names, ratios = result.get("dispersion", ""), result.get("ratios", ())
    variances = (result["noise_variance"] * np.asarray(ratios) ** 2).tolist()
    fit.noise_variances_ = dict(zip(names.split("\n") if names else [], variances, strict=True))


def noise_of_rows(fit: Any, beside: Mapping[str, NDArray]) -> NDArray | float:
    """Return the noise variance of each row, or that of all, by what goes with rows.

    Raises
    ------
    ValueError
        If levels are some that the fit had not.
    """
    if "dispersion" not in beside:
        return fit.noise_variance_
    noises = levels_of_rows(beside["dispersion"])
    _check_known(fit, noises)
    return np.array([fit.noise_variances_[name] for name in noises.tolist()])


def _check_known(fit: Any, noises: NDArray) -> None:
    """Refuse levels that the fit had not: nothing is known of their noise."""
    known = fit.noise_variances_
    unknown = [name for name in np.unique(noises).tolist() if name not in known]
    if unknown:
        raise ValueError(
            f"dispersion has the level {unknown[0]!r}, of whose noise the fit knows nothing; it "
            f"had {', '.join(map(repr, known))}."
        )
