"""Rates of events: against R, with exposures given in every way, through channels and reports."""

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

import ebfed as eb
from ebfed import channels as ch

REFERENCE = Path(__file__).parents[1] / "reference"
MMMEC = pd.read_csv(REFERENCE / "mmmec.csv").assign(county=lambda t: np.arange(len(t)) + 1)
FITS = pd.read_csv(REFERENCE / "glm_nb.csv")
STORED = 1e-6

RNG = np.random.default_rng(4)
M = 4000
YEARS = RNG.uniform(2, 12, M)
THETA = RNG.gamma(4.0, 0.1, M)
EVENTS = RNG.poisson(YEARS * THETA)


def check_first(est):
    expected = FITS.iloc[0]
    assert np.log(est.prior_.mean_.item()) == pytest.approx(expected["intercept"], rel=STORED)
    assert est.prior_.shape_.item() == pytest.approx(expected["shape"], rel=STORED)
    assert est.log_likelihood_ == pytest.approx(expected["loglik"], rel=STORED)
    assert est.predict()[0] == pytest.approx(expected["first"], rel=STORED)


def test_exposure_as_an_array_and_as_a_column():
    rows = MMMEC[["deaths"]]
    check_first(eb.PoissonEB().fit(rows, groups=MMMEC["county"], exposure=MMMEC["expected"]))
    frame = MMMEC[["county", "deaths", "expected"]]
    for table in (frame, pl.from_pandas(frame)):
        est = eb.PoissonEB().fit(table, groups="county", exposure="expected")
        check_first(est)
        np.testing.assert_allclose(est.predict(table, type="rate"), est.predict())
        np.testing.assert_allclose(est.predict(table), est.predict() * MMMEC["expected"])
        assert est.feature_names_in_.tolist() == ["deaths"]


def test_exposure_as_an_offset():
    formula = "deaths ~ 1 + offset(log(expected)) + (1 | county)"
    fit = eb.from_formula(formula, MMMEC, family="poisson", prior="gamma")
    check_first(fit.estimator_)
    with pytest.raises(ValueError, match="GaussianEB has no offset; a mixed model"):
        eb.from_formula("deaths ~ offset(log(expected)) | county", MMMEC)


def test_covariates():
    expected = FITS.iloc[1]
    est = eb.PoissonEB().fit(
        MMMEC[["county", "deaths", "expected", "uvb"]],
        groups="county",
        exposure="expected",
        covariates=["uvb"],
    )
    text = "deaths ~ uvb + offset(log(expected)) + (1 | county)"
    fit = eb.from_formula(text, MMMEC, family="poisson", prior="gamma")
    for found in (est, fit.estimator_):
        assert found.intercept_ == pytest.approx(expected["intercept"], rel=STORED)
        assert found.coef_.item() == pytest.approx(expected["slope"], rel=STORED)
        assert found.prior_.shape_.item() == pytest.approx(expected["shape"], rel=STORED)
        assert found.log_likelihood_ == pytest.approx(expected["loglik"], rel=STORED)
    new = est.predict(groups=[999], covariates=[[1.0]])
    assert new.item() == pytest.approx(np.exp(est.intercept_ + est.coef_.item()))


def test_rows_of_groups_add_up():
    """Events and exposures of one group are those of its rows, in any blocks."""
    rows = np.repeat(np.arange(M), 2)
    parts = np.column_stack([0.25 * YEARS, 0.75 * YEARS]).ravel()
    split = RNG.binomial(EVENTS, 0.25)
    counts = np.column_stack([split, EVENTS - split]).ravel()
    whole = eb.PoissonEB().fit(EVENTS, groups=np.arange(M), exposure=YEARS)
    cut = eb.PoissonEB().fit(counts, groups=rows, exposure=parts)
    np.testing.assert_allclose(cut.predict(groups=np.arange(M)), whole.predict(), rtol=1e-8)
    blocks = eb.PoissonEB()
    for half in (rows % 2 == 0, rows % 2 == 1):
        blocks.partial_fit(counts[half], groups=rows[half], exposure=parts[half])
    np.testing.assert_allclose(blocks.predict(), cut.predict(groups=np.arange(M)), rtol=1e-8)
    assert blocks.log_likelihood_ == pytest.approx(cut.log_likelihood_, rel=1e-9)


