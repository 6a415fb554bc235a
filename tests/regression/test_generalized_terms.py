"""Generalized linear mixed models whose random terms have any columns, in the span of X or not."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import minimize
from scipy.special import expit, gammaln, logsumexp

import ebfed as eb

REFERENCE = Path(__file__).parents[1] / "reference"
RNG = np.random.default_rng(3)
M = 25
GROUP = np.repeat(np.arange(M), RNG.integers(3, 8, M))
X, Z = RNG.normal(size=(2, len(GROUP)))
U = RNG.normal(size=(M, 2))
LINE = 0.5 + 0.4 * X + 0.6 * U[GROUP, 0] + 0.5 * U[GROUP, 1] * Z
RESPONSES = {
    "poisson": RNG.poisson(np.exp(LINE)),
    "binomial": (RNG.uniform(size=len(GROUP)) < expit(LINE)).astype(int),
    "negative_binomial": RNG.negative_binomial(4, 4 / (4 + np.exp(LINE))),
    "gamma": RNG.gamma(3, np.exp(LINE) / 3),
}
ROWS = pd.DataFrame({"g": GROUP, "x": X, "z": Z})
ROWS["h"] = np.where(RNG.uniform(size=len(ROWS)) < 0.5, "a", "b")


def log_density(family, y, z, shape):
    mean = np.exp(z)
    if family == "poisson":
        return y * z - mean - gammaln(y + 1)
    if family == "binomial":
        return y * z - np.log1p(mean)
    k = np.exp(shape)
    if family == "negative_binomial":
        known = gammaln(y + k) - gammaln(k) - gammaln(y + 1) + k * shape
        return y * z - (y + k) * np.log(k + mean) + known
    return k * (shape - z) + (k - 1) * np.log(y) - k * y / mean - gammaln(k)


def log_likelihood(family, z, nodes, shape=0.0):
    """Log-likelihood of rows whose predictors at standard effects on a grid are z."""
    y = RESPONSES[family][:, None]
    whole = np.zeros((M, z.shape[1]))
    np.add.at(whole, GROUP, log_density(family, y, z, shape))
    return logsumexp(whole - (nodes**2).sum(axis=1) / 2, axis=1).sum()


def grid_of(q):
    """Standard effects on a grid, over which sums are integrals, and the log of their density."""
    step = 0.05 if q == 1 else 0.2
    axis = np.arange(-7, 7 + step, step)
    nodes = np.stack(np.meshgrid(*[axis] * q, indexing="ij"), -1).reshape(-1, q)
    return nodes, q * (np.log(step) - np.log(2 * np.pi) / 2)


def highest(family, start, fixed, varying, kind):
    """Largest log-likelihood, searched for from a mean and entries of a root."""
    q, p = varying.shape[1], fixed.shape[1]
    nodes, unit = grid_of(q)
    low = np.tril_indices(q) if kind == "full" else (np.arange(q),) * 2

    def below(point):
        L = np.zeros((q, q))
        L[low] = point[p : p + len(low[0])]
        z = (fixed @ point[:p])[:, None] + varying @ L @ nodes.T
        return -log_likelihood(family, z, nodes, point[-1])

    best = np.inf
    # a search may stop where a variance is small, or short of counts that do not scatter
    for shape in (2.0, 14.0) if family == "negative_binomial" else (2.0,):
        found = minimize(below, [*start[0], *start[1][low], shape], method="BFGS")
        best = min(best, minimize(below, found.x, method="BFGS").fun)
    return M * unit - best


ONE = np.ones(len(ROWS))
H = (ROWS["h"].to_numpy()[:, None] == ["a", "b"]).astype(float)
MODELS = {
    "y ~ x + (0 + z | g)": (np.column_stack([ONE, X]), Z[:, None], "diag"),
    "y ~ 1 + (z | g)": (ONE[:, None], np.column_stack([ONE, Z]), "full"),
    "y ~ 0 + h + (1 | g)": (H, ONE[:, None], "diag"),
    "y ~ x + (1 | g) + (0 + z | g)": (np.column_stack([ONE, X]), np.column_stack([ONE, Z]), "diag"),
}


@pytest.mark.parametrize("family", RESPONSES)
@pytest.mark.parametrize("formula", MODELS)
def test_never_worse_than_the_likelihood_on_a_grid(formula, family):
    y = RESPONSES[family]
    fit = eb.from_formula(formula, ROWS.assign(y=y), family=family)
    fixed, varying, kind = MODELS[formula]
    places = [fit.terms_.index(name) for name in fit.ranef().columns[1:]]
    spread = fit.covariance_[np.ix_(places, places)] + 0.01 * np.eye(len(places))
    start = fit.fixef()["estimate"], np.linalg.cholesky(spread)
    # sums are integrals to some 1e-5; the search of the test stops where dispersion is small
    above = fit.log_likelihood_ - highest(family, start, fixed, varying, kind)
    assert -1e-4 < above < 1e-3


@pytest.mark.parametrize("family", ["poisson", "binomial", "ordinal"])
@pytest.mark.parametrize("formula", ["y ~ 1 + (z | g)", "y ~ x + (h | g)", "y ~ x + (1 | h:g)"])
def test_all_that_a_fit_offers(formula, family, tmp_path):
    y = 1 + np.minimum(RESPONSES["poisson"], 2) if family == "ordinal" else RESPONSES[family]
    rows = ROWS.assign(y=y)
    fit = eb.from_formula(formula, rows, family=family)
    names = fit.fixef()["term"].tolist()
    assert names == ["intercept", "x"][: len(names)]
    assert fit.tests()["term"].tolist() == names
    assert fit.confint()["term"].tolist() == names
    assert np.isfinite(fit.tests()[["std.error", "p.value"]]).all(axis=None)
    assert "dfbeta.intercept" in fit.influence().columns
    assert len(fit.margins().frame()) == 1
    assert all(name in str(fit.summary()) for name in names)
    fitted = fit.predict()
    low, high = fit.predict_interval(kind="mean")
    assert ((low <= fitted) & (fitted <= high)).all()
    assert len(fit.residuals(kind="pearson")) == len(rows)
    fit.save(tmp_path / "fit.ebfed")
    np.testing.assert_allclose(eb.load_fit(tmp_path / "fit.ebfed").predict(rows), fitted)


def test_profiles_of_a_column_without_a_mean():
    """Ends where twice the log-likelihood is z squared lower, by the likelihood of the rows."""
    rows = ROWS.assign(y=RESPONSES["poisson"])
    fit = eb.from_formula("y ~ 1 + (0 + z | g)", rows, family="poisson")
    found = fit.confint(method="profile")
    assert found["term"].tolist() == ["intercept", "sd__z"]
    low = found["conf.low"].iloc[1]
    nodes, unit = grid_of(1)

    def below(mean):
        return -log_likelihood("poisson", mean + low * Z[:, None] * nodes.T, nodes)

    lowest = minimize(below, fit.mean_[:1], method="BFGS").fun - M * unit
    away = 2 * (fit.log_likelihood_ + lowest)
    assert away == pytest.approx(stats.norm.ppf(0.975) ** 2, abs=1e-3)


def test_a_slope_of_contraception_is_that_of_glmer():
    """Figures of lme4 by Laplace's approximation, which is ours of several levels."""
    rows = pd.read_csv(REFERENCE / "contraception.csv").assign(one=0)
    formula = "use ~ age + urban + (1 + urban | one:district)"
    fit = eb.from_formula(formula, rows, family="binomial")
    assert fit.log_likelihood_ == pytest.approx(-1242.01334, abs=1e-4)
    expected = np.array([-0.720390, 0.009253, 0.741535])
    away = (fit.fixef()["estimate"] - expected) / fit.tidy("fixed")["std.error"]
    assert np.abs(away).max() < 1e-3  # glmer stops near the maximum
    spreads = fit.tidy("ran_pars")["estimate"].to_numpy()
    np.testing.assert_allclose(spreads, [0.596073, 0.819088, -0.812416], rtol=1e-3)
    exact = eb.from_formula("use ~ age + urban + (1 + urban | district)", rows, family="binomial")
    assert type(exact.estimator_).__name__ == "GeneralizedEB"
    assert exact.likelihood_kind_ == "ML"


