"""The view of a location fit, which tables, plots and comparisons read."""

from __future__ import annotations

from typing import Any

import numpy as np

from ebfed.families.base import IDENTITY
from ebfed.location.learned import Learned
from ebfed.location.refit import Refit
from ebfed.report.view import LocationView
from ebfed.tables.frames import Style

__all__ = ["view_of_fit"]


def view_of_fit(estimator: Any, learned: Learned, style: Style) -> LocationView:
    """Return the view of a fitted `LocationEstimator`, whose frames have this style."""
    d, client = estimator.n_features_in_, estimator.client_side()
    covariates, refit = learned.memory["covariates"], Refit(estimator, learned)
    has_rows = learned.all_exact and not learned.is_server
    return LocationView(
        title=type(estimator).__name__,
        style=style,
        is_server=learned.is_server,
        sizes=learned.summaries.n,
        totals=estimator._totals,
        columns=list(getattr(estimator, "feature_names_in_", [f"x{j}" for j in range(d)])),
        ledger=learned.ledger,
        notes=[*estimator.notes_, *estimator._remarks],
        terms=learned.terms,
        varies=np.ones(d, bool),
        method=learned.method,
        n_parameters=learned.n_parameters,
        posterior=estimator._theta,
        posterior_given_population=learned.posterior_given_population,
        expected=lambda: learned.expected(covariates, len(learned.summaries)),
        log_likelihood=learned.log_likelihood,
        likelihood_kind=learned.likelihood_kind,
        maximum=refit.maximum if has_rows and learned.likelihood_kind == "REML" else None,
        design_products=learned.design_products if has_rows else None,
        population=type(learned.prior).__name__,
        has_density=learned.family.has_density,
        family=learned.family,
        link=IDENTITY if learned.covariate_names else learned.family.link,
        prior=learned.prior,
        summary=learned.summaries,
        covariates=covariates,
        covariate_names=learned.covariate_names,
        noise_variance=learned.noise_variance,
        guess=estimator.guess,
        reports=learned.memory["turn"] >= 0,
        all_exact=learned.all_exact,
        channels=lambda: client.shown_channels(learned.settings, d),
        weight=lambda: learned.posterior_of_all().weight,
        refit=refit.means,
    )