def test_estimates_are_near_the_oracle():
    """Risk within 1 % of the posterior mean under the true population."""
    est = eb.PoissonEB().fit(EVENTS, groups=np.arange(M), exposure=YEARS)
    oracle = (4.0 + EVENTS) / (10.0 + YEARS)
    risk, best = (np.mean((x - THETA) ** 2) for x in (est.predict(), oracle))
    assert risk < 1.01 * best
    assert np.mean((EVENTS / YEARS - THETA) ** 2) > 2 * best


@pytest.mark.parametrize(
    "channel",
    [
        ch.TwoBit(2.0),
        ch.Gaussian(4.0, 1e-5),
        ch.Quantizer(4, (0.0, 1.5)),
        ch.UnaryEncoding(3.0, (0.0, 1.5), levels=8),
    ],
    ids=repr,
)
def test_populations_through_channels(channel):
    """Mean and spread within 5 standard errors of the truth, of which reports tell enough."""
    guess = eb.channels.Guess(mean=(0.1, 1.0), spread=0.3)
    est = eb.PoissonEB(channel=channel, guess=guess, random_state=0)
    est.fit(EVENTS, groups=np.arange(M), exposure=YEARS)
    prior = est.prior_
    assert abs(prior.mean_.item() - 0.4) < 5 * np.sqrt(prior.mean_variance_.item())
    assert abs(prior.variance_.item() - 0.04) < 5 * np.sqrt(prior.variance_variance_.item())
    risk = np.mean((est.predict() - THETA) ** 2)
    assert risk < 0.8 * np.mean((EVENTS / YEARS - THETA) ** 2)
    assert np.isfinite(est.privacy_["bits"]).all()
    if np.isfinite(est.privacy_["epsilon"].item()):
        assert "numbers of rows and exposures are public" in est.privacy_["assumptions"].item()


def test_consent_and_other_populations():
    choice = np.where(np.arange(M) % 3 == 0, "open", "private")
    channel = {"private": ch.TwoBit(1.0, range=(0.0, 1.5)), "open": ch.Exact()}
    est = eb.PoissonEB(channel=channel, random_state=0)
    est.fit(EVENTS, groups=np.arange(M), exposure=YEARS, consent=choice)
    assert est.prior_.mean_.item() == pytest.approx(0.4, abs=0.02)
    npmle = eb.PoissonEB(prior="npmle").fit(EVENTS, groups=np.arange(M), exposure=YEARS)
    oracle = (4.0 + EVENTS) / (10.0 + YEARS)
    best = np.mean((oracle - THETA) ** 2)
    assert np.mean((npmle.predict() - THETA) ** 2) < 1.05 * best


def test_reports_of_a_fit():
    est = eb.PoissonEB().fit(
        MMMEC[["county", "deaths", "expected"]], groups="county", exposure="expected"
    )
    assert "Gamma" in str(est.summary())
    tidy = est.tidy(conf_int=True)
    assert tidy["term"].tolist() == ["mean", "sd__mean", "shape"]
    low, high = tidy.loc[0, ["conf.low", "conf.high"]]
    assert 0 < low < est.prior_.mean_.item() < high
    rows = est.augment(MMMEC[["county", "deaths", "expected"]])
    np.testing.assert_allclose(rows[".fitted"], est.predict() * MMMEC["expected"])
    np.testing.assert_allclose(rows[".fitted"] + rows[".resid"], MMMEC["deaths"])
    assert est.glance()["nobs"].item() == len(MMMEC)
    ranks = est.ranks(top=5, n_draws=500)
    assert ranks["prob_top"].sum() == pytest.approx(5)
    npmle = clone(est).set_params(prior="npmle")
    npmle.fit(MMMEC[["county", "deaths", "expected"]], groups="county", exposure="expected")
    table = eb.compare(gamma=est, npmle=npmle)
    assert table["logLik"].iloc[1] > table["logLik"].iloc[0]
    score = est.score(
        MMMEC[["deaths"]], groups=MMMEC["county"], exposure=MMMEC["expected"].to_numpy()
    )
    assert np.isfinite(score)


