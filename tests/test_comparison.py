"""Fits side by side."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import ebfed as eb

RNG = np.random.default_rng(0)
X, GROUPS, THETA = eb.datasets.make_gaussian_groups(2000, 4, random_state=0)
ROWS = pd.DataFrame({"x": X.ravel(), "g": GROUPS, "z": RNG.normal(size=len(GROUPS))})


@pytest.fixture(scope="module")
def fits():
    return {
        prior: eb.GaussianEB(prior=prior).fit(X, groups=GROUPS)
        for prior in ("normal", "laplace", "npmle")
    }


def test_figures_are_those_of_the_fits(fits):
    table = eb.compare(**fits).set_index("fit")
    assert list(table.index) == list(fits)
    for name, fit in fits.items():
        glance = fit.glance().iloc[0]
        for column in ("npar", "logLik", "AIC", "BIC"):
            assert table.loc[name, column] == glance[column]
        assert table.loc[name, "risk"] == np.mean(fit.posterior().sd ** 2)


def test_stein_estimates_the_loss(fits):
    """Over 2,000 groups a mean of squares has an error of 3 %: five of them are allowed."""
    table = eb.compare(**fits).set_index("fit")
    for name, fit in fits.items():
        loss = np.mean((fit.posterior().mean - THETA.reshape(-1, 1)) ** 2)
        assert table.loc[name, "sure"] == pytest.approx(loss, rel=0.15)
    local = np.mean((fits["normal"].summaries_.mean - THETA.reshape(-1, 1)) ** 2)
    assert table["local"].iloc[0] == pytest.approx(local, rel=0.15)


def test_stein_of_no_shrinkage_is_the_sampling_variance():
    """A population without bounds leaves means alone: the estimate of the risk is exact."""
    prior = eb.priors.Normal(variance=1e12)
    est = eb.GaussianEB(1.0, prior=prior).fit(X, groups=GROUPS)
    row = eb.compare(est).iloc[0]
    assert row["sure"] == pytest.approx(0.25, rel=1e-6)
    assert row["local"] == 0.25


def test_formulas_and_held_out_rows():
    seen = RNG.random(len(ROWS)) < 0.7
    first = eb.from_formula("x ~ 1 + (1 | g)", ROWS[seen])
    second = eb.from_formula("x ~ z + (1 | g)", ROWS[seen])
    again = eb.from_formula("x ~ z + (1 | g)", ROWS[seen])
    table = eb.compare(first, second, again, held_out=ROWS[~seen])
    assert table["fit"].tolist() == [first.formula, second.formula, f"{second.formula} (2)"]
    assert table["score"].tolist() == [each.score(ROWS[~seen]) for each in (first, second, again)]


def test_arguments_of_score(fits):
    new = {"X": X + 0.1, "groups": GROUPS}
    table = eb.compare(fits["normal"], held_out=new)
    assert table["fit"].tolist() == ["GaussianEB, Normal"]
    assert table["score"].item() == fits["normal"].score(**new)


def test_what_a_method_does_not_have_is_missing():
    learner = eb.LocalOnly(n_rounds=1).fit(ROWS[["z"]], ROWS["x"] > 0, groups=ROWS["g"])
    linear = eb.LinearEB().fit(ROWS[["z"]], ROWS["x"], groups=ROWS["g"])
    table = eb.compare(learner=learner, linear=linear).set_index("fit")
    assert table.loc["learner", ["logLik", "risk", "sure"]].isna().all()
    assert table.loc["linear", ["logLik", "risk"]].notna().all()


def test_frames_come_back_in_kind():
    fit = eb.from_formula("x | g", pl.DataFrame(ROWS))
    assert isinstance(eb.compare(fit), pl.DataFrame)


def test_bad_input(fits):
    with pytest.raises(ValueError, match="no fit to compare"):
        eb.compare()
    with pytest.raises(TypeError, match="'a' is no fitted estimator"):
        eb.compare(a=3)
    fewer = eb.GaussianEB().fit(X[:-1], groups=GROUPS[:-1])
    with pytest.raises(ValueError, match="same rows; nobs is 8,000 in 'all', 7,999 in 'fewer'"):
        eb.compare(all=fits["normal"], fewer=fewer)