# --- several terms of a level ---------------------------------------------------------------------


FEW = GROUP < 12
STEP = 0.25


def integrated(family, fixed, varying, point, blocks):
    """Log-likelihood of few groups on a grid, at a mean, entries of roots, and a shape."""
    axis = np.arange(-4.5, 4.6, STEP)
    q, p, used = varying.shape[1], fixed.shape[1], fixed.shape[1]
    nodes = np.stack(np.meshgrid(*[axis] * q, indexing="ij"), -1).reshape(-1, q)
    L = np.zeros((q, q))
    for block in blocks:
        low = np.tril_indices(len(block))
        own = np.zeros((len(block),) * 2)
        own[low] = point[used : used + len(low[0])]
        L[np.ix_(block, block)], used = own, used + len(low[0])
    z = (fixed[FEW] @ point[:p])[:, None] + varying[FEW] @ L @ nodes.T
    whole = np.zeros((GROUP[FEW].max() + 1, len(nodes)))
    np.add.at(whole, GROUP[FEW], log_density(family, RESPONSES[family][FEW, None], z, point[-1]))
    found = logsumexp(whole - (nodes**2).sum(axis=1) / 2, axis=1)
    return (found + q * (np.log(STEP) - np.log(2 * np.pi) / 2)).sum()


TERMS = {
    "y ~ x + (1 | g) + (0 + x + z | g)": (["intercept", "x", "z"], [[0], [1, 2]]),
    "y ~ x + (1 + z | g) + (0 + x | g)": (["intercept", "z", "x"], [[0, 1], [2]]),
    "y ~ x + (0 + z || g) + (1 + x | g)": (["z", "intercept", "x"], [[0], [1, 2]]),
}
BY_NAME = {"intercept": ONE, "x": X, "z": Z}


