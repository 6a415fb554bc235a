"""Populations of rates by formula: beta or logit-normal, and their likelihoods of the same rows."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import betaln, expit, gammaln, log_expit, roots_hermite
from sklearn.metrics import r2_score

import ebfed as eb
from ebfed.report.view import view_of

RNG = np.random.default_rng(4)
M, N = 60, 8
CODES = np.repeat(np.arange(M), N)
U = RNG.normal(size=M)
ROWS = pd.DataFrame({"g": CODES, "x": RNG.normal(size=M * N), "u": U[CODES]})
ROWS["hit"] = RNG.binomial(1, expit(0.5 * U + RNG.normal(size=M))[CODES])
COUNTS = ROWS.groupby("g").agg(won=("hit", "sum"), games=("hit", "size"), u=("u", "first"))
COUNTS = COUNTS.reset_index()
WON = COUNTS["won"].to_numpy()


def fit(formula, **settings):
    return eb.from_formula(formula, ROWS, family="binomial", **settings)


def log_evidence(mean, sd):
    """Log-likelihood of rows of 0 and 1 whose groups have normal logits, by quadrature."""
    at, weights = roots_hermite(80)
    logit = mean + np.sqrt(2) * sd * at
    rows = WON[:, None] * log_expit(logit) + (N - WON[:, None]) * log_expit(-logit)
    return np.log(np.exp(rows) @ weights / np.sqrt(np.pi)).sum()


@pytest.mark.parametrize(
    ("formula", "prior"), [("hit | g", None), ("hit ~ 1 | g", None), ("hit ~ 1 + (1 | g)", "beta")]
)
def test_rates_of_groups_are_beta(formula, prior):
    found = fit(formula, prior=prior)
    assert isinstance(found.estimator_, eb.BernoulliEB)
    lines = str(found.summary()).splitlines()
    assert any(line.startswith("Population:     Beta ") for line in lines)
    assert "The population of rates is beta. prior='logit-normal' makes" in " ".join(lines)
    # of rows of 0 and 1, without binomial coefficients
    a, b = found.prior_.alpha_[0], found.prior_.beta_[0]
    expected = (betaln(a + WON, b + N - WON) - betaln(a, b)).sum()
    assert found.log_likelihood_ == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("formula", ["hit ~ 1 + (1 | g)", "hit | g", "hit ~ 1 + (1 || g)"])
def test_rates_of_groups_are_logit_normal(formula):
    """An approximation of the likelihood is within 0.1 of it for groups of 8 rows."""
    found = fit(formula, prior="logit-normal" if formula == "hit | g" else None)
    assert isinstance(found.estimator_, eb.LogisticEB)
    assert found.terms_ == ["intercept"]
    assert found.n_parameters_ == 2
    mean, sd = found.tidy()["estimate"]
    assert log_evidence(mean, sd) == pytest.approx(found.log_likelihood_, abs=0.1)
    assert found.intercept_ == mean
    assert found.coef_.shape == (0,)
    lines = str(found.summary()).splitlines()
    assert "Population:     logit-normal" in lines
    assert "The population is logit-normal: the coefficients" in " ".join(lines)


def test_an_intercept_alone_predicts_other_rows():
    found = fit("hit ~ 1 + (1 | g)", prior="logit-normal")
    again = eb.LogisticEB(fit_intercept=False).fit(np.ones((M * N, 1)), ROWS["hit"], groups=CODES)
    np.testing.assert_array_equal(found.posterior().mean, again.posterior().mean)
    new = pd.DataFrame({"g": [3, 999], "x": 0.0})
    expected = again.predict_proba(np.ones((2, 1)), groups=new["g"])
    np.testing.assert_array_equal(found.predict_proba(new), expected)
    np.testing.assert_array_equal(found.predict_proba(new[["x"]])[:, 1], expected[[1, 1], 1])
    np.testing.assert_array_equal(found.predict(), found.predict_proba()[:, 1])
    assert found.score(ROWS) == r2_score(ROWS["hit"], found.predict())
    np.testing.assert_array_equal(found.augment()[".fitted"], found.predict_proba()[:, 1])
    np.testing.assert_array_equal(found.posterior(ROWS).mean, found.posterior().mean)


def test_counts_choose_too():
    formula = "cbind(won, trials=games) ~ 1 + (1 | g)"
    rates = eb.from_formula("cbind(won, trials=games) | g", COUNTS)
    assert isinstance(rates.estimator_, eb.BernoulliEB)
    logits = eb.from_formula(formula, COUNTS)
    assert isinstance(logits.estimator_, eb.GeneralizedEB)
    rows = fit("hit ~ 1 + (1 | g)", prior="logit-normal")
    np.testing.assert_allclose(logits.mean_, rows.mean_, rtol=1e-9)
    # rates add up single trials: beta and logit-normal populations of these compare
    one, other = (each.glance().iloc[0] for each in (rates, rows))
    assert one["nobs"] == other["nobs"] == M * N
    assert rates.log_likelihood_ == pytest.approx(fit("hit | g").log_likelihood_, rel=1e-9)
    # a mixed model has the rows of the frame, with the number of ways to have their successes
    won, games = COUNTS["won"], COUNTS["games"]
    ways = gammaln(games + 1) - gammaln(won + 1) - gammaln(games - won + 1)
    assert logits.glance()["nobs"].item() == len(COUNTS)
    expected = rows.log_likelihood_ + ways.sum()
    assert logits.log_likelihood_ == pytest.approx(expected, rel=1e-9)
    mean, sd = rows.tidy()["estimate"]
    assert log_evidence(mean, sd) == pytest.approx(rows.log_likelihood_, abs=0.1)
    exact = replace(view_of(rows), likelihood_kind="ML")
    table = eb.compare(beta=fit("hit | g"), logits=exact)
    assert table["logLik"].tolist() == [fit("hit | g").log_likelihood_, rows.log_likelihood_]
    assert table["npar"].tolist() == [2, 2]


@pytest.mark.parametrize("family", ["binomial", "poisson", "negative_binomial", "gaussian"])
def test_the_null_model_is_compared_with_covariates(family):
    """A chi-squared test of one coefficient: of x, which matters, and of noise."""
    y = {"gaussian": "x + 0.1 * noise", "binomial": "hit"}.get(family, "count")
    rng = np.random.default_rng(4)
    rows = ROWS.assign(noise=rng.normal(size=len(ROWS)), count=rng.poisson(np.exp(ROWS["x"])))
    own = {"method": "ml"} if family == "gaussian" else {}
    null, full = (
        eb.from_formula(f"{y} ~ {term} + (1 | g)", rows, family=family, **own)
        for term in ("1", "x")
    )
    found = eb.anova(null, full)
    assert found["df"].iloc[1] == 1
    rise = 2 * (full.log_likelihood_ - null.log_likelihood_)
    assert found["statistic"].iloc[1] == pytest.approx(rise)
    assert rise > 0
    assert null.tests()["term"].tolist() == ["intercept"]
    assert len(null.margins().frame()) == 1
    profile = null.confint(method="profile")
    assert np.isfinite(profile["conf.high"]).all()


def test_reports_have_conjugate_rates():
    private = {"channel": eb.channels.TwoBit(epsilon=4), "random_state": 0}
    assert isinstance(fit("hit ~ 1 + (1 | g)", **private).estimator_, eb.BernoulliEB)


def test_covariates_of_groups_have_beta_rates():
    found = fit("hit ~ u + (1 | g)", prior="beta")
    assert isinstance(found.estimator_, eb.BernoulliEB)
    expected = eb.BernoulliEB().fit(ROWS["hit"].to_numpy(), groups=CODES, covariates=U)
    np.testing.assert_array_equal(found.posterior().mean, expected.posterior().mean)
    plain = fit("hit ~ u + (1 | g)")
    assert isinstance(plain.estimator_, eb.LogisticEB)
    assert "Population:     logit-normal" in str(plain.summary())
    same = fit("hit ~ u + (1 | g)", prior="logit-normal")
    np.testing.assert_array_equal(same.mean_, plain.mean_)
    with pytest.raises(ValueError, match=r"'x' .*prior='logit-normal' takes covariates of rows"):
        fit("hit ~ x + (1 | g)", prior="beta")
    with pytest.raises(ValueError, match=r"got \(1 \+ u \| g\). prior='logit-normal' takes"):
        fit("hit ~ u + (1 + u | g)", prior="beta")


def test_populations_of_other_rows_are_refused():
    with pytest.raises(
        ValueError, match="is of family='binomial' or 'ordinal'; got family='gaussian'"
    ):
        eb.from_formula("x ~ 1 + (1 | g)", ROWS, prior="logit-normal")
    with pytest.raises(
        ValueError, match="is of family='binomial' or 'ordinal'; got family='poisson'"
    ):
        eb.from_formula("hit | g", ROWS, family="poisson", prior="logit-normal")
    with pytest.raises(ValueError, match="LinearEB has no argument 'prior'"):
        eb.from_formula("x ~ u + (1 | g)", ROWS, prior="npmle")


def test_a_population_of_any_shape_has_no_note():
    found = fit("hit ~ 1 + (1 | g)", prior="npmle")
    assert isinstance(found.estimator_, eb.BernoulliEB)
    assert "prior='logit-normal'" not in str(found.summary())
    chosen = fit("hit | g", prior=eb.priors.Discrete(2, random_state=0))
    assert chosen.prior_.weights_.shape == (2,)


def test_weights_that_are_no_whole_numbers():
    """Each row counts by its weight: half of all rows twice is all rows once."""
    twice = pd.concat([ROWS, ROWS], ignore_index=True).assign(w=0.5)
    halves = eb.from_formula("hit ~ x + (1 | g)", twice, family="binomial", weights="w")
    assert isinstance(halves.estimator_, eb.GeneralizedEB)
    whole = eb.GeneralizedEB("binomial", varying=["intercept"])
    whole.fit(ROWS[["x"]], ROWS["hit"], groups=ROWS["g"])
    np.testing.assert_allclose(halves.mean_, whole.mean_, rtol=1e-6)
    assert halves.log_likelihood_ == pytest.approx(whole.log_likelihood_, abs=1e-6)