def test_the_price_of_privacy():
    est = eb.PoissonEB(guess=eb.channels.Guess(mean=(0.1, 1.0), spread=0.3))
    est.fit(EVENTS[:500], groups=np.arange(500), exposure=YEARS[:500])
    price = eb.price_of_privacy(est, [4.0], channels={"two bits": ch.TwoBit}, n_runs=2)
    assert price["error"].item() < price["local_error"].item()


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        ({"X": [0.5, 1.0]}, "X must hold counts, whole numbers from 0; row 0"),
        ({"X": [-1, 1]}, "X must hold counts"),
        ({"exposure": [1.0, 0.0]}, "exposure must be positive and finite; row 1 has 0.0"),
        ({"exposure": [1.0, np.nan]}, "exposure must be positive and finite; row 1"),
        ({"exposure": [1.0, 1e300]}, "exposure must be between 1e-60 and 1e\\+60; rescale; row 1"),
        ({"exposure": [1e-300, 1.0]}, "exposure must be between 1e-60 and 1e\\+60; rescale; row 0"),
        ({"X": [1e308, 1.0]}, r"X must hold counts, whole numbers from 0 to 2\*\*53; row 0"),
        ({"exposure": [1.0]}, "exposure has 1 entries for the 2 rows"),
        ({"exposure": "years"}, "exposure='years' names a column, but X is not a data frame"),
        ({"exposure": [[1.0, 2.0]]}, "exposure must be one number per row"),
    ],
    ids=lambda x: None if isinstance(x, str) else str(x),
)
def test_bad_input(fit, message):
    with pytest.raises(ValueError, match=message):
        eb.PoissonEB().fit(**({"X": [1, 2], "groups": [0, 1]} | fit))


@pytest.mark.parametrize("estimator", [eb.PoissonEB(), eb.NegativeBinomialEB(dispersion=0.2)])
def test_predictions_are_expected_counts(estimator):
    """What `augment` calls fitted; rates are per unit of exposure, and of groups without rows."""
    rows = MMMEC.drop_duplicates("county")[["county", "deaths", "expected"]]
    est = clone(estimator).fit(rows, groups="county", exposure="expected")
    np.testing.assert_allclose(est.predict(rows), est.augment(rows)[".fitted"], rtol=1e-12)
    twice = rows.assign(expected=2 * rows["expected"])
    given = {"groups": rows["county"], "exposure": 2 * rows["expected"]}
    np.testing.assert_allclose(est.predict(**given), 2 * est.predict() * rows["expected"])
    again = clone(estimator).fit_predict(rows, groups="county", exposure="expected")
    np.testing.assert_allclose(again, est.predict(rows), rtol=1e-12)
    rate = est.predict(twice, type="rate")
    np.testing.assert_allclose(rate, est.transform(twice)[:, 0])
    np.testing.assert_allclose(rate, est.posterior(twice).mean[:, 0])
    np.testing.assert_allclose(est.predict(type="rate"), est.predict())
    with pytest.raises(ValueError, match="type='link' is the linear predictor of a mixed model"):
        est.predict(rows, type="link")
    with pytest.raises(ValueError, match="exposure has 1 entries for 2 entries of groups"):
        est.predict(groups=rows["county"][:2].to_numpy(), exposure=[1.0])
    with pytest.raises(ValueError, match="type='rate' is for rows that may have exposures"):
        eb.GaussianEB().fit(rows[["deaths"]], groups=rows["expected"] > 1).predict(type="rate")


def test_exposure_is_asked_for_again_and_of_counts_only():
    est = eb.PoissonEB().fit([1, 2, 5], groups=[0, 1, 2], exposure=[1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="exposure= must give the exposure of each row"):
        est.predict([3, 4, 1], groups=[0, 1, 2])
    with pytest.raises(ValueError, match="exposure= is for counts of events; rows are gaussian"):
        eb.GaussianEB().fit([1.0, 2.0], groups=[0, 1], exposure=[1.0, 1.0])


def test_a_mean_without_a_spread_through_one_bit():
    with pytest.raises(ValueError, match="carries nothing about the spread"):
        eb.PoissonEB(channel=ch.OneBit(1.0, (0, 1))).fit(EVENTS, groups=np.arange(M))


def test_groups_are_predicted_at_exposures():
    est = eb.PoissonEB().fit([3, 1, 4, 2], groups=list("aabb"), exposure=[2.0, 1.0, 3.0, 1.0])
    rates, counts = est.predict(groups=["a", "b"]), est.predict(groups=["a", "b"], exposure=[2, 5])
    np.testing.assert_allclose(counts, rates * [2, 5], rtol=1e-12)
