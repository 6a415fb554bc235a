"""Logistic models in which some coefficients are alike in all groups, beside lme4's glmer."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed.engines import Local
from ebfed.testing.nodes import fit_on_nodes

STORED = Path(__file__).parents[1] / "reference"
CASE = "cbpp_quadrature"
# The search of glmer ends some 1e-5 standard errors from the maximum.
NEAR = 1e-5
# Errors of expectation propagation itself, of 15 herds.
NEAR_EP = 0.01


def stored(kind, case=CASE):
    table = pd.read_csv(STORED / f"lme4_formulas_{kind}.csv", dtype={"grp": str})
    return table[table["case"] == case]


def herds(**settings):
    table = pd.read_csv(STORED / "cbpp.csv")
    rows = table.loc[table.index.repeat(table["size"])]
    rows["ill"] = rows.groupby(level=0).cumcount() < rows["incidence"]
    return eb.from_formula("ill ~ C(period) + (1 | herd)", rows, family="binomial", **settings)


@pytest.fixture(scope="module")
def fit():
    return herds()


def test_agrees_with_glmer(fit):
    expected = stored("fixef")
    fixed = fit.tidy("fixed")
    np.testing.assert_allclose(fixed["estimate"], expected["estimate"], atol=NEAR)
    # glmer takes the second derivatives by differences
    np.testing.assert_allclose(fixed["std.error"], expected["std_error"], rtol=1e-4)
    spread = fit.tidy("ran_pars")
    assert spread["term"].tolist() == ["sd__intercept"]
    assert spread["estimate"].item() == pytest.approx(stored("varcor")["sdcor"].item(), rel=NEAR)
    assert fit.estimator_.method_ == "aghq"


def test_expectation_propagation_comes_near():
    fit, expected = herds(method="ep"), stored("fixef")
    fixed = fit.tidy("fixed")
    np.testing.assert_allclose(fixed["estimate"], expected["estimate"], atol=NEAR_EP)
    # what the fitted variance adds is itself estimated, here from 15 herds
    np.testing.assert_allclose(fixed["std.error"], expected["std_error"], rtol=0.03)
    spread = fit.tidy("ran_pars")["estimate"].item()
    assert spread == pytest.approx(stored("varcor")["sdcor"].item(), rel=NEAR_EP)


def test_reaction_times_are_those_of_glmer():
    """Beside `glmer` with 25 nodes, whose own error in the likelihood is some 1e-8 here."""
    rows = pd.read_csv(STORED / "sleepstudy.csv")
    rows["slow"] = (rows["Reaction"] > 300).astype(int)
    fit = eb.from_formula("slow ~ Days + (1 | Subject)", rows, family="binomial")
    case = "sleepstudy_slow_quadrature"
    expected = {kind: stored(kind, case) for kind in ("fixef", "varcor", "fit")}
    fixed = fit.tidy("fixed")
    np.testing.assert_allclose(fixed["estimate"], expected["fixef"]["estimate"], atol=NEAR)
    np.testing.assert_allclose(fixed["std.error"], expected["fixef"]["std_error"], rtol=1e-4)
    spread = fit.tidy("ran_pars")["estimate"].item()
    assert spread == pytest.approx(expected["varcor"]["sdcor"].item(), rel=NEAR)
    likelihood = fit.estimator_.log_likelihood_
    assert likelihood == pytest.approx(expected["fit"]["loglik"].item(), abs=1e-6)


@pytest.mark.parametrize(("method", "near"), [("aghq", 1e-4), ("ep", 0.01)])
def test_standard_errors_allow_for_the_fitted_variance(method, near):
    """Beside the Hessian of the likelihood by quadrature, mean and variance together.

    By expectation propagation the correction is known to some 3 % of itself of 1,500 groups; by
    quadrature, differences of the Hessian are what is not exact.
    """
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(1500), 6)
    y = rng.random(9000) < 1 / (1 + np.exp(-1 - 2 * rng.normal(size=1500)[groups]))
    fit = eb.LogisticEB(varying=["intercept"], method=method)
    fit.fit(rng.normal(size=(9000, 1)), y, groups=groups)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    ones = np.bincount(groups, y)[:, None]
    here = np.array([fit.mean_[0], 0.5 * np.log(fit.covariance_[0, 0])])

    def log_likelihood(a, b):
        logit = a + np.exp(b) * nodes
        return np.log(np.exp(ones * logit - 6 * np.log1p(np.exp(logit))) @ weights).sum()

    h, hessian = 1e-3, np.empty((2, 2))
    for i, j in np.ndindex(2, 2):
        steps = [h * (si * np.eye(2)[i] + sj * np.eye(2)[j]) for si in (1, -1) for sj in (1, -1)]
        pp, pm, mp, mm = (log_likelihood(*(here + step)) for step in steps)
        hessian[i, j] = (pp - pm - mp + mm) / (4 * h * h)
    known, shared = np.sqrt(-1 / hessian[0, 0]), np.sqrt(np.linalg.inv(-hessian)[0, 0])
    assert shared > 1.03 * known
    assert np.sqrt(fit.mean_covariance_[0, 0]) == pytest.approx(shared, rel=near)


def test_groups_are_near_the_modes_of_glmer(fit):
    """Means of skewed posteriors lie some hundredths from their modes."""
    mine = fit.ranef().assign(herd=lambda each: each["herd"].astype(str)).set_index("herd")
    modes = stored("ranef").set_index("grp")["condval"]
    away = mine["intercept"] - modes[mine.index]
    assert np.abs(away).max() < 0.06
    assert list(mine.columns) == ["intercept"]


def test_what_does_not_vary_is_alike_everywhere(fit):
    coef = fit.coef().drop(columns=["herd", "intercept"])
    np.testing.assert_allclose(coef.std(), 0, atol=1e-5)
    assert fit.estimator_.n_parameters_ == 5
    assert np.flatnonzero(np.diag(fit.estimator_.covariance_)).tolist() == [0]


def test_all_varying_is_the_model_without_it():
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(900, 1)), np.repeat(np.arange(100), 9)
    logit = rng.normal(0, 1, 100)[groups] + rng.normal(1, 0.7, 100)[groups] * X[:, 0]
    y = rng.random(900) < 1 / (1 + np.exp(-logit))
    every = eb.LogisticEB(varying=["intercept", 0]).fit(X, y, groups=groups)
    plain = eb.LogisticEB().fit(X, y, groups=groups)
    np.testing.assert_array_equal(every.covariance_, plain.covariance_)
    none = eb.LogisticEB(varying=[]).fit(X, y, groups=groups)
    assert not none.covariance_.any()
    # no coefficient varies: logistic regression
    import statsmodels.api as sm

    ordinary = sm.Logit(y.astype(float), sm.add_constant(X)).fit(disp=0)
    np.testing.assert_allclose(none.mean_, ordinary.params, atol=1e-4)
    np.testing.assert_allclose(np.sqrt(np.diag(none.mean_covariance_)), ordinary.bse, rtol=1e-3)


@pytest.mark.parametrize(
    "options",
    [
        {"covariance": "diag", "varying": ["intercept", 1]},
        {"covariance": "full", "varying": ["intercept", 1]},
        {"covariance": "spherical", "varying": ["intercept", 1]},
        {"covariance": "full", "varying": [0, 1], "fixed": ["intercept", 0, 2]},
        {"covariance": "diag"},
        {"covariance": "full", "method": "laplace"},
    ],
    ids=str,
)
def test_it_is_the_binomial_model(options):
    """The same rows through both doors: every figure is the same."""
    rng = np.random.default_rng(3)
    X, groups = rng.normal(size=(600, 3)), np.repeat(np.arange(60), 10)
    logit = X @ [1.0, -0.5, 0.0] + rng.normal(size=60)[groups] * (1 + X[:, 1])
    y = (rng.random(600) < 1 / (1 + np.exp(-logit))).astype(int)
    labels = np.array(["no", "yes"])[y]
    one = eb.LogisticEB(**options).fit(X, labels, groups=groups)
    other = eb.GeneralizedEB("binomial", **options).fit(X, y, groups=groups)
    assert one.method_ == other.method_
    assert one.log_likelihood_ == other.log_likelihood_
    assert one.notes_ == other.notes_
    for name in ("mean_", "mean_covariance_", "covariance_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_array_equal(one.posterior().sd, other.posterior().sd)
    np.testing.assert_allclose(
        one.predict_proba(X, groups=groups)[:, 1], other.predict(X, groups=groups), rtol=1e-9
    )
    for kind in ("row", "mean"):
        given = {"groups": groups, "kind": kind}
        mine, theirs = (fit.predict_interval(X, **given) for fit in (one, other))
        np.testing.assert_allclose(mine, theirs, rtol=1e-9)
    pd.testing.assert_frame_equal(one.tests(), other.tests())
    pd.testing.assert_frame_equal(one.confint(), other.confint())
    pd.testing.assert_frame_equal(one.tidy(), other.tidy())
    np.testing.assert_allclose(
        one.residuals(X, labels, groups=groups, kind="pearson"),
        other.residuals(X, y, groups=groups, kind="pearson"),
        rtol=1e-9,
    )


def test_influence_is_that_of_the_binomial_model():
    rng = np.random.default_rng(4)
    X, groups = rng.normal(size=(80, 1)), np.repeat(np.arange(8), 10)
    y = (rng.random(80) < 1 / (1 + np.exp(-X[:, 0] - rng.normal(size=8)[groups]))).astype(int)
    one = eb.LogisticEB(varying=["intercept"]).fit(X, y, groups=groups)
    other = eb.GeneralizedEB("binomial", varying=["intercept"]).fit(X, y, groups=groups)
    pd.testing.assert_frame_equal(one.influence(), other.influence())


def test_unknown_columns():
    X, groups = np.arange(12.0).reshape(-1, 1) % 5, np.repeat([0, 1, 2], 4)
    with pytest.raises(ValueError, match=r"varying must name columns of .* got 'age'"):
        eb.LogisticEB(varying=["age"]).fit(X, X[:, 0] > 2, groups=groups)


def many(m, n, p, seed):
    """Rows of m groups of n, with p coefficients of variance 0.36 each."""
    rng = np.random.default_rng(seed)
    X, groups = rng.normal(size=(m * n, p)), np.repeat(np.arange(m), n)
    theta = rng.normal(0, 0.7, p) + rng.normal(0, 0.6, (m, p))
    logit = (X * theta[groups]).sum(axis=1)
    return X, (rng.random(m * n) < 1 / (1 + np.exp(-logit))).astype(int), groups


def test_more_coefficients_than_rows_of_a_group():
    """Laplace's approximation is far off here: below half of the spread, or without end."""
    X, y, groups = many(150, 8, 10, 0)
    fit = eb.GeneralizedEB("binomial", "spherical").fit(X, y, groups=groups)
    assert fit.method_ == "ep"
    assert fit.converged_
    # its standard error is 0.1
    assert 0.35 < np.sqrt(fit.covariance_[0, 0]) < 0.9
    assert all("Laplace" not in note for note in fit.notes_)


def test_many_coefficients_do_not_depend_on_blocks_nor_on_nodes():
    X, y, groups = many(30, 12, 4, 1)
    here = eb.LogisticEB("full", random_state=0).fit(X, y, groups=groups)
    assert here.method_ == "ep"
    for engine in (Local(7), Local(5, threads=2)):
        other = eb.LogisticEB("full", engine=engine, random_state=0).fit(X, y, groups=groups)
        np.testing.assert_array_equal(other.covariance_, here.covariance_)
        assert other.history_.equals(here.history_)
    parts = [groups < 10, groups >= 10]
    given = [{"X": X[own], "y": y[own], "groups": groups[own]} for own in parts]
    nodes, *_ = fit_on_nodes(eb.LogisticEB("full", random_state=0), given)
    np.testing.assert_array_equal(nodes[1].mean_, here.mean_)
    np.testing.assert_array_equal(nodes[0].posterior().sd, here.posterior().sd[:10])
