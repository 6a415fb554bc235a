"""Binomial rows with a probit and a complementary log-log link, against integrals and lme4."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr
from scipy.stats import norm

import ebfed as eb
from ebfed.kernels.responses import _row, _twist
from ebfed.regression.families import family_named

NONE = np.zeros(0)
LINKS = ["probit", "cloglog"]
CBPP = pd.read_csv(Path(__file__).parents[2] / "reference" / "cbpp.csv")


def log_success(link, z):
    """Logarithm of the probability of a success, and of a failure."""
    if link == "probit":
        return log_ndtr(z), log_ndtr(-z)
    return (z - np.exp(z) / 2 if z < -20 else np.log(-np.expm1(-np.exp(z)))), -np.exp(z)


def simulated(link, seed, m=40, n=12):
    """Rows of m groups."""
    rng = np.random.default_rng(seed)
    groups, x = np.repeat(np.arange(m), n), rng.normal(size=m * n)
    z = 0.3 + 0.5 * x + rng.normal(0, 0.7, m)[groups]
    won = rng.random(m * n) < family_named("binomial", link).inverse(z, NONE)
    return pd.DataFrame({"g": groups, "h": groups // 4, "x": x, "y": won * 1})


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("y", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("z", [-30.0, -8.0, -4.0, -3.9, -0.5, 0.0, 1.5, 4.5])
def test_derivatives_of_rows(link, y, z):
    kind, step = family_named("binomial", link).kind, 1e-4

    def row(at):
        return _row(kind, y, 2.0, at, NONE)

    won, lost = log_success(link, z)
    value, slope, bend = row(z)
    assert value == pytest.approx(2 * (y * won + (1 - y) * lost), rel=1e-12, abs=1e-15)
    up, down = row(z + step), row(z - step)
    near = {"rel": 1e-6, "abs": 1e-7}  # differences of doubles over 2e-4
    assert slope == pytest.approx((up[0] - down[0]) / (2 * step), **near)
    assert bend == pytest.approx((down[1] - up[1]) / (2 * step), **near)
    assert _twist(kind, y, 2.0, z, NONE, bend) == pytest.approx(
        (up[2] - down[2]) / (2 * step), **near
    )


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("centre", [-6.0, -1.0, 0.0, 2.5])
@pytest.mark.parametrize("sd", [0.0, 0.3, 0.99, 1.01, 3.0, 20.0])
def test_mean_is_an_average_over_the_predictor(link, centre, sd):
    family = family_named("binomial", link)
    expected = family.inverse(np.array([centre]), NONE)[0]
    if sd:
        points = np.linspace(-12, 12, 25)

        def density(t):
            return family.inverse(np.array([centre + sd * t]), NONE)[0] * norm.pdf(t)

        pieces = [quad(density, a, b, epsabs=1e-13)[0] for a, b in pairwise(points)]
        expected = sum(pieces)
    given = np.array([centre]), np.array([sd**2])
    assert family.mean(*given, NONE)[0] == pytest.approx(expected, rel=1e-8, abs=1e-12)
    lost, won = np.exp(family.log_probabilities(*given)[0])
    assert won == pytest.approx(expected, rel=1e-8, abs=1e-12)
    assert lost + won == pytest.approx(1, abs=1e-12)


# glmer(cbind(incidence, size - incidence) ~ period + (1 | herd), cbpp, binomial(link), nAGQ = 25)
LME4 = {
    "probit": ([-0.832017, -0.526274, -0.614772, -0.797529], 0.339651),
    "cloglog": ([-1.532823, -0.912084, -1.030149, -1.478357], 0.590311),
}


@pytest.mark.parametrize("link", LINKS)
def test_herds_are_those_of_lme4(link):
    rows = CBPP.assign(period=CBPP["period"].astype(str))
    text = "cbind(incidence, trials=size) ~ period + (1 | herd)"
    fit = eb.from_formula(text, rows, family="binomial", link=link)
    mean, sd = LME4[link]
    errors = np.sqrt(np.diag(fit.mean_covariance_))
    # its optimiser stops earlier: 1e-4 of an error
    assert np.all(np.abs(fit.mean_ - mean) < 1e-4 * errors)
    assert np.sqrt(fit.covariance_[0, 0]) == pytest.approx(sd, rel=1e-3)


@pytest.mark.parametrize("link", LINKS)
def test_likelihood_is_an_integral(link):
    rows = simulated(link, 0, m=8)
    fit = eb.from_formula("y ~ x + (1 | g)", rows, family="binomial", link=link)
    family, total = family_named("binomial", link), 0.0
    sd = np.sqrt(fit.covariance_[0, 0])
    for _, own in rows.groupby("g"):
        z, won = fit.mean_[0] + fit.mean_[1] * own["x"].to_numpy(), own["y"].to_numpy() == 1

        def density(t, z=z, won=won):
            p = family.inverse(z + sd * t, NONE)
            return np.prod(np.where(won, p, 1 - p)) * norm.pdf(t)

        total += np.log(quad(density, -9, 9, epsabs=0, epsrel=1e-10, points=[0])[0])
    assert fit.log_likelihood_ == pytest.approx(total, abs=1e-7)


@pytest.mark.parametrize("link", LINKS)
def test_levels_are_crossed_factors_too(link):
    """The same Laplace approximation by two estimators."""
    rows = simulated(link, 1)
    y, groups = rows["y"], [rows["h"], rows["g"]]
    nested = eb.GeneralizedEB("binomial", link=link, varying=["intercept"], method="laplace")
    nested.fit(rows[["x"]], y, groups=groups)
    crossed = eb.CrossedEB(family="binomial", link=link).fit(rows[["x"]], y, groups=groups)
    assert crossed.log_likelihood_ == pytest.approx(nested.log_likelihood_, abs=1e-4)
    assert crossed.mean_ == pytest.approx(nested.mean_, abs=2e-3)


@pytest.mark.parametrize("link", LINKS)
def test_what_follows_from_a_fit(link, tmp_path):
    rows = simulated(link, 2, m=15)
    rows["kind"] = np.where(rows["x"] > 0, "up", "down")
    fit = eb.from_formula("y ~ kind + (1 | g)", rows, family="binomial", link=link)
    p = fit.predict(rows)
    assert ((p > 0) & (p < 1)).all()
    fit.save(tmp_path / "fit.json")
    assert np.array_equal(eb.load_fit(tmp_path / "fit.json").predict(rows), p)
    typical = fit.margins("kind").frame(scale="response")["estimate"]
    z = fit.mean_[0] + np.array([0, fit.mean_[1]])
    assert typical.to_numpy() == pytest.approx(family_named("binomial", link).inverse(z, NONE))
    assert np.isfinite(fit.residuals(kind="quantile", random_state=0)).all()
    assert len(fit.confint(method="profile")) == 3
    sums = eb.GeneralizedEB("binomial", link=link, share="sums", varying=["intercept"])
    sums.fit(rows[["x"]], rows["y"], groups=rows["g"])
    one = eb.from_formula("y ~ x + (1 | g)", rows, family="binomial", link=link)
    assert sums.mean_ == pytest.approx(one.mean_, abs=1e-6)


def test_what_has_no_such_link_says_so():
    rows = simulated("probit", 3, m=6)
    for family, wrong in [("binomial", "log"), ("poisson", "probit"), ("gaussian", "probit")]:
        with pytest.raises(ValueError, match=f"link of {family} rows must be None"):
            eb.CrossedEB(family=family, link=wrong).fit(
                rows[["x"]], rows["y"], groups=[rows["g"], rows["h"]]
            )
    with pytest.raises(ValueError, match="with a logit"):
        eb.GeneralizedEB("binomial", link="probit", method="ep").fit(
            rows[["x"]], rows["y"], groups=rows["g"]
        )
    with pytest.raises(ValueError, match="no argument 'link'"):
        eb.from_formula("y ~ x + (1 | g)", rows, eb.LogisticEB(), link="probit")
