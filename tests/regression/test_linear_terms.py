"""Linear mixed models whose random terms have any columns, in the span of X or not.

Figures of lme4 1.1, and the likelihood of all rows together, maximised from several starts.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import ebfed as eb

REFERENCE = Path(__file__).parents[1] / "reference"

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def sleep():
    frame = pd.read_csv(REFERENCE / "sleepstudy.csv")
    frame["late"] = (frame["Days"] >= 5).astype(float)
    frame["half"] = np.where(frame["Days"] % 2 == 0, "even", "odd")
    return frame


# --- the likelihood, densely ----------------------------------------------------------------------


def least(X, y, terms, restricted):
    """Smallest deviance of all rows; of a term there are labels, columns, "full" or "diag"."""
    entries = []
    for _, Z, kind in terms:
        q = Z.shape[1]
        entries.append(np.tril_indices(q) if kind == "full" else (np.arange(q),) * 2)
    blocks = [
        [(Z * (labels == each)[:, None]) for each in np.unique(labels)] for labels, Z, _ in terms
    ]

    def deviance(point):
        V, at = np.eye(len(y)), 0
        for own, low, (_, Z, _) in zip(blocks, entries, terms, strict=True):
            L = np.zeros((Z.shape[1],) * 2)
            L[low] = point[at : at + len(low[0])]
            at += len(low[0])
            for each in own:
                V += each @ L @ L.T @ each.T
        half = np.linalg.cholesky(V)
        A, b = np.linalg.solve(half, X), np.linalg.solve(half, y)
        R = np.linalg.qr(A, mode="r")
        left = b - A @ np.linalg.lstsq(A, b, rcond=None)[0]
        n = len(y) - restricted * X.shape[1]
        value = 2 * np.log(np.diag(half)).sum() + n * (1 + np.log(2 * np.pi * left @ left / n))
        return value + restricted * 2 * np.log(np.abs(np.diag(R))).sum()

    rng, found = np.random.default_rng(0), []
    size = sum(len(low[0]) for low in entries)
    for _ in range(4):
        found.append(minimize(deviance, rng.normal(0.5, 0.5, size), method="BFGS").fun)
    return min(found)


def drawn(seed=0, m=12):
    rng = np.random.default_rng(seed)
    n = rng.integers(4, 9, m)
    g = np.repeat(np.arange(m), n)
    frame = pd.DataFrame(
        {"g": g, "x": rng.normal(3, 1, len(g)), "z": rng.normal(size=len(g)), "h": g // 3}
    )
    frame["k"] = rng.integers(0, 3, len(g))
    u = rng.normal(size=(m, 3))
    frame["y"] = (
        2 + frame["x"] + u[g, 0] + 0.7 * u[g, 1] * frame["z"] + 0.5 * rng.normal(size=len(g))
    )
    return frame


ONE = ["one"]
MODELS = {
    "y ~ 1 + (z | g)": (ONE, [("g", ["one", "z"], "full")]),
    "y ~ x + (0 + z | g)": (["one", "x"], [("g", ["z"], "diag")]),
    "y ~ 0 + x + (1 | g)": (["x"], [("g", ONE, "diag")]),
    "y ~ x + (z || g)": (["one", "x"], [("g", ["one", "z"], "diag")]),
    "y ~ x + (1 | g) + (0 + z | g)": (["one", "x"], [("g", ["one", "z"], "diag")]),
    "y ~ x + (1 | g) + (0 + z + x | g)": (
        ["one", "x"],
        [("g", ONE, "diag"), ("g", ["z", "x"], "full")],
    ),
    "y ~ x + (1 | h:g)": (["one", "x"], [("g", ONE, "diag")]),
    "y ~ x + (1 | h) + (0 + z || h:g)": (
        ["one", "x"],
        [("h", ONE, "diag"), ("g", ["z"], "diag")],
    ),
    "y ~ 1 + (z | h) + (1 | h:g) + (0 + z + x | h:g)": (
        ONE,
        [("h", ["one", "z"], "full"), ("g", ONE, "diag"), ("g", ["z", "x"], "full")],
    ),
}


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("formula", MODELS)
def test_never_worse_than_the_likelihood_of_all_rows(formula, method):
    frame = drawn().assign(one=1.0)
    fixed, terms = MODELS[formula]
    fit = eb.from_formula(formula, frame, method=method)
    given = [(frame[by].to_numpy(), frame[own].to_numpy(float), kind) for by, own, kind in terms]
    best = least(frame[fixed].to_numpy(float), frame["y"].to_numpy(), given, method == "reml")
    # the search of the test ends within 1e-6
    assert fit.criterion_ == pytest.approx(best, abs=1e-5)


@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_sums_give_the_same(covariance):
    frame = drawn(3)
    given = {"varying": ["intercept", "z"], "fixed": ["intercept", "x"]}
    one, other = (
        eb.LinearEB(covariance, share=share, **given).fit(
            frame[["x", "z"]], frame["y"], groups=frame["g"]
        )
        for share in ("groups", "sums")
    )
    # both searches stop where the criterion would fall by less than 1e-8
    assert one.criterion_ == pytest.approx(other.criterion_, abs=1e-6)
    np.testing.assert_allclose(one.mean_, other.mean_, rtol=1e-4)
    assert one.mean_[2] == other.mean_[2] == 0


def test_terms_apart_and_by_sums():
    frame = drawn(4)
    given = {"varying": [["intercept"], ["x", "z"]], "fixed": ["intercept", "x"]}
    fits = [
        eb.LinearEB("full", share=share, **given).fit(
            frame[["x", "z"]], frame["y"], groups=frame["g"]
        )
        for share in ("groups", "sums")
    ]
    assert fits[0].criterion_ == pytest.approx(fits[1].criterion_, abs=1e-6)
    assert not fits[0].covariance_[0, 1:].any()
    assert fits[0].covariance_[1, 2] != 0
    assert fits[0].n_parameters_ == 2 + 1 + 3 + 1
    spreads = fits[0].tidy(effects="ran_pars")["term"].tolist()
    assert spreads == ["sd__intercept", "sd__x", "sd__z", "cor__x.z", "sd__Observation"]


# --- figures of lme4 ------------------------------------------------------------------------------


def test_the_null_model_of_a_slope(sleep):
    """Figures of lme4 to 1e-4 of an error, spreads to 1e-3, or a likelihood that is higher."""
    fit = eb.from_formula("Reaction ~ 1 + (Days | Subject)", sleep, method="ml")
    assert fit.log_likelihood_ >= -887.737941 - 1e-6
    error = fit.tests()["std.error"].iloc[0]
    assert fit.mean_[0] == pytest.approx(257.762108, abs=1e-4 * error)
    assert fit.mean_[1] == 0
    found = dict(fit.tidy(effects="ran_pars")[["term", "estimate"]].to_numpy())
    assert found["sd__intercept"] == pytest.approx(24.615576, rel=1e-3)
    assert found["sd__Days"] == pytest.approx(11.926691, rel=1e-3)
    assert found["cor__intercept.Days"] == pytest.approx(-0.188997, rel=1e-3)
    assert np.sqrt(fit.noise_variance_) == pytest.approx(25.591822, rel=1e-3)


def test_factor_without_an_intercept(sleep):
    fit = eb.from_formula("Reaction ~ 0 + C(Days) + (1 | Subject)", sleep)
    assert fit.criterion_ == pytest.approx(1729.49256, abs=1e-5)
    means = sleep.groupby("Days")["Reaction"].mean().to_numpy()
    np.testing.assert_allclose(fit.fixef()["estimate"], means, rtol=1e-9)  # of balanced groups


FORMULAS = [
    "Reaction ~ 1 + (Days | Subject)",
    "Reaction ~ 0 + C(Days) + (1 | Subject)",
    "Reaction ~ late + (0 + late | Subject)",
    "Reaction ~ C(Days) + (Days | Subject)",
    "Reaction ~ poly(Days, 3) + (poly(Days, 2) | Subject)",
    "Reaction ~ late * Days + (late:Days | Subject)",
    "Reaction ~ Days + (1 | Subject) + (0 + late + Days | Subject)",
    "Reaction ~ Days + (0 + half || Subject)",
    "Reaction ~ Days + (1 | Subject:half)",
    "Reaction ~ half + (Days | Subject/half)",
]


@pytest.mark.parametrize("formula", FORMULAS)
def test_all_that_a_fit_offers(formula, sleep, tmp_path):
    fit = eb.from_formula(formula, sleep)
    fitted = fit.predict()
    assert np.corrcoef(fitted, sleep["Reaction"])[0, 1] > 0.5
    low, high = fit.predict_interval()
    assert ((low < sleep["Reaction"]) & (sleep["Reaction"] < high)).mean() > 0.9
    shown = fit.summary()
    names = fit.fixef()["term"].tolist()
    assert all(name in str(shown) for name in names)
    tested = fit.tests()
    assert tested["term"].tolist() == names
    assert np.isfinite(tested[["df", "std.error"]]).all(axis=None)
    assert fit.confint()["term"].tolist() == names
    columns = fit.influence().columns
    assert [name for name in columns if name.startswith("dfbeta")] == [f"dfbeta.{x}" for x in names]
    assert len(fit.margins().frame()) == 1
    np.testing.assert_allclose(fit.augment()[".fitted"], fitted)
    np.testing.assert_allclose(fit.residuals(), sleep["Reaction"] - fitted)
    fit.save(tmp_path / "fit.ebfed")
    again = eb.load_fit(tmp_path / "fit.ebfed")
    np.testing.assert_allclose(again.predict(sleep), fitted, rtol=1e-12)


def test_effects_without_a_mean_are_their_coefficients(sleep):
    fit = eb.from_formula("Reaction ~ 1 + (Days | Subject)", sleep)
    effects, coefficients = fit.ranef(), fit.coef()
    np.testing.assert_array_equal(effects["Days"], coefficients["Days"])
    away = coefficients["intercept"] - effects["intercept"]
    np.testing.assert_allclose(away, fit.mean_[0])


def test_a_slope_is_tested_by_both_models(sleep):
    """lme4: logLik -875.9697 with the slope, -887.7379 without."""
    null = eb.from_formula("Reaction ~ 1 + (Days | Subject)", sleep, method="ml")
    full = eb.from_formula("Reaction ~ Days + (Days | Subject)", sleep, method="ml")
    found = eb.anova(null, full)
    assert found["statistic"].iloc[-1] == pytest.approx(2 * (887.737941 - 875.969672), abs=1e-4)


def test_profiles_of_terms_apart(sleep):
    """Where terms are apart, profiles are those of the same model in two parts."""
    fit = eb.from_formula("Reaction ~ Days + (1 | Subject) + (0 + Days | Subject)", sleep)
    diag = eb.from_formula("Reaction ~ Days + (Days || Subject)", sleep)
    full = eb.LinearEB("full", varying=[["intercept"], ["Days"]])
    full.fit(sleep[["Days"]], sleep["Reaction"], groups=sleep["Subject"])
    ends = [each.confint(method="profile")[["conf.low", "conf.high"]] for each in (fit, diag, full)]
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-4)
    np.testing.assert_allclose(ends[0], ends[2], rtol=1e-3)


@pytest.mark.parametrize(
    "formula", [FORMULAS[0], FORMULAS[1], "Reaction ~ late + (half | Subject)"]
)
def test_a_lazy_table_has_the_same(formula, sleep):
    pl = pytest.importorskip("polars")
    lazy = pl.from_pandas(sleep).lazy()
    one, other = eb.from_formula(formula, sleep), eb.from_formula(formula, lazy)
    assert other.clients_.n.sum() == len(sleep)
    assert one.criterion_ == pytest.approx(other.criterion_, abs=1e-6)
    np.testing.assert_allclose(one.mean_, other.mean_, rtol=1e-4, atol=1e-4)


# --- what is not identified, and refused ----------------------------------------------------------


def test_a_column_in_two_terms(sleep):
    with pytest.raises(ValueError, match=r"two terms of 'Subject' in .* have '1'"):
        eb.from_formula("Reaction ~ Days + (1 | Subject) + (Days | Subject)", sleep)
    with pytest.raises(ValueError, match="each column in one term; 'intercept' is in two"):
        eb.LinearEB("full", varying=[["intercept"], ["intercept", "Days"]]).fit(
            sleep[["Days"]], sleep["Reaction"], groups=sleep["Subject"]
        )


def test_a_column_of_no_use(sleep):
    with pytest.raises(ValueError, match="'Days' has neither a mean nor a spread"):
        eb.LinearEB(varying=["intercept"], fixed=["intercept"]).fit(
            sleep[["Days"]], sleep["Reaction"], groups=sleep["Subject"]
        )


def test_confounded_with_a_fixed_term():
    frame = drawn(5)
    with pytest.warns(UserWarning, match="variance of intercept between groups is not identified"):
        fit = eb.from_formula("y ~ 0 + C(g) + (1 + z | g)", frame)
    assert fit.covariance_[0, 0] == 0