@pytest.mark.parametrize("family", ["poisson", "binomial", "gamma"])
@pytest.mark.parametrize("formula", TERMS)
def test_terms_apart_are_at_a_maximum(formula, family):
    """The likelihood is that on a grid, and no parameter raises it."""
    names, blocks = TERMS[formula]
    fit = eb.from_formula(formula, ROWS.assign(y=RESPONSES[family])[FEW], family=family)
    assert type(fit.estimator_).__name__ == "GeneralizedEB"
    assert fit.likelihood_kind_ == "ML"
    places = [fit.terms_.index(name) for name in names]
    T = fit.covariance_[np.ix_(places, places)]
    apart = [(j, k) for a in blocks for b in blocks if a != b for j in a for k in b]
    assert all(T[pair] == 0 for pair in apart)
    roots = [np.linalg.cholesky(T[np.ix_(b, b)] + 1e-9 * np.eye(len(b))) for b in blocks]
    entries = [root[np.tril_indices(len(root))] for root in roots]
    figures = fit.tidy()
    shape = figures.loc[figures["term"] == "shape", "estimate"].to_list()
    point = np.concatenate([fit.mean_[:2], *entries, np.log(shape or [1.0])])
    fixed = np.column_stack([ONE, X])
    varying = np.column_stack([BY_NAME[name] for name in names])

    def value(point):
        return integrated(family, fixed, varying, point, blocks)

    highest = value(point)
    assert fit.log_likelihood_ == pytest.approx(highest, abs=1e-3)
    assert fit.n_parameters_ == 2 + 1 + 3 + len(shape)
    for j in range(fit.n_parameters_):
        step = 0.02 * np.eye(len(point))[j]
        assert max(value(point + step), value(point - step)) < highest + 1e-4


def test_terms_apart_in_all_reports(tmp_path):
    rows = ROWS.assign(y=RESPONSES["poisson"])
    fit = eb.from_formula("y ~ x + (1 | g) + (0 + x + z | g)", rows, family="poisson")
    spreads = fit.tidy("ran_pars")["term"].tolist()
    assert spreads == ["sd__intercept", "sd__x", "sd__z", "cor__x.z"]
    components = fit.VarCorr()
    assert components["var2"].tolist() == ["", "", "", "z"]
    assert fit.glance()["AIC"].iloc[0] == pytest.approx(-2 * fit.log_likelihood_ + 2 * 6)
    ends = fit.confint(method="profile").set_index("term")
    assert ((ends["conf.low"] <= ends["estimate"]) & (ends["estimate"] <= ends["conf.high"])).all()
    assert np.isfinite(fit.tests()[["std.error", "p.value"]]).all(axis=None)
    fit.save(tmp_path / "fit.ebfed")
    again = eb.load_fit(tmp_path / "fit.ebfed")
    np.testing.assert_allclose(again.predict(rows), fit.predict())
    assert again.VarCorr().equals(components)
    lower = eb.from_formula("y ~ x + (0 + x + z | g)", rows, family="poisson")
    compared = eb.anova(lower, fit)
    assert compared["df"].dropna().tolist() == [1.0]


