"""The view of a location fit, which tables, plots and comparisons read, and what a file has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_is_fitted

from ebfed.engines.publishing import FitFile
from ebfed.families.base import IDENTITY
from ebfed.location.learned import Learned
from ebfed.priors import Posterior
from ebfed.report.view import LocationView
from ebfed.tables.clients import Summary
from ebfed.tables.frames import Style
from ebfed.tables.intake import Intake
from ebfed.tables.levels import names_of_parents

__all__ = ["LocationFile", "output_style", "own_scale_posterior", "view_of_fit"]

# Keys of a state that have an entry for each client, and keys that the last broadcast lacks.
OF_CLIENTS = ("n", "weight", "consent", "turn", "covariates")
OF_STATE = ("round", "n_rounds", "done", "n_features", "columns", "covariate_names")


def output_style(estimator: Any, style: Style) -> Style:
    """Apply what `set_output` asks for."""
    wanted = _get_output_config("transform", estimator)["dense"]
    return style if wanted == "default" else style.using(wanted)


def own_scale_posterior(
    estimator: Any,
    X: Any = None,
    *,
    groups: Any = None,
    covariates: Any = None,
    integrate: bool = True,
    **of_rows: Any,
) -> Posterior:
    """Posterior on the scale of the family's parameter; see `LocationEstimator.posterior`."""
    check_is_fitted(estimator, "prior_")
    learned, intake = estimator._learned, estimator._intake
    if X is None:
        if learned.is_server:
            raise ValueError("the clients kept their figures; give rows to estimate.")
        style, summary = intake.style, estimator.summaries_
        if groups is not None:
            summary = learned.asked_for(intake.numbered(groups)[0])
        clients, given = summary, intake.covariates_of(covariates, summary.ids)
    else:
        rows = estimator._read(X, groups, covariates=covariates, **of_rows)
        style, summary, clients, given = rows.style, rows.summary, rows.clients, rows.covariates
    posterior = learned.posterior(clients, learned.covariates_of(clients.ids, given), integrate)
    columns = {"n": summary.n, "local": learned.likelihood(summary).local}
    terms = tuple(getattr(estimator, "feature_names_in_", ())) or None
    return posterior.labelled(summary.ids, columns, output_style(estimator, style), terms)


def view_of_fit(estimator: Any) -> LocationView:
    """Return the view of a fitted `LocationEstimator`."""
    learned: Learned = estimator._learned
    d, rounds = estimator.n_features_in_, estimator.protocol()
    covariates, again = learned.memory["covariates"], partial(_refitted, estimator, learned)
    names = learned.covariate_names
    if names_of_parents(names):  # the population has no coefficients
        covariates, names = covariates[:, :0], []
    has_rows = learned.all_exact and not learned.is_server
    restricted = learned.likelihood_kind == "REML"
    return LocationView(
        title=type(estimator).__name__,
        style=output_style(estimator, estimator._intake.style),
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
        posterior=partial(own_scale_posterior, estimator),
        posterior_given_population=learned.posterior_given_population,
        expected=lambda: learned.expected(learned.memory["covariates"], len(learned.summaries)),
        log_likelihood=learned.log_likelihood,
        likelihood_kind=learned.likelihood_kind,
        maximum=(lambda: _maximum(again, learned)) if has_rows and restricted else None,
        design_products=learned.design_products if has_rows else None,
        population=type(learned.prior).__name__,
        has_density=learned.family.has_density,
        family=learned.family,
        link=IDENTITY if names else learned.family.link,
        prior=learned.prior,
        summary=learned.summaries,
        covariates=covariates,
        covariate_names=learned.prior.split(names),
        noise_variance=learned.noise_variance,
        guess=estimator.guess,
        reports=learned.memory["turn"] >= 0,
        all_exact=learned.all_exact,
        channels=lambda: rounds.shown_channels(learned.settings, d),
        weight=lambda: learned.posterior_of_all().weight,
        refit=lambda summary, **settings: again(summary, settings).posterior().mean,
    )


def _refitted(estimator: Any, learned: Learned, summary: Summary, settings: dict[str, Any]) -> Any:
    """Return a fit to this summary with the covariates of its groups, and other arguments."""
    covariates = learned.memory["covariates"]
    parents = names_of_parents(learned.covariate_names)  # labels of groups tell them
    again = clone(estimator).set_params(**settings)
    if again.mean_model is not None:  # covariates are its predictions
        again.set_params(mean_model=None)
    return again.fit(
        summary, covariates=covariates if covariates.shape[1] and not parents else None
    )


def _maximum(again: Callable[..., Any], learned: Learned) -> float:
    """Log marginal likelihood of the same rows, fitted by maximum likelihood."""
    settings = {"prior": clone(learned.prior).set_params(method="ml"), "channel": None}
    settings |= {"engine": None, "participation": learned.memory["turn"] >= 0}
    return again(learned.summaries, settings).log_likelihood_


class LocationFile(FitFile):
    """Takes a fit apart, and puts it together again; see `ebfed.engines.portable`."""

    def population(self, fit: Any) -> dict[str, Any]:
        """Return what is of all groups together."""
        names = (*OF_STATE, *fit.protocol().results)
        return {name: fit._kept[name] for name in names}

    def columns(self, fit: Any, groups: bool) -> dict[str, Any]:
        columns = fit._intake.as_data()
        columns["output"] = dict(getattr(fit, "_sklearn_output_config", {}))
        if not groups:
            columns["style"] = fit._intake.style.unlabelled().as_data()
        return columns

    def groups(self, fit: Any) -> dict[str, Any]:
        """Return what the fit has of groups; of a server's copy, what they stated."""
        of_groups = {name: fit._kept[name] for name in OF_CLIENTS}
        if not fit._learned.is_server:
            of_groups |= {"figures": fit.summaries_, "memory": fit._learned.memory}
        return of_groups

    def of_nobody(self, columns: dict[str, Any]) -> dict[str, Any]:
        nobody, k = np.zeros(0, np.int8), len(columns["covariate_names"])
        parts = {"weight": None, "consent": nobody, "turn": nobody, "covariates": np.zeros((0, k))}
        return super().of_nobody(columns) | parts

    def name(self, fit: Any, columns: dict[str, Any]) -> None:
        fit._intake = Intake.of_data(columns)
        if columns["output"]:
            fit._sklearn_output_config = columns["output"]
