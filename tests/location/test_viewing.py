"""What tables and comparisons read of a fit: its likelihood, and coefficients of the population."""

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed.engines.rounds import converse_here
from ebfed.priors import LocationScale
from ebfed.report.view import view_of

RNG = np.random.default_rng(0)
GROUPS = np.repeat(np.arange(40), 5)
W = RNG.normal(size=40)
Y = RNG.normal(size=(200, 2)) + (W + RNG.normal(size=40))[GROUPS, None]
CASES = {
    "noise known": {"variances": 1.0},
    "one variance": {"prior": eb.priors.Normal(covariance="spherical")},
    "some report": {"participation": np.arange(40) % 3 > 0},
    "classes": {"channel": {"a": eb.channels.Exact(), "b": eb.channels.Exact()}},
}


@pytest.mark.parametrize("case", CASES)
def test_the_largest_likelihood_is_that_of_a_fit_by_ml(case):
    settings = CASES[case]
    more = {"covariates": W}
    if case == "classes":
        more = {"consent": np.where(GROUPS % 2, "a", "b")}
    restricted = eb.GaussianEB(**settings).fit(Y, groups=GROUPS, **more)
    by_ml = {"method": "ml"} | settings
    if "prior" in settings:
        by_ml["prior"] = eb.priors.Normal(covariance="spherical", method="ml")
    expected = eb.GaussianEB(**by_ml).fit(Y, groups=GROUPS, **more)
    assert (restricted.likelihood_kind_, expected.likelihood_kind_) == ("REML", "ML")
    assert view_of(restricted).maximum() == pytest.approx(expected.log_likelihood_, rel=1e-12)
    assert view_of(expected).maximum is None
    if case != "some report":  # the likelihood counts groups that the fit does not
        # at the estimates of REML the rows are less likely, and nearly as likely
        at = restricted.log_likelihood_ - restricted.prior_.restriction_
        assert expected.log_likelihood_ - 1 < at < expected.log_likelihood_


def test_fits_that_estimate_no_mean_are_by_maximum_likelihood():
    for prior in (eb.priors.Normal(mean=0.0), eb.priors.Normal(variance=1.0)):
        est = eb.GaussianEB(prior=prior).fit(Y, groups=GROUPS)
        assert est.likelihood_kind_ == "ML"
        assert est.prior_.restriction_ is None


def test_a_server_has_the_likelihood_and_no_rows_to_fit_again():
    est = eb.GaussianEB()
    clients, memory = est.protocol().prepare(Y, groups=GROUPS)
    state, _ = converse_here(est.protocol(), clients, memory)
    server = eb.GaussianEB().protocol().conclude(state)
    whole = eb.GaussianEB().fit(Y, groups=GROUPS)
    assert server.likelihood_kind_ == "REML"
    assert server.log_likelihood_ == pytest.approx(whole.log_likelihood_, rel=1e-12)
    assert view_of(server).maximum is None


@pytest.mark.parametrize(
    ("mean", "spread"), [((0,), (1,)), ((), (0, 1)), (None, (0,)), ((1,), ()), (None, None)]
)
def test_coefficients_of_spread_are_named(mean, spread):
    """Tables name the covariates that location and spread depend on, which are not all of both."""
    rng = np.random.default_rng(2)
    names, m = ["size", "age"], 60
    known = rng.normal(size=(m, 2))
    truth = known[:, 0] + np.exp(0.4 * known[:, 1]) * rng.normal(size=m)
    groups = np.repeat(np.arange(m), 5)
    rows = pd.DataFrame({"g": groups, "x": truth[groups] + rng.normal(size=5 * m)})
    covariates = pd.DataFrame(known, columns=names).assign(g=np.arange(m))
    prior = LocationScale(mean=mean, spread=spread)
    fit = eb.GaussianEB(prior=prior).fit(rows[["x", "g"]], groups="g", covariates=covariates)
    tidy, own = fit.tidy(), fit.prior_
    of_mean, of_spread = (names if k is None else [names[j] for j in k] for k in (mean, spread))
    fixed = tidy[tidy["effect"] == "fixed"]
    assert fixed["term"].tolist() == ["intercept", *of_mean]
    np.testing.assert_array_equal(fixed["estimate"], own.coefficients_[:, 0])
    np.testing.assert_array_equal(fit.fixef()["estimate"], own.coefficients_[:, 0])
    assert len(fit.confint()) == 1 + len(of_mean)
    logs = tidy[tidy["term"].str.startswith("log_sd__")]
    expected = [f"log_sd__{name}" for name in ["intercept", *of_spread]] if of_spread else []
    assert logs["term"].tolist() == expected
    if of_spread:
        np.testing.assert_array_equal(logs["estimate"], own.spread_coefficients_[:, 0])
    text = str(fit.summary())
    assert ("log sd" in text) == bool(of_spread)
    assert ("Fitted by:      REML" in text) == (fit.glance()["likelihood"].item() == "REML")