def test_profiles_of_terms_apart():
    """Terms of one coefficient each are a diagonal covariance."""
    rows = ROWS.assign(y=RESPONSES["poisson"])
    settings = {"varying": [["intercept"], ["z"]], "fixed": ["intercept", "x"]}
    apart = eb.GeneralizedEB("poisson", "full", **settings)
    settings["varying"] = ["intercept", "z"]
    diag = eb.GeneralizedEB("poisson", "diag", **settings)
    ends = []
    for fit in (apart, diag):
        fit.fit(rows[["x", "z"]], rows["y"], groups=rows["g"])
        ends.append(fit.confint(method="profile")[["estimate", "conf.low", "conf.high"]])
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-3)


def test_the_order_of_terms_does_not_matter():
    """To a thousandth of an error: a search ends where little is to be gained."""
    rows = ROWS.assign(y=RESPONSES["poisson"])
    one, other = (
        eb.from_formula(f"y ~ x + {terms}", rows, family="poisson")
        for terms in ("(1 | g) + (0 + x + z | g)", "(0 + x + z | g) + (1 | g)")
    )
    np.testing.assert_allclose(one.covariance_, other.covariance_, rtol=1e-3)


@pytest.mark.parametrize("share", ["groups", "sums"])
def test_terms_of_nested_levels(share):
    """Blocks of each level, by factors and by sums."""
    rows = ROWS.assign(y=RESPONSES["poisson"], top=ROWS["g"] % 7)
    varying = {"top": [["intercept"], ["x"]], "g": [["intercept", "z"], ["x"]]}
    fit = eb.GeneralizedEB("poisson", "full", varying=varying, fixed=["intercept", "x"])
    fit.set_params(share=share)
    fit.fit(rows[["x", "z"]], rows["y"], groups=rows[["top", "g"]])
    assert fit.n_parameters_ == 2 + 2 + 3 + 1
    assert fit.covariance_above_["top"][0, 1] == 0
    assert fit.covariance_[0, 1] == fit.covariance_[1, 2] == 0
    formula = "y ~ x + (1 | top) + (0 + x | top) + (1 + z | top:g) + (0 + x | top:g)"
    same = eb.from_formula(formula, rows, family="poisson")
    assert fit.log_likelihood_ == pytest.approx(same.log_likelihood_, abs=1e-6)


@pytest.mark.parametrize("make", [eb.LinearEB, lambda kind: eb.GeneralizedEB("poisson", kind)])
def test_one_variance_is_of_one_term(make):
    rows, fit = ROWS.assign(y=RESPONSES["poisson"]), make("spherical")
    fit.set_params(varying=[["intercept"], ["x"]])
    with pytest.raises(ValueError, match="'spherical' is of one term of a level; got several"):
        fit.fit(rows[["x"]], rows["y"], groups=rows["g"])


@pytest.mark.parametrize("family", ["binomial", "poisson", "gamma"])
@pytest.mark.parametrize("terms", ["(1 + z | g)", "(1 + x + z | g)", "(1 + z | half/g)"])
def test_slopes_of_calendar_years_are_those_of_years_since_the_first(family, terms):
    """The model is the same, but coordinates at year 0 are nearly collinear."""
    rows = ROWS.assign(y=RESPONSES[family], half=ROWS["g"] % 5)
    formula = f"y ~ x + z + h + {terms}"
    since = eb.from_formula(formula, rows, family=family)
    years = rows.assign(z=rows["z"] + 2000)
    fit = eb.from_formula(formula, years, family=family)
    assert fit.converged_
    np.testing.assert_allclose(fit.log_likelihood_, since.log_likelihood_, atol=1e-6)
    np.testing.assert_allclose(fit.predict(years), since.predict(rows), rtol=1e-4)
    slope = fit.terms_.index("z")
    spreads = [np.sqrt(each.covariance_[slope, slope]) for each in (fit, since)]
    np.testing.assert_allclose(*spreads, atol=1e-3 * spreads[1] + 1e-5)
