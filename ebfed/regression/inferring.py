"""Tests of regressions: what `ebfed.inference` needs of them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.families.base import IDENTITY, LINKS, Link
from ebfed.inference.sums import LinearMixedFit
from ebfed.regression.base import RegressionEstimator
from ebfed.regression.levels import confounded
from ebfed.tables.labels import number_parents
from ebfed.tables.levels import keys_of_parents

__all__ = [
    "Tested",
    "check_rows_of_all",
    "contrasts_of_mean",
    "has_rows_of_all",
    "link_of",
    "mixed_fit",
]

Tested = Literal["wald", "II", "III"]


def has_rows_of_all(fit: Any) -> bool:
    """Whether a fit has the rows of all its groups: no server has, nor one of several nodes."""
    there = not fit._is_server and bool(fit.clients_.n.any())
    return there and len(fit.clients_) == fit._n_clients


def check_rows_of_all(fit: Any, what: str) -> None:
    """Raise a ValueError if a fit has not the rows of all its groups."""
    if not has_rows_of_all(fit):
        here = 0 if fit._is_server else int((fit.clients_.n > 0).sum())
        raise ValueError(
            f"the rows of all groups are needed for {what}; this copy of the fit has those of "
            f"{here} of {fit._n_clients}."
        )


def mixed_fit(fit: RegressionEstimator) -> LinearMixedFit:
    """Return the factors of a fit, its levels, and what it has learned.

    Raises
    ------
    ValueError
        If rows of the fit are with other clients, the fit has no likelihood, or it has no noise.
    """
    check_is_fitted(fit, "clients_")
    check_rows_of_all(fit, "tests")
    if fit.solver == "gradient":
        raise ValueError("tests need solver='marginal': gradient descent has no likelihood.")
    if fit.noise_variance_ == 0:
        raise ValueError("tests need noise; the coefficients explain all rows of this fit.")
    result, clients = fit._result, fit._weighed(fit.clients_)
    above = [np.asarray(each) for each in result.get("above", ())]
    covariances = [*above, result["covariance"]]
    owners = [np.zeros(len(clients), np.int64)]
    if fit._level_names:
        below = number_parents(keys_of_parents(clients.ids, len(fit._level_names) - 1))[1]
        owners = [np.zeros(int(below[0].max()) + 1, np.int64), *below]
    places = fit._columns().places_of_levels()
    given = bool(fit.fit_intercept), fit.covariance, fit._of_mean
    lost = confounded(clients.rows, owners[1:], places, *given)
    places = [own[~out] for own, out in zip(places, lost, strict=True)]
    return LinearMixedFit(
        rows=clients.rows,
        n=clients.n,
        owners=owners,
        places=places,
        covariances=[G[np.ix_(j, j)] for G, j in zip(covariances, places, strict=True)],
        sizes=fit._columns().sizes_of_terms(places),
        noise=fit.noise_variance_,
        mean=result["mean"],
        kind=fit.covariance,
        restricted=fit.method == "reml",
        fixed=fit._of_mean,
        log_weight=0.0 if clients.log_weight is None else float(clients.log_weight.sum()),
    )


def link_of(fit: Any) -> Link:
    """Return the scale of the linear predictor of a fit; the identity for ordered classes."""
    family = getattr(fit, "_family", None)
    if family is None or family.classes:
        return IDENTITY
    return LINKS[family.link]


def names_of_mean(fit: Any) -> list[str]:
    """Names of the coefficients of the mean, those of covariates among them."""
    return [term for effect, _, term, *_ in fit.__ebfed_view__().parameters() if effect == "fixed"]


def contrasts_of_mean(fit: Any) -> NDArray[np.float64]:
    """Contrasts that are the coefficients of the mean, in the order of their names, (k, p)."""
    return np.eye(len(fit._estimable.terms))[fit._of_mean]
